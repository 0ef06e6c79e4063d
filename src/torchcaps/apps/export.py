"""Export of a trained network to ONNX or torch.export. Each file is verified after it is written."""

from __future__ import annotations

import importlib.util
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.export import Dim

from torchcaps import __version__
from torchcaps._core.errors import check_choice, input_error
from torchcaps._core.files import atomic_write
from torchcaps.models import BiLSTM, Model, TextModel
from torchcaps.routing import Gaussian
from torchcaps.routing.variational import Variational
from torchcaps.runs.run import Run

KINDS = {"onnx": ".onnx", "torch": ".pt2"}
TOLERANCE = 1e-5  # of activations
OUTPUTS = ("activations", "poses")
RESIZE = "bilinear with antialiasing, as Pillow's BILINEAR"  # how training resized pictures
Answers = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Exported:
    """An exported file: its path, its inputs, and the difference of its activations from those of torch."""

    path: Path
    input: str
    difference: float


class _Plain(nn.Module):
    """A model that returns a tuple of two tensors, for other tools."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> tuple[Float[Tensor, "b y"], Float[Tensor, "b y d"]]:
        capsules = self.model(inputs)
        return capsules.activations, capsules.poses


def export_run(run: Run, path: Path | None = None, kind: str = "onnx") -> Exported:
    """Export the trained network of a run, with classes and image shape or vocabulary."""
    check_choice("export", "kind", kind, list(KINDS))
    path = run.path(f"model{KINDS[kind]}") if path is None else path
    model = run.load_model()
    model.decoder = None  # it would only be carried along
    return export_model(model, path, kind, _notes(run))


def export_model(model: Model, path: Path, kind: str = "onnx", notes: dict[str, str] | None = None) -> Exported:
    """Export a model with these notes (as metadata), for any batch size and text length, and verify the file.

    The file is kept only if its activations equal those of the model to 1e-5, on random inputs in two batch sizes. The
    model is left in evaluation mode.
    """
    check_choice("export", "kind", kind, list(KINDS))
    _refuse(model, kind)
    plain = _Plain(model).eval()
    notes = {"torchcaps": __version__, "input": input_of(model), **(notes or {})}
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder:
        temporary = Path(folder) / f"model{KINDS[kind]}"
        with torch.no_grad(), _quiet():
            write, load = (_write_onnx, load_onnx) if kind == "onnx" else (_write_torch, load_torch)
            try:
                write(plain, temporary, notes)
            except OSError:
                raise
            except Exception as error:  # torch raises many kinds for what it cannot follow
                raise _refusal(model, kind, _first_line(error)) from None
            difference = _largest_difference(plain, load(temporary))
        if not difference <= TOLERANCE:
            remedy = "No file was written; look for an option of its routing that jumps, such as hard=true."
            raise input_error(
                "export", f"activations equal to {TOLERANCE:g}", f"a difference of {difference:g}", remedy
            )
        atomic_write(path, temporary.read_bytes())
    return Exported(path, notes["input"], difference)


def load_onnx(path: Path) -> Callable[[Tensor], Answers]:
    """An ONNX file as a function of a tensor, computed by onnxruntime with the number of threads of torch."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()

    def answers(inputs: Tensor) -> Answers:
        activations, poses = session.run(list(OUTPUTS), {given.name: inputs.numpy()})
        return torch.from_numpy(activations), torch.from_numpy(poses)

    return answers


def load_torch(path: Path) -> Callable[[Tensor], Answers]:
    """A torch.export program as a function of a tensor."""
    program: Callable[[Tensor], Answers] = torch.export.load(path).module()
    return program


def input_of(model: Model) -> str:
    """A description of the inputs of a file."""
    if isinstance(model, TextModel):
        return (
            f"tokens: int64 [batch, length], token indices below {model.vocabulary}, padded with {model.padding_token}"
        )
    channels, height, width = model.image_shape
    return f"images: float32 [batch, {channels}, {height}, {width}] from 0 to 1"


def missing_package() -> str | None:
    """The first missing package that ONNX files need; None if all are installed."""
    needed = ("onnx", "onnxscript", "onnxruntime")
    return next((name for name in needed if importlib.util.find_spec(name) is None), None)


def _write_onnx(plain: _Plain, path: Path, notes: dict[str, str]) -> None:
    name, axes = ("tokens", ("batch", "length")) if isinstance(plain.model, TextModel) else ("images", ("batch",))
    program = torch.onnx.export(
        plain,
        (_examples(plain.model, 3, 7),),
        dynamo=True,
        verbose=False,
        input_names=[name],
        output_names=list(OUTPUTS),
        dynamic_shapes=(dict(enumerate(axes)),),
    )
    assert program is not None
    program.model.metadata_props.update(notes)
    program.save(path, external_data=False)


def _write_torch(plain: _Plain, path: Path, notes: dict[str, str]) -> None:
    axes = range(2 if isinstance(plain.model, TextModel) else 1)
    shapes = (dict.fromkeys(axes, Dim.DYNAMIC),)
    program = torch.export.export(plain, (_examples(plain.model, 3, 7),), dynamic_shapes=shapes)
    torch.export.save(program, path, extra_files={"notes.json": json.dumps(notes, indent=2)})


def _examples(model: Model, count: int, words: int) -> Tensor:
    """Random inputs for a model; for texts, the first is shorter than the others."""
    generator = torch.Generator().manual_seed(count)
    if not isinstance(model, TextModel):
        return torch.rand(count, *model.image_shape, generator=generator)
    tokens = torch.randint(1, model.vocabulary, (count, words), generator=generator)
    tokens[tokens == model.padding_token] = 0 if model.padding_token else 1  # a word
    tokens[0, (words + 1) // 2 :] = model.padding_token
    return tokens


def _largest_difference(plain: _Plain, other: Callable[[Tensor], Answers]) -> float:
    found = []
    for count, words in ((1, 1), (5, 23)):
        inputs = _examples(plain.model, count, words)
        found.append((plain(inputs)[0] - other(inputs)[0]).abs().max())
    return float(torch.stack(found).max())


def _notes(run: Run) -> dict[str, str]:
    metadata = run.metadata
    notes = {"model": run.model_name, "classes": json.dumps(metadata.classes)}
    if metadata.image_shape is not None:
        shape, named = json.dumps(metadata.image_shape), str(metadata.labels_per_image)
        return notes | {"image_shape": shape, "named": named, "resize": RESIZE, "fit": run.config.fit}
    return notes | {
        "vocabulary": run.words().to_json(),  # as the package tokenizers reads it
        "max_length": str(run.config.max_length),
        "named": "above 0.5" if metadata.many else "1",
    }


def _refuse(model: Model, kind: str) -> None:
    """Raise an `InputError` for networks that are known not to work, before they are exported."""
    missing = missing_package()
    if kind == "onnx" and missing is not None:
        remedy = "Run: pip install 'torchcaps[export]'."
        raise input_error("export", f"the package {missing}", "it not installed", remedy)
    if isinstance(model, BiLSTM):
        raise _refusal(model, kind, "its recurrent layer reads every text from its own end")
    for part in model.modules():
        if kind == "onnx" and isinstance(part, Gaussian) and part.covariance == "full":
            raise _refusal(model, kind, "ONNX has no Cholesky decomposition for full covariances")
        if kind == "onnx" and isinstance(part, Variational):
            raise _refusal(model, kind, "ONNX has no digamma function for variational routing")


def _refusal(model: Model, kind: str, reason: str) -> Exception:
    remedy = "Use it from Python." if kind == "torch" else "Try --torch, or use it from Python."
    return input_error(
        "export", f"a network that can be exported to {kind}", f"{type(model).__name__}: {reason}", remedy
    )


def _first_line(error: BaseException) -> str:
    """The first line of the original error."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


@contextmanager
def _quiet() -> Iterator[None]:
    """Ignore torch's warnings about missing packages and deprecations; the verification of the file is sufficient."""
    logger: Any = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
