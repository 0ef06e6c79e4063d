"""Encoders by name: loaded for training, stored in a run folder, and loaded from there.

encoder/encoder.json        the kind of the encoder, where it came from, and the normalization of images
encoder/config.json         of a network of transformers: the options that make it
encoder/model.safetensors   its weights as training began
encoder/model.pt2           a program of torch.export instead
"""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from torchcaps._core.errors import InputError, input_error
from torchcaps._core.extensions import imported, trust
from torchcaps._core.fields import as_json, read_fields
from torchcaps._core.files import atomic_write, inside
from torchcaps.models.encoders import Encoder
from torchcaps.models.frozen import Pretrained
from torchcaps.models.tokens import TextEncoder
from torchcaps.runs import huggingface, textencoders
from torchcaps.runs.weights import check_room, load_weights, refused, save_weights

Kind = Literal["huggingface", "timm", "program", "function"]
KINDS = "a folder with config.json and model.safetensors or a package with one, timm:NAME, a .pt2 file, MODULE:FUNCTION"
FOLDER = "encoder"


@dataclass(frozen=True)
class EncoderFile:
    """What a run stores about its encoder beside config and weights; mean, std and sizes as in `Encoder`.

    padding: of an encoder of texts, as in `TextEncoder`; None for images.
    """

    kind: Kind
    source: str
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    size: int | None = None
    native: int | None = None
    patch: int | None = None
    channels: int | None = None
    padding: int | None = None


def load_encoder(source: Path | str) -> Encoder | TextEncoder:
    """Load a pretrained network as a frozen encoder, for `create_model("efficient", encoder=...)`, or "text" for texts.

    source: a folder in Hugging Face's format (config.json and model.safetensors, for texts also tokenizer.json; needs
    torchcaps[encoders]), the name of an installed package with such a folder, timm:NAME (needs timm), a file of
    torch.export (.pt2), or MODULE:FUNCTION, a function without arguments that returns a module. The last two execute
    code of theirs, which this call allows.
    """
    return make_encoder(allow(source))


def allow(source: Path | str) -> str:
    """Allow the code of an encoder that a user named, not a file. Returns the absolute source."""
    name = absolute(source)
    if kind_of(name) in ("program", "function"):
        trust(name)
    return name


def absolute(source: Path | str) -> str:
    """A source with an absolute path, if it is one of files or of a package."""
    path = Path(source).expanduser()
    found = path.resolve() if path.exists() else textencoders.packaged_folder(str(source))
    return str(source if found is None else found)


def kind_of(source: str) -> Kind:
    """The kind of an encoder. Raises an `InputError` if there is no such encoder."""
    path = Path(source)
    if path.is_dir():
        return "huggingface"
    if path.suffix == ".pt2" and path.is_file():
        return "program"
    first, colon, name = source.partition(":")
    if first == "timm" and name:
        return "timm"
    if colon and name.isidentifier() and all(part.isidentifier() for part in first.split(".")):
        return "function"
    got = source if path.exists() else f"{source}, which is not there"
    raise input_error("--encoder", KINDS, got, "Check the path or the name.")


def check_reads(source: str, kind: str) -> None:
    """Raise an `InputError` for an encoder that cannot read inputs of this kind, "images" or "texts"."""
    if kind_of(source) == "huggingface":
        huggingface.check_reads(source, huggingface.read_config(Path(source)), kind)
    elif kind == "texts":
        remedy = f"Choose one like {huggingface.LIKE[kind]}."
        raise input_error("--encoder", "for texts a folder in Hugging Face's format", source, remedy)


def make_encoder(source: str) -> Encoder | TextEncoder:
    """Make an encoder with its pretrained weights. Code that it brings must have been allowed."""
    return _MAKERS[kind_of(source)](source)


def usual_size(source: str) -> int | None:
    """The usual side of images for an encoder; None if it has none."""
    kind = kind_of(source)
    if kind == "huggingface":
        return huggingface.usual_size(Path(source))
    return None if kind == "function" else getattr(make_encoder(source), "size", None)


def _from_folder(source: str) -> Encoder | TextEncoder:
    folder = Path(source)
    config = huggingface.read_config(folder)
    if huggingface.reads(config) == huggingface.INPUTS["texts"]:
        return textencoders.from_folder(source, config)
    huggingface.check_reads(source, config, "images")
    mean, std, size = huggingface.normalization(folder)
    network = huggingface.make_network(source, config, huggingface.read_state(folder))
    sizes = huggingface.sizes(network)
    return Encoder(network, source, mean=mean, std=std, **{**sizes, "size": size or sizes["size"]})


def _from_timm(source: str, *, pretrained: bool = True) -> Encoder:
    name = source.partition(":")[2]
    try:
        import timm
    except ImportError as error:  # also if its torchvision does not fit torch
        missing = isinstance(error, ModuleNotFoundError) and error.name == "timm"
        got = "it not installed" if missing else f"an error when it is imported ({error})"
        remedy = "Run: pip install timm, or give a folder in Hugging Face's format."
        raise input_error(f"--encoder {source}", "the package timm", got, remedy) from None
    if name not in timm.list_models():
        raise input_error(f"--encoder {source}", "a network of timm", name, "List them with timm.list_models().")
    network = timm.create_model(name, pretrained=pretrained, num_classes=0, global_pool="")
    found = timm.data.resolve_model_data_config(network)
    size, patch = found["input_size"][-1], getattr(getattr(network, "patch_embed", None), "patch_size", (None,))[0]
    sizes = {"size": size, "patch": patch, "channels": found["input_size"][0]}
    return Encoder(network, source, mean=found["mean"], std=found["std"], **sizes)


def _from_program(source: str) -> Encoder:
    check_trusted(source, source)
    try:
        program = torch.export.load(source)
        shape = next(
            node.meta["val"].shape
            for node in program.graph.nodes
            if node.op == "placeholder" and node.name in program.graph_signature.user_inputs
        )
        network: nn.Module = program.module()
    except Exception as error:  # torch raises many kinds
        raise input_error(source, "a file of torch.export", error, "Write it with torch.export.save.") from None
    side = shape[-1] if len(shape) == 4 and isinstance(shape[-1], int) and shape[-1] == shape[-2] else None
    encoder = Encoder(network, source, size=side, channels=shape[1] if len(shape) == 4 else None)
    encoder.program = program
    return encoder


def _from_function(source: str) -> Encoder:
    name, _, function = source.partition(":")
    file = sys.modules.get(f"torchcaps_import_{name}")
    if file is None:
        check_trusted(source, source)
    try:
        module: Any = importlib.import_module(name) if file is None else file
        make: Callable[[], Any] | None = getattr(module, function, None)
    except Exception as error:  # of its own code
        remedy = f"Install it, or give --import {name.rpartition('.')[2]}.py."
        raise input_error(f"--encoder {source}", f"a module {name}", error, remedy) from None
    if not callable(make) or (file is not None and getattr(make, "__module__", None) != file.__name__):
        raise input_error(f"--encoder {source}", f"a function {function} in {name}", "none", "Check the name.")
    try:
        network = make()
    except InputError:
        raise
    except Exception as error:
        got = f"{type(error).__name__}: {error}"
        raise input_error(f"--encoder {source}", "a function that takes no arguments", got, "Mend it.") from error
    if not isinstance(network, nn.Module):
        got = f"a {type(network).__name__}"
        raise input_error(f"--encoder {source}", "a function that returns a torch.nn.Module", got, "Mend it.")
    return Encoder(network, source)


_MAKERS: dict[Kind, Callable[[str], Encoder | TextEncoder]] = {
    "huggingface": _from_folder,
    "timm": _from_timm,
    "program": _from_program,
    "function": _from_function,
}


def check_trusted(source: str, name: str) -> None:
    """Raise an `InputError` for an encoder that brings code, unless this process was told to trust it by its name."""
    if name not in imported():
        got = f"{source}, which could run code of its own"
        remedy = f"If you trust it, give --import {name}, or call torchcaps.load_encoder({name!r}) before."
        raise input_error("--encoder", "an encoder that was imported", got, remedy)


def save_encoder(encoder: Pretrained, folder: Path) -> None:
    """Store an encoder with its weights in a folder of a run."""
    folder.mkdir(exist_ok=True)
    known = _known_of(encoder)
    atomic_write(inside(folder, "encoder.json"), as_json(asdict(known)))
    if known.kind == "program" and isinstance(encoder, Encoder):
        content = io.BytesIO()
        torch.export.save(encoder.program, content)
        atomic_write(inside(folder, "model.pt2"), content.getvalue())
        return
    if known.kind == "huggingface":
        config: Any = encoder.network.config
        plain = huggingface.encoder_part(encoder.source, config.to_dict())
        atomic_write(inside(folder, huggingface.CONFIG), as_json(plain))
    save_weights(inside(folder, huggingface.WEIGHTS), encoder.network)


def _known_of(encoder: Pretrained) -> EncoderFile:
    """What is known of an encoder, whose source may be gone by now."""
    if isinstance(encoder, TextEncoder):
        return EncoderFile("huggingface", encoder.source, padding=encoder.padding)
    assert isinstance(encoder, Encoder)
    plain: Kind = "huggingface" if hasattr(encoder.network, "config") else "function"
    named: Kind = "timm" if encoder.source.startswith("timm:") else plain
    kind: Kind = named if encoder.program is None else "program"
    mean, std = (tuple(values.flatten().tolist()) for values in (encoder.mean, encoder.std))
    sizes = {word: getattr(encoder, word) for word in ("size", "native", "patch", "channels")}
    return EncoderFile(kind, encoder.source, mean, std, **sizes)


def tuned(encoder: Pretrained) -> Pretrained:
    """A copy of an encoder that learns."""
    encoder = deepcopy(encoder)
    encoder.tune()
    return encoder


def frozen_state(encoder: Pretrained, folder: Path | None) -> dict[str, torch.Tensor]:
    """The weights of a frozen encoder as those of its network; from a folder, if another may have been given."""
    state = encoder.state_dict()
    if folder is not None and (folder / huggingface.WEIGHTS).exists():
        stored = _weights(inside(folder, huggingface.WEIGHTS), encoder.network)
        state = {f"network.{name}": tensor for name, tensor in stored.items()}
    return {f"encoder.{name}": tensor for name, tensor in state.items()}


def open_encoder(folder: Path, *, plan: bool = False) -> Pretrained:
    """Load the encoder of a run folder. No code of the run is executed.

    plan: without weights, on the default device, if it can be made so.
    """
    known = read_fields(EncoderFile, inside(folder, "encoder.json"), "what is known of an encoder")
    if known.kind == "program":
        with torch.device("cpu"):
            encoder = _from_program(str(inside(folder, "model.pt2").resolve()))
        encoder.source = known.source
        return encoder
    if known.kind == "timm":
        encoder = _from_timm(known.source, pretrained=False)
    elif known.kind == "function":
        with torch.device("cpu"):
            encoder = _from_function(known.source)
    else:
        return _stored_transformer(folder, known, plan)
    if not plan:
        path = inside(folder, huggingface.WEIGHTS)
        try:
            encoder.network.load_state_dict(_weights(path, encoder.network))
        except RuntimeError as error:
            raise refused(path, str(error)) from None
    return encoder


def _stored_transformer(folder: Path, known: EncoderFile, plan: bool) -> Pretrained:
    config = huggingface.read_config(inside(folder, huggingface.CONFIG).parent)
    owner, state = str(folder), None
    huggingface.check_reads(owner, config, "images" if known.padding is None else "texts")
    if not plan:
        with torch.device("meta"):
            planned = huggingface.make_network(owner, config)
        check_room(planned)
        state = _weights(inside(folder, huggingface.WEIGHTS), planned)
    network = huggingface.make_network(owner, config, state)
    if known.padding is not None:
        return textencoders.wrapped(network, known.source, known.padding)
    sizes = {word: getattr(known, word) for word in ("size", "native", "patch", "channels")}
    return Encoder(network, known.source, mean=known.mean, std=known.std, **sizes)


def _weights(path: Path, network: nn.Module) -> dict[str, torch.Tensor]:
    return load_weights(path, sum(tensor.nbytes for tensor in network.state_dict().values()))
