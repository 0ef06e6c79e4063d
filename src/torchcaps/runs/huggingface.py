"""Networks in Hugging Face's format: a folder of config.json and safetensors, made by the classes of `transformers`.

No code of a folder is executed, nothing is downloaded, and pickled weights are not read.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from torchcaps._core.errors import check_range, input_error
from torchcaps._core.fields import read_object
from torchcaps.runs.weights import first_not_finite, first_reason

CONFIG, PREPROCESSOR, WEIGHTS = "config.json", "preprocessor_config.json", "model.safetensors"
INDEX = "model.safetensors.index.json"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
REMEDY = "Download it anew, or save it with save_pretrained."
# Options that choose code, other networks or number formats; the classes of transformers have them all.
LEFT_OUT = {"_name_or_path", "architectures", "dtype", "torch_dtype", "id2label", "label2id", "transformers_version"}
INPUTS = {"images": "pixel_values", "texts": "input_ids"}
LIKE = {"images": "resnet, convnext, vit or dinov2", "texts": "bert, roberta or distilbert"}
LAYERS = 1000  # in a stranger's config; more take minutes to make


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json of a folder, with the options of an encoder only."""
    if not (folder / CONFIG).is_file():
        raise input_error(str(folder), f"a folder with {CONFIG} and {WEIGHTS}", f"no {CONFIG}", REMEDY)
    return encoder_part(str(folder), read_object(folder / CONFIG, "a network"))


def encoder_part(owner: str, config: dict[str, Any]) -> dict[str, Any]:
    """The options of an encoder among those of a network; of a network of images and texts, its image part."""
    mapping = _transformers().models.auto.configuration_auto.CONFIG_MAPPING
    vision = config.get("vision_config")
    if isinstance(vision, dict) and "model_type" not in vision and isinstance(config.get("model_type"), str):
        vision = {**vision, "model_type": f"{config['model_type']}_vision_model"}
    config = vision if isinstance(vision, dict) else config
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in mapping:
        remedy = "Update transformers, or choose a network that it knows."
        raise input_error(owner, f"a model_type in {CONFIG} that transformers knows", repr(kind), remedy)
    usual = mapping[kind]()
    return {"model_type": kind} | {
        word: value
        for word, value in config.items()
        if word in usual.to_dict() and word not in LEFT_OUT and not word.startswith(("_", "output_"))
    }


def check_reads(owner: str, config: dict[str, Any], kind: str) -> None:
    """Raise an `InputError` for a network that does not read inputs of this kind, "images" or "texts"."""
    found = reads(config)
    if found != INPUTS[kind]:
        named = config["model_type"]
        got = f"{named}, which reads {found}" if found else named
        raise input_error(owner, f"an encoder for {kind}", got, f"Choose one like {LIKE[kind]}.")


def reads(config: dict[str, Any]) -> str | None:
    """The name of the inputs that the network of a config reads; None if it is unknown."""
    usual = _transformers().models.auto.configuration_auto.CONFIG_MAPPING[config["model_type"]]()
    found: str | None = getattr(_network_class(usual), "main_input_name", None)
    return found


def make_network(owner: str, config: dict[str, Any], state: dict[str, Tensor] | None = None) -> nn.Module:
    """The network of a config without its head, with these weights; with random ones if there are none."""
    package = _transformers()
    options = {word: value for word, value in config.items() if word != "model_type"}
    for word, value in options.items():
        if "layers" in word or word == "depths":
            for count in value if isinstance(value, list) else [value]:
                check_range(owner, word, count, 0, LAYERS)
    try:
        with quiet():
            whole = package.models.auto.configuration_auto.CONFIG_MAPPING[config["model_type"]].from_dict(options)
            network = _network_class(whole)
            pooled = "add_pooling_layer" in inspect.signature(network.__init__).parameters
            more = {"add_pooling_layer": False} if pooled else {}
            if state is None:
                made: nn.Module = network(whole, **more)
                return made.eval()
            made, found = network.from_pretrained(
                None, config=whole, state_dict=state, dtype=torch.float32, output_loading_info=True, **more
            )
    except Exception as error:  # transformers raises many kinds
        got = first_reason(str(error)) if str(error).strip() else type(error).__name__
        raise input_error(owner, f"{CONFIG} and weights that fit together", got, REMEDY) from None
    missing = sorted(found["missing_keys"])
    if missing:
        got = f"none for {missing[0]}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
        raise input_error(owner, f"weights for all of {type(made).__name__}", got, REMEDY)
    return made.eval()


def read_state(folder: Path) -> dict[str, Tensor]:
    """The weights of a folder, from one file of safetensors or several."""
    index = folder / INDEX
    names = [WEIGHTS]
    if not (folder / WEIGHTS).exists() and index.exists():
        listed = read_object(index, "weights").get("weight_map")
        names = sorted({str(name) for name in listed.values()}) if isinstance(listed, dict) else []
    found: dict[str, Tensor] = {}
    for name in names:
        path = folder / name
        if Path(name).name != name or path.suffix != ".safetensors" or not path.is_file():
            pickled = next((file.name for file in sorted(folder.glob("*.bin")) + sorted(folder.glob("*.pt*"))), None)
            got = f"no {name}" if pickled is None else f"{pickled}, whose pickle could run code"
            remedy = REMEDY if pickled is None else "Save it with save_pretrained, which writes safetensors."
            raise input_error(str(folder), f"weights in {WEIGHTS}", got, remedy)
        try:
            found |= load_file(path)
        except (SafetensorError, OSError, ValueError, RuntimeError) as error:
            raise input_error(str(path), "a file of safetensors", error, REMEDY) from None
    broken = first_not_finite(found)
    if broken is not None:
        raise input_error(str(folder), "weights that are finite numbers", f"others in {broken}", REMEDY)
    return found


def normalization(folder: Path) -> tuple[tuple[float, ...], tuple[float, ...], int | None]:
    """Mean, standard deviation and side of images from 0 to 1, as preprocessor_config.json says; else ImageNet's."""
    path = folder / PREPROCESSOR
    if not path.is_file():
        return MEAN, STD, None
    values = read_object(path, "image processing")
    mean, std = values.get("image_mean", MEAN), values.get("image_std", STD)
    scale = values.get("rescale_factor", 1 / 255)
    numbers = [mean, std] if values.get("do_normalize", True) else []
    for each in numbers:
        if not isinstance(each, list | tuple) or not all(isinstance(one, int | float) for one in each) or not each:
            raise input_error(str(path), "image_mean and image_std as lists of numbers", repr(each), REMEDY)
    if not isinstance(scale, int | float) or not scale > 0 or (numbers and not all(one > 0 for one in std)):
        raise input_error(str(path), "a rescale_factor and image_std above 0", f"{scale!r} and {std!r}", REMEDY)
    factor = 255 * (scale if values.get("do_rescale", True) else 1)
    if not numbers:
        mean, std = (0.0,), (1.0,)
    cropped = values.get("do_center_crop", "crop_size" in values)
    size = _side(values.get("crop_size")) if cropped else None
    scaled = tuple(float(one) / factor for one in mean), tuple(float(one) / factor for one in std)
    return *scaled, _side(values.get("size")) if size is None else size


def _side(size: Any) -> int | None:
    """The side of a square from an entry of preprocessor_config.json or config.json; None for anything else."""
    if isinstance(size, dict):
        size = size.get("shortest_edge", size.get("height") if size.get("height") == size.get("width") else None)
    if isinstance(size, list) and len(set(size)) == 1:
        size = size[0]
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None


def sizes(network: nn.Module) -> dict[str, Any]:
    """Options of `Encoder` that follow from the config of a network."""
    whole: Any = network.config
    size = _side(getattr(whole, "image_size", None))
    interpolates = "interpolate_pos_encoding" in inspect.signature(network.forward).parameters
    return {
        "size": size,
        "native": size if interpolates else None,
        "patch": _side(getattr(whole, "patch_size", None)),
        "channels": _side(getattr(whole, "num_channels", None)),
    }


def usual_size(folder: Path) -> int | None:
    """The side of images that the files of a folder name; None if they name none."""
    size = normalization(folder)[2]
    if size is not None:
        return size
    config = read_config(folder)
    mapping = _transformers().models.auto.configuration_auto.CONFIG_MAPPING
    return _side(config.get("image_size", getattr(mapping[config["model_type"]](), "image_size", None)))


def _network_class(config: Any) -> Any:
    """The class of networks without a head for a config of transformers."""
    mapping = _transformers().models.auto.modeling_auto.MODEL_MAPPING
    found = mapping.get(type(config), None)
    return found[0] if isinstance(found, tuple | list) else found


def _transformers() -> Any:
    try:
        import transformers
    except ModuleNotFoundError:
        remedy = "Run: pip install 'torchcaps[encoders]'."
        raise input_error("--encoder", "the package transformers", "it not installed", remedy) from None
    return transformers


@contextmanager
def quiet() -> Iterator[None]:
    """No reports and progress bars of transformers; missing weights are an error here."""
    reports: Any = _transformers().utils.logging
    logger = logging.getLogger("transformers")
    level, shown = logger.level, reports.is_progress_bar_enabled()
    logger.setLevel(logging.ERROR)
    reports.disable_progress_bar()
    try:
        yield
    finally:
        logger.setLevel(level)
        if shown:
            reports.enable_progress_bar()
