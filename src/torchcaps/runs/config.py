"""The options of a training run. The dataclass defines the command line: fields are options, their texts the help.

`recipes.resolve` fills in options that are left out, for the model and the number of training examples.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from torchcaps._core.errors import input_error
from torchcaps._core.extensions import names_of
from torchcaps._core.fields import as_json, read_fields
from torchcaps._core.files import atomic_write
from torchcaps.runs.annotations import Positional, Suppress, UseAppendAction, arg

Value = TypeVar("Value")
# How help shows optional values.
Count = Annotated[int | None, arg(metavar="N", help_behavior_hint="")]
Number = Annotated[float | None, arg(metavar="X", help_behavior_hint="")]
Name = Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")]
Model = Annotated[str | None, arg(metavar="NAME", help_behavior_hint=lambda _: _models())]
RoutingName = Annotated[str | None, arg(metavar="NAME", help_behavior_hint=lambda _: _names("routing", "ROUTINGS"))]
LossName = Annotated[str | None, arg(metavar="NAME", help_behavior_hint=lambda _: _names("losses", "LOSSES"))]
Augment = Annotated[
    str | None, arg(metavar="NAME", help_behavior_hint=lambda _: _names("data.augment", "AUGMENTATIONS"))
]
Folder = Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")]
Schedule = Literal["one-cycle", "exponential", "slow-exponential", "constant"]
Viewpoint = Literal["azimuth", "elevation"]


def _names(module: str, table: str) -> str:
    return f"(one of {', '.join(names_of(module, table))})"


def _models() -> str:
    if "torchcaps.models" in sys.modules:
        models_for = sys.modules["torchcaps.models"].models_for
        return f"(for images {', '.join(models_for('images'))}; for texts {', '.join(models_for('texts'))})"
    images, texts = names_of("models", "IMAGE_MODELS"), names_of("models", "TEXT_MODELS")
    return f"(for images {', '.join(images)}; for texts {', '.join(texts)})"


@dataclass(frozen=True)
class TrainConfig:
    """The options of a training run; the text below each field is its help."""

    data: Annotated[Positional[str], arg(metavar="DATA")] = "mnist-5k"
    """A name (torchcaps list datasets), a folder with a subfolder of pictures for each class, an .npz or idx files, or
    a table of texts (.csv, .tsv, .jsonl)."""
    out: Folder = None
    """The run folder to make; left out, a new one under runs/."""

    model: Model = None
    """The network; left out, efficient or text."""
    routing: RoutingName = None
    """How children find their parents; left out, the model's own."""
    iterations: Count = None
    """Routing iterations."""
    option: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = ()
    """A further option of the model or its routing as NAME=VALUE, say capsules=32 or leaky=true; may be repeated."""

    preset: Literal["default", "paper", "best", "code"] = "default"
    """Where an option is left out: a quick good recipe, the choices of the model's paper, a longer recipe, or (text-a,
    text-b) those of the code that the paper's authors released."""
    epochs: Count = None
    """Times through the training examples."""
    batch_size: Count = None
    """Images or texts in each batch, of all processes together."""
    accumulate: int = 1
    """Batches to add up for each step: as if they were one, in the memory of one."""
    lr: Number = None
    """The highest learning rate."""
    schedule: Annotated[Schedule | None, arg(metavar="NAME", help_behavior_hint="")] = None
    """How the learning rate moves: one-cycle (up, then down to zero), exponential (0.96 in 2,000 steps),
    slow-exponential (0.96 in 20,000 steps), constant."""
    weight_decay: Number = None
    """Decoupled weight decay (AdamW)."""
    loss: LossName = None
    """What is minimized; left out, the one that suits the routing."""
    down_weight: Number = None
    """Weight of the classes that are not there in the margin loss; left out, 0.5."""
    reconstruction: Number = None
    """Weight of the squared error of the reconstruction, summed over pixels; 0 for no decoder."""
    augment: Augment = None
    """How training images are varied; left out, what suits the data."""

    size: Count = None
    """Resize images to this many pixels a side."""
    color: Annotated[bool | None, arg(metavar="True|False", help_behavior_hint="")] = None
    """Pictures of a folder in color or in gray; left out, as they are."""
    viewpoint: Annotated[Viewpoint | None, arg(metavar="NAME", help_behavior_hint="")] = None
    """azimuth or elevation: train on some of them only; evaluate then tells familiar and novel viewpoints apart."""

    text: Name = None
    """The column of a table that holds texts; left out, text."""
    label: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME", help_behavior_hint="")] = ()
    """The column of labels; left out, label. Repeated: columns with 0 or 1 for a class each."""
    separator: Name = None
    """What stands between labels where a cell may hold any number of them."""
    encoding: Annotated[str, arg(metavar="NAME")] = "utf-8"
    """The encoding of a table."""
    vectors: Name = None
    """Word vectors to begin with: glove-6b-50d (needs torchcaps[vectors]) or a file in GloVe's text format; left out,
    random ones."""
    tune: bool = True
    """Learn word vectors too; --no-tune keeps them as given."""
    max_length: Count = None
    """Words of a text that are read; left out, 200."""

    validation: float = 0.1
    """The share of your own data held out to choose the best epoch."""
    test: float = 0.2
    """The share of your own data held out for the test."""
    folds: Count = None
    """Train so many times, each time with another part for the test (cross-validation); for data in one piece."""
    fold: Count = None
    """Of these, only the one with this number, from 1 on."""
    limit: Count = None
    """Train on so many examples only, stratified, and choose the best epoch on at most as many."""
    data_dir: Folder = None
    """Where data sets by name are kept; left out, TORCHCAPS_DATA or a cache folder in your home."""

    seed: int = 0
    """Makes the run repeatable: start, order, augmentation, split of your own data."""
    patience: Count = None
    """Stop when the validation accuracy has not risen for so many epochs."""
    stop_at: Number = None
    """Stop when the validation accuracy has reached this, from 0 to 1: to compare networks that do equally well."""
    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """auto, cpu, cuda or mps."""
    devices: Count = None
    """Processes on this machine, one for each GPU: they share every batch. Left out, 1; under torchrun, as it says."""
    nodes: Count = None
    """Machines that train together; each is given the same command (docs/scale.md). Left out, 1."""
    strategy: Literal["auto", "ddp"] = "auto"
    """How processes share the work: ddp (each holds the whole network), which auto takes if there are several."""
    precision: Literal["float32", "float16", "bfloat16"] = "float32"
    """Mixed precision for devices that gain from it."""
    compile: bool = False
    """Compile the network with torch.compile: for GPUs; on a CPU it costs more than it saves."""
    tensorboard: bool = False
    """Write TensorBoard logs too (needs the package tensorboard)."""
    imports: Suppress[tuple[str, ...]] = ()
    """Files of Python that `--import` named; no command imports them by itself."""

    def model_options(self, *, given: bool = False) -> dict[str, Any]:
        """The options of `create_model` other than sizes. given: only those that were given with --option."""
        options: dict[str, Any] = dict(parse_option(text) for text in self.option)
        if given:
            return options
        if self.routing is not None:
            options["routing"] = self.routing
        if self.iterations is not None:
            options["iterations"] = self.iterations
        from torchcaps.models import model_options  # imports torch, which help does without

        ours = {"tune": self.tune, "decoder": bool(self.reconstruction)}
        known = model_options(self.model or "efficient")
        options |= {word: value for word, value in ours.items() if word in known}
        return options


@dataclass(frozen=True)
class Train(TrainConfig):
    """Train a network on labeled images or texts and keep it in a run folder: weights, metrics, split, options."""

    config: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Take the options from this JSON file (the config.json of a run); those given beside it win."""
    resume: Annotated[Path | None, arg(metavar="RUN", help_behavior_hint="")] = None
    """Go on with this run, interrupted before, as if it had not been. No other option is taken but --devices,
    --nodes and --data-dir; left out, as it began."""


def required(value: Value | None) -> Value:
    """The value of an option that `resolve` has filled in."""
    assert value is not None, "resolve(config, examples) comes first"
    return value


def parse_option(text: str) -> tuple[str, Any]:
    """Parse NAME=VALUE; the value is a number, true or false, a list, or otherwise a string."""
    name, equals, value = text.partition("=")
    if not (equals and name):
        raise input_error("--option", "NAME=VALUE", repr(text), "Write it like --option leaky=true.")
    try:
        parsed = json.loads(value.lower() if value.lower() in ("true", "false") else value)
    except (ValueError, RecursionError):
        parsed = value
    return name, tuple(parsed) if isinstance(parsed, list) else parsed


def save_config(config: TrainConfig, path: Path) -> None:
    """Write a config to a JSON file."""
    atomic_write(path, as_json(dataclasses.asdict(config)) + "\n")


def load_config(path: Path) -> TrainConfig:
    """Load a config that was written by `save_config` or by hand: a JSON object with some of the options."""
    return read_fields(TrainConfig, path, "options")


def command_of(config: TrainConfig) -> str:
    """The training as a command line, with all options that differ from their defaults."""
    words = ["torchcaps", "train", config.data]
    usual = dataclasses.asdict(TrainConfig())
    for name, value in dataclasses.asdict(config).items():
        if name == "data" or value == usual[name]:
            continue
        flag = "--import" if name == "imports" else "--" + name.replace("_", "-")
        if isinstance(value, bool) and usual[name] is not None:
            words.append(flag if value else f"--no-{flag[2:]}")
            continue
        for one in value if isinstance(value, tuple | list) else (value,):
            words += [flag, str(one)]
    return shlex.join(words)
