"""What a training run needs to know. The dataclass is the command line: fields are options, their texts the help.

An option left out is filled in by `complete`, from the recipe of its model and the number of training images.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from tyro.conf import Positional, UseAppendAction, arg

from torchcaps.errors import check_choice, check_count, check_positive, check_range, complaint
from torchcaps.fields import read_fields

Value = TypeVar("Value")
PLAIN = ("cnn", "cnn-small")  # no capsules: nothing to route, nothing to draw from
# What help shows for options that may be left out.
Count = Annotated[int | None, arg(metavar="N", help_behavior_hint="")]
Number = Annotated[float | None, arg(metavar="X", help_behavior_hint="")]
Name = Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")]
Folder = Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")]
Schedule = Literal["one-cycle", "exponential", "constant"]
Loss = Literal["margin", "spread", "nll", "cross-entropy"]
Viewpoint = Literal["azimuth", "elevation"]


@dataclass(frozen=True)
class TrainConfig:
    data: Annotated[Positional[str], arg(metavar="DATA")] = "mnist-5k"
    """A name (torchcaps list datasets), a folder with a subfolder of pictures for each class, an .npz, or idx files."""
    out: Folder = None
    """The run folder to make; left out, a new one under runs/."""

    model: Annotated[str, arg(metavar="NAME")] = "efficient"
    """efficient, capsnet, matrix, matrix-small, cnn or cnn-small (torchcaps list models)."""
    routing: Name = None
    """attention, dynamic, em, entropy, gaussian, kmeans or uniform; left out, the model's own."""
    iterations: Count = None
    """Routing iterations."""
    option: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = ()
    """A further option of the model or its routing as NAME=VALUE, say capsules=32 or leaky=true; may be repeated."""

    preset: Literal["default", "paper", "best"] = "default"
    """Where an option is left out: a quick good recipe, the choices of the model's paper, or a longer recipe."""
    epochs: Count = None
    """Times through the training images."""
    batch_size: Count = None
    """Images in each step."""
    lr: Number = None
    """The highest learning rate."""
    schedule: Annotated[Schedule | None, arg(metavar="NAME", help_behavior_hint="")] = None
    """How the learning rate moves: one-cycle (up, then down to zero), exponential (0.96 in 2,000 steps), constant."""
    weight_decay: Number = None
    """Decoupled weight decay (AdamW)."""
    loss: Annotated[Loss | None, arg(metavar="NAME", help_behavior_hint="")] = None
    """margin, spread, nll or cross-entropy; left out, the one that suits the routing."""
    reconstruction: Number = None
    """Weight of the squared error of the reconstruction, summed over pixels; 0 for no decoder."""
    augment: Name = None
    """none, shift, affine, photo or norb: how training images are varied; left out, what suits the data."""

    size: Count = None
    """Resize images to this many pixels a side."""
    colour: Annotated[bool | None, arg(metavar="True|False", help_behavior_hint="")] = None
    """Pictures of a folder in colour or in grey; left out, as they are."""
    viewpoint: Annotated[Viewpoint | None, arg(metavar="NAME", help_behavior_hint="")] = None
    """azimuth or elevation: train on some of them only; evaluate then tells familiar and novel viewpoints apart."""
    validation: float = 0.1
    """The share of your own images held out to choose the best epoch."""
    test: float = 0.2
    """The share of your own images held out for the test."""
    limit: Count = None
    """Train on so many images only, stratified."""
    data_dir: Folder = None
    """Where data sets by name are kept; left out, TORCHCAPS_DATA or a cache folder in your home."""

    seed: int = 0
    """Makes the run repeatable: start, order, augmentation, split of your own images."""
    patience: Count = None
    """Stop when the validation accuracy has not risen for so many epochs."""
    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """auto, cpu, cuda or mps."""
    precision: Literal["float32", "float16", "bfloat16"] = "float32"
    """Mixed precision for devices that gain from it."""
    compile: bool = False
    """Compile the network with torch.compile: for GPUs; on a CPU it costs more than it saves."""
    tensorboard: bool = False
    """Write TensorBoard logs too (needs the package tensorboard)."""

    def model_options(self, *, given: bool = False) -> dict[str, Any]:
        """What `create_model` gets beside the sizes; or of these only what was given with --option."""
        options: dict[str, Any] = dict(_parse_option(text) for text in self.option)
        if given:
            return options
        if self.routing is not None:
            options["routing"] = self.routing
        if self.iterations is not None:
            options["iterations"] = self.iterations
        if self.model not in PLAIN:
            options["decoder"] = bool(self.reconstruction)
        return options


@dataclass(frozen=True)
class Train(TrainConfig):
    """Train a network on labelled images and keep it in a run folder: weights, metrics, split, options."""

    config: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Take the options from this JSON file (the config.json of a run); those given beside it win."""
    resume: Annotated[Path | None, arg(metavar="RUN", help_behavior_hint="")] = None
    """Go on with this run, interrupted before, as if it had not been. No other option is taken."""


@dataclass(frozen=True)
class Evaluate:
    """Test a run: accuracy, error with its 95 % interval, a table of classes; pictures go into the run folder."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder."""
    data: Annotated[str | None, arg(metavar="DATA", help_behavior_hint="")] = None
    """Other data than the run's own: a name, a folder or a file. All of a folder or file is used."""
    part: Literal["test", "validation", "train"] = "test"
    """The part of the data."""
    data_dir: Folder = None
    """Where data sets by name are kept."""
    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """auto, cpu, cuda or mps."""
    json: bool = False
    """Print JSON instead of tables."""
    pictures: bool = True
    """Draw the confusion matrix, mistakes and reconstructions."""


@dataclass(frozen=True)
class Predict:
    """Classify picture files with a trained run."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder."""
    files: Annotated[Positional[tuple[Path, ...]], arg(metavar="FILE...")]
    """Picture files, and folders of them."""
    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """auto, cpu, cuda or mps."""
    json: bool = False
    """Print JSON instead of a table."""


@dataclass(frozen=True)
class List:
    """What there is: models, routings, datasets or runs."""

    what: Annotated[Positional[Literal["models", "routings", "datasets", "runs"]], arg(metavar="WHAT")]
    """models, routings, datasets or runs."""
    folder: Path = Path("runs")
    """Where to look for runs."""


@dataclass(frozen=True)
class Bench:
    """Time layers and models against textbook versions of themselves that give the same numbers, in turns."""

    cases: Annotated[Positional[tuple[str, ...]], arg(metavar="CASE...")] = ()
    """dense, dense-last, em-window, em-grid, capsnet, matrix; left out, all of them."""
    repeats: int = 5
    """Timed runs of each; medians are shown, with the shortest and longest."""
    threads: Count = None
    """Threads to use; left out, as torch has it."""
    memory: bool = True
    """Measure peak memory too, in processes of their own."""
    json: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Write the figures here too."""
    growth: Annotated[Path | None, arg(metavar="PICTURE", help_behavior_hint="")] = None
    """Instead: draw how the cost grows with batch, children, parents, pose size and iterations."""


def filled(value: Value | None) -> Value:
    """An option that `complete` has filled in."""
    assert value is not None, "complete(config, images) comes first"
    return value


def _parse_option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (equals and name):
        raise complaint("--option", "NAME=VALUE", repr(text), "Write it like --option leaky=true.")
    try:
        parsed = json.loads(value)
    except json.JSONDecodeError:
        parsed = value
    return name, tuple(parsed) if isinstance(parsed, list) else parsed


# What an option is when it is left out. "images" is how many a run shows at least, so that small sets get more epochs.
_COMMON = {
    "images": 70_000,
    "epochs": 10,
    "batch_size": 64,
    "lr": 3e-3,
    "schedule": "one-cycle",
    "weight_decay": 0.01,
    "reconstruction": 0.0005,
}
_SABOUR = {**_COMMON, "images": 0, "batch_size": 128, "lr": 1e-3, "schedule": "exponential", "weight_decay": 0.0}
_MATRIX = {**_COMMON, "images": 30_000, "batch_size": 32, "lr": 5e-3, "weight_decay": 1e-4, "reconstruction": 0.0}
# Beside the calibrated start of `models/calibrate.py`: what makes EM routing learn in minutes rather than days.
_EM_OPTIONS = ("standardise=true", "batch_norm=true", "sharpness=0.0625", "variance_floor=0.1")
RECIPES: dict[str, dict[str, dict[str, Any]]] = {
    "efficient": {
        "default": _COMMON,
        "best": {**_COMMON, "epochs": 30, "images": 200_000},
        "paper": {**_SABOUR, "epochs": 150, "batch_size": 16, "lr": 5e-4},
    },
    "capsnet": {
        "default": {**_COMMON, "batch_size": 128, "lr": 2e-3},
        "best": {**_COMMON, "batch_size": 128, "lr": 2e-3, "epochs": 50},
        "paper": {**_SABOUR, "epochs": 50, "augment": "shift"},
    },
    "matrix": {
        "default": _MATRIX,
        "best": {**_MATRIX, "epochs": 50},
        "paper": {**_SABOUR, "batch_size": 64, "lr": 3e-3, "weight_decay": 2e-7, "epochs": 300, "reconstruction": 0.0},
    },
    "cnn": {
        "default": {**_COMMON, "lr": 1e-3},
        "best": {**_COMMON, "lr": 1e-3, "epochs": 30},
        "paper": {**_SABOUR, "epochs": 50, "augment": "shift"},
    },
}
RECIPES |= {"matrix-small": RECIPES["matrix"], "cnn-small": {**RECIPES["efficient"], "paper": RECIPES["cnn"]["paper"]}}
_AUGMENT = {"toys": "norb", "toys-full": "norb", "smallnorb": "norb", "eth-80": "photo"}


def complete(config: TrainConfig, images: int, *, several: bool = False) -> TrainConfig:
    """The config with every option filled in, for so many training images; several: each shows more than one thing."""
    check_given(config)
    if several and (config.augment not in (None, "none") or config.loss not in (None, "margin")):
        got = f"augment {config.augment} and loss {config.loss}"
        expected = "no augmentation and the margin loss for images of several things"
        raise complaint("train", expected, got, "Leave --augment and --loss out.")
    recipe = dict(RECIPES[config.model][config.preset])
    shown = recipe.pop("images")
    recipe["epochs"] = max(recipe["epochs"], math.ceil(shown / max(1, images)))
    recipe.setdefault("augment", _AUGMENT.get(config.data, "affine"))
    if several:
        recipe["augment"] = "none"
    if config.model in PLAIN:
        recipe["reconstruction"] = 0.0
    if config.model.startswith("matrix") and config.routing in (None, "em") and config.preset != "paper":
        own = {text.partition("=")[0] for text in config.option}
        more = tuple(text for text in _EM_OPTIONS if text.partition("=")[0] not in own)
        loss = config.loss if several else config.loss or "cross-entropy"
        config = dataclasses.replace(config, option=config.option + more, loss=loss)
    missing = {name: value for name, value in recipe.items() if getattr(config, name) is None}
    return dataclasses.replace(config, **missing)


def check_given(config: TrainConfig) -> None:
    """Refuse what cannot be right, before any work is done."""
    check_choice("train", "model", config.model, list(RECIPES))
    check_choice("train", "preset", config.preset, list(RECIPES[config.model]))
    for name in ("epochs", "batch_size", "iterations", "size", "limit", "patience"):
        if getattr(config, name) is not None:
            check_count("train", name, getattr(config, name))
    if config.size is not None:
        check_range("train", "size", config.size, 4, 1024)
    if config.lr is not None:
        check_positive("train", "lr", config.lr)
    for name in ("weight_decay", "reconstruction"):
        if getattr(config, name) is not None:
            check_range("train", name, getattr(config, name), 0)
    for name in ("validation", "test"):
        check_range("train", name, getattr(config, name), 0, 0.9)
    check_count("train", "seed", config.seed, 0)
    check_range("train", "seed", config.seed, 0, 2**31)
    for name in config.model_options(given=True):
        if name in ("routing", "iterations", "decoder", "encoder"):
            remedy = "For the decoder there is --reconstruction, an encoder needs Python."
            raise complaint("--option", "no option that has a flag of its own", name, remedy)
    if config.model in PLAIN and config.reconstruction:
        raise complaint("--reconstruction", "a capsule model", config.model, "Drop it: there is nothing to draw from.")


def save_config(config: TrainConfig, path: Path) -> None:
    path.write_text(json.dumps(dataclasses.asdict(config), indent=2, default=str) + "\n")


def load_config(path: Path) -> TrainConfig:
    """A config written by `save_config`, or by hand: a JSON object with some of the options."""
    return read_fields(TrainConfig, path, "options")
