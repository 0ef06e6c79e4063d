"""The options of a training run. The dataclass defines the command line: fields are options, docstrings the help.

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
Schedule = Literal["one-cycle", "exponential", "slow-exponential", "epoch-exponential", "constant"]
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
    """The options of a training run; the docstring of each field is its help."""

    data: Annotated[Positional[str], arg(metavar="DATA")] = "mnist-5k"
    """A name (torchcaps list datasets), a folder with a subfolder of pictures for each class, an .npz or idx files, or
    a table of texts (.csv, .tsv, .json, .jsonl, .parquet)."""
    out: Folder = None
    """The run folder to create; default: a new one under runs/."""

    model: Model = None
    """The network; default: efficient or text."""
    routing: RoutingName = None
    """The routing algorithm; default: that of the model."""
    iterations: Count = None
    """Routing iterations."""
    encoder: Name = None
    """A pretrained network whose features capsules read (model efficient, or any for texts): a folder with config.json
    and model.safetensors (for texts also tokenizer.json) or an installed package with one; for images also timm:NAME, a
    file of torch.export (.pt2), or MODULE:FUNCTION."""
    encoder_lr: Number = None
    """The highest learning rate of the encoder; default: it is frozen, and its features are computed once."""
    option: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = ()
    """A further option of the model or its routing as NAME=VALUE, such as capsules=32 or leaky=true; may be
    repeated."""

    preset: Literal["default", "paper", "best", "code"] = "default"
    """Source of defaults: a quick recipe, the values of the model's paper, a longer recipe, or (text-a, text-b) those
    of the code released by the paper's authors; also capsnet."""
    epochs: Count = None
    """Passes through the training examples."""
    batch_size: Count = None
    """Examples in each batch, of all processes together."""
    accumulate: int = 1
    """Batches to accumulate for each step: equivalent to one large batch, with the memory of one small batch."""
    lr: Number = None
    """The highest learning rate."""
    schedule: Annotated[Schedule | None, arg(metavar="NAME", help_behavior_hint="")] = None
    """Schedule of the learning rate: one-cycle (up, then down to zero), exponential (0.96 in 2,000 steps),
    slow-exponential (0.96 in 20,000 steps), epoch-exponential (0.97 after every epoch, down to a tenth), constant."""
    weight_decay: Number = None
    """Decoupled weight decay (AdamW)."""
    loss: LossName = None
    """The loss; default: that of the routing's activations."""
    down_weight: Number = None
    """Weight of absent classes in the margin loss; default: 0.5."""
    balance: bool = False
    """Weigh training examples such that every class counts the same, however few examples it has."""
    reconstruction: Number = None
    """Weight of the squared reconstruction error, summed over pixels; 0 for no decoder."""
    augment: Augment = None
    """Augmentation of training images; default: depends on the data."""

    size: Annotated[int | str | None, arg(metavar="N|HxW", help_behavior_hint="")] = None
    """Resize images to squares of N pixels a side, or to height x width, such as 48x64."""
    fit: Literal["stretch", "pad", "crop"] = "stretch"
    """How pictures of other proportions are resized: stretch changes proportions, pad adds gray bars, crop cuts off
    what is too long."""
    color: Annotated[bool | None, arg(metavar="True|False", help_behavior_hint="")] = None
    """Load the pictures of a folder in color or in gray; default: as they are."""
    deduplicate: bool = False
    """Leave out pictures of your own data that are copies of another one, or nearly."""
    viewpoint: Annotated[Viewpoint | None, arg(metavar="NAME", help_behavior_hint="")] = None
    """azimuth or elevation: train on some viewpoints only; evaluate then reports familiar and novel viewpoints."""

    text: Name = None
    """Column of a table with texts: its name, or its number if the table has no header; default: text."""
    label: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME", help_behavior_hint="")] = ()
    """Column of labels; default: label. Repeated: one column with 0 or 1 for each class."""
    separator: Name = None
    """Separator between the labels of a cell, if it may hold any number of them."""
    encoding: Name = None
    """Encoding of a table; default: told from its bytes."""
    delimiter: Name = None
    """Character between the cells of a table, such as ";" or tab; default: found in its first lines."""
    tokens: Annotated[Literal["word", "character", "subword"] | None, arg(metavar="NAME", help_behavior_hint="")] = None
    """How texts are cut: word (of Chinese, Japanese, Thai and other scripts without spaces, every character),
    character, or subword (parts of words, learned from the training texts); default: word."""
    vectors: Name = None
    """Pretrained word vectors: glove-6b-50d (needs torchcaps[vectors]) or a file in GloVe's text format; default:
    random initialization."""
    tune: bool = True
    """Train word vectors; --no-tune keeps them fixed."""
    max_length: Count = None
    """Number of words of a text that are read; default: 200."""

    validation: float = 0.1
    """Fraction of your own data for validation, to choose the best epoch."""
    test: float = 0.2
    """Fraction of your own data for the test."""
    folds: Count = None
    """Number of folds of cross-validation; for data without a test part."""
    fold: Count = None
    """Train only the fold of this number, from 1."""
    limit: Count = None
    """Train on a stratified subset of so many examples, and validate on at most as many."""
    data_dir: Folder = None
    """Folder of data sets by name; default: TORCHCAPS_DATA or a cache folder in the home directory."""

    seed: int = 0
    """Random seed: initialization, order, augmentation, split of your own data."""
    patience: Count = None
    """Stop after so many epochs without a higher validation accuracy."""
    stop_at: Number = None
    """Stop at this validation accuracy, from 0 to 1: to compare networks of equal accuracy."""
    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """Device: auto, cpu, cuda or mps."""
    devices: Count = None
    """Processes on this machine, one for each GPU, which divide every batch. Default: 1, or as torchrun says."""
    nodes: Count = None
    """Machines that train together, each with the same command (docs/scale.md). Default: 1."""
    strategy: Literal["auto", "ddp"] = "auto"
    """ddp (each process holds the whole network), which auto uses for several processes."""
    precision: Literal["float32", "float16", "bfloat16"] = "float32"
    """Mixed precision, for devices that benefit from it."""
    workers: Count = None
    """Processes that load batches while others are trained on; default: 2 on a GPU if examples are loaded from disk,
    otherwise 0."""
    compile: bool = False
    """Use torch.compile: for GPUs; on a CPU compilation takes longer than it saves."""
    tensorboard: bool = False
    """Also write TensorBoard logs (needs the package tensorboard)."""
    imports: Suppress[tuple[str, ...]] = ()
    """Python files given with `--import`; no command imports them by itself."""

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
