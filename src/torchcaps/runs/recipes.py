"""What an option of training is when it is left out, and what cannot be right."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from torchcaps._core.errors import check_choice, check_count, check_positive, check_range, input_error
from torchcaps.losses import LOSSES
from torchcaps.runs.config import PLAIN, TEXT, TrainConfig, required

# "images" is how many examples a run shows at least, so that small sets get more epochs.
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
_MATRIX = {**_COMMON, "images": 135_000, "batch_size": 32, "lr": 1e-2, "weight_decay": 1e-4, "reconstruction": 0.0}
_HINTON = {
    **_SABOUR,
    "batch_size": 64,
    "lr": 3e-3,
    "schedule": "slow-exponential",
    "weight_decay": 2e-7,
    "epochs": 300,
    "reconstruction": 0.0,
}
# Beside the calibrated start of `models/calibrate.py`: what makes EM routing learn in minutes rather than days.
_EM_OPTIONS = ("sharpness=0.0625", "variance_floor=0.1")
_EM_MATRIX = ("standardize=true", "batch_norm=true", "normalize_poses=true", *_EM_OPTIONS)
_ROUTING_OPTIONS: dict[str | None, tuple[str, ...]] = {"em": _EM_OPTIONS, "heinsen": ("variance_floor=0.1",)}
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
    },
    "cnn": {
        "default": {**_COMMON, "lr": 1e-3},
        "best": {**_COMMON, "lr": 1e-3, "epochs": 30},
        "paper": {**_SABOUR, "epochs": 50, "augment": "shift"},
    },
}
RECIPES["matrix"]["paper"] = {**_HINTON, "option": ("standardize=true",)}
RECIPES["cnn-norb"] = {**RECIPES["cnn"], "paper": {**RECIPES["matrix"]["paper"], "weight_decay": 0.0}}
_TEXT = {
    **_COMMON,
    "images": 60_000,
    "epochs": 8,
    "batch_size": 50,
    "lr": 4e-3,
    "reconstruction": 0.0,
    "max_length": 200,
}
# The last iteration's gradients teach as well as those of all, in two thirds of the time.
_TEXT_OPTIONS = ("padding=true", "dropout=0.5", "word_dropout=0.1")
_TEXT_CAPSULES = {**_TEXT, "epochs": 6, "lr": 6e-3, "option": (*_TEXT_OPTIONS, "gradients=last")}
_ZHAO = {**_TEXT, "images": 0, "epochs": 20, "batch_size": 25, "lr": 1e-3, "schedule": "constant", "weight_decay": 0.0}
_PAPER_OPTIONS = ("dropout=0",)
_CODE_OPTIONS = (
    "dropout=0", "capsules=16", "stride=2", "squash=half", "vote_bias=false", "leaky=false", "amendment=false",
)  # fmt: skip
RECIPES |= {name: {"default": _TEXT, "best": {**_TEXT, "epochs": 16}, "paper": _ZHAO} for name in TEXT}
for name in ("text", "text-a", "text-b"):
    RECIPES[name]["default"] = _TEXT_CAPSULES
    RECIPES[name]["best"] = {**_TEXT_CAPSULES, "epochs": 12, "option": _TEXT_OPTIONS}
for name in ("text-a", "text-b"):
    RECIPES[name]["paper"] = {**_ZHAO, "option": _PAPER_OPTIONS}
    RECIPES[name]["code"] = {**_ZHAO, "option": _CODE_OPTIONS, "down_weight": 0.25}
RECIPES |= {
    "matrix-small": RECIPES["matrix"],
    "deep": {preset: RECIPES["matrix"][preset] for preset in ("default", "best")},
    "cnn-small": {**RECIPES["efficient"], "paper": RECIPES["cnn"]["paper"]},
}
_AUGMENT = {**dict.fromkeys(("toys", "toys-full", "smallnorb"), "norb"), "eth-80": "photo"}
_AUGMENT |= dict.fromkeys(("cifar-10", "cifar-100"), "photo")
# smallNORB as Hinton et al. (2018) take it: images of 48 pixels, of which a network sees windows of 32.
NORB_SIZE, NORB_CROP = 48, 32


def with_size(config: TrainConfig) -> TrainConfig:
    """The config with the size of the paper's images, where that is asked for; to be called before data are read."""
    if config.size is None and _as_paper_takes_norb(config):
        return dataclasses.replace(config, size=NORB_SIZE)
    return config


def _as_paper_takes_norb(config: TrainConfig) -> bool:
    of_paper = config.preset == "paper" and config.model in ("matrix", "matrix-small", "cnn-norb")
    return of_paper and config.data == "smallnorb" and (config.size is None or config.size >= NORB_CROP)


def resolve(config: TrainConfig, examples: int, *, several: bool = False, texts: bool = False) -> TrainConfig:
    """The config with every option filled in, for so many training examples.

    several: each image shows more than one thing. texts: they are texts, no images.
    """
    if config.model is None:
        config = dataclasses.replace(config, model="text" if texts else "efficient")
    check_given(config)
    _check_kind(config, texts)
    if several and (config.augment not in (None, "none") or config.loss not in (None, "margin")):
        got = f"augment {config.augment} and loss {config.loss}"
        expected = "no augmentation and the margin loss where several classes may be true"
        raise input_error("train", expected, got, "Leave --augment and --loss out.")
    if texts and config.vectors is not None and "dim" in config.model_options(given=True):
        raise input_error(
            "--option dim", "no --vectors beside it", config.vectors, "Drop it: they have their own size."
        )
    recipe = dict(RECIPES[required(config.model)][config.preset])
    shown = recipe.pop("images")
    recipe["epochs"] = max(recipe["epochs"], math.ceil(shown / max(1, examples)))
    recipe.setdefault("augment", _AUGMENT.get(config.data, "affine"))
    if several or texts:
        recipe["augment"] = "none"
    if config.model in PLAIN:
        recipe["reconstruction"] = 0.0
    if _as_paper_takes_norb(config):
        recipe |= {"augment": "light", "option": (f"crop={NORB_CROP}", *recipe.get("option", ()))}
    matrix = required(config.model).startswith("matrix")
    routing = config.routing or ("em" if matrix or config.model == "deep" else None)
    if routing in _ROUTING_OPTIONS and config.preset != "paper" and not texts:
        recipe["option"] = _EM_MATRIX if matrix and routing == "em" else _ROUTING_OPTIONS[routing]
    costs = ("em", "variational") if config.model == "deep" else ("em",)  # whose activations are logistics of costs
    if (matrix or config.model == "deep") and routing in costs and config.preset != "paper" and not several:
        recipe["loss"] = "cross-entropy"
    own = {text.partition("=")[0] for text in config.option}
    if config.routing in ("attention", "uniform"):  # one pass: there is no last iteration
        own.add("gradients")
    more = tuple(text for text in recipe.pop("option", ()) if text.partition("=")[0] not in own)
    config = dataclasses.replace(config, option=config.option + more)
    missing = {name: value for name, value in recipe.items() if getattr(config, name) is None}
    return dataclasses.replace(config, **missing)


def _check_kind(config: TrainConfig, texts: bool) -> None:
    """Refuse options that do nothing for this kind of data."""
    kind, other = ("texts", "images") if texts else ("images", "texts")
    if (config.model in TEXT) != texts:
        fitting = [name for name in RECIPES if (name in TEXT) == texts]
        raise input_error("train", f"a model for {kind}", f"{config.model}, which is for {other}", _one_of(fitting))
    useless: tuple[str, ...] = ("size", "color", "viewpoint", "augment", "reconstruction")
    useless = useless if texts else ("text", "label", "separator", "vectors", "max_length", "encoding", "tune")
    plain = (None, (), "none", 0.0, "utf-8") if texts else (None, (), "utf-8", True)
    given = [name for name in useless if getattr(config, name) not in plain]
    if given:
        option = "--" + given[0].replace("_", "-")
        raise input_error(option, f"{other} as data", f"{kind} ({config.data})", f"Drop {option}.")


def _one_of(names: list[str]) -> str:
    return f"Choose one of {', '.join(names)} as --model."


def check_given(config: TrainConfig) -> None:
    """Refuse what cannot be right, before any work is done."""
    if config.model is not None:
        check_choice("train", "model", config.model, list(RECIPES))
        check_choice("train", "preset", config.preset, list(RECIPES[config.model]))
    if config.loss is not None:
        check_choice("train", "loss", config.loss, list(LOSSES))
    if config.fold is not None and (config.folds is None or not 1 <= config.fold <= config.folds):
        got = f"--fold {config.fold}" + (f" with --folds {config.folds}" if config.folds else "")
        raise input_error("--fold", "a number from 1 to that of --folds", got, "Give both.")
    if config.folds is not None:
        check_count("train", "folds", config.folds, 2)
    for name in (
        "epochs",
        "batch_size",
        "accumulate",
        "devices",
        "nodes",
        "iterations",
        "size",
        "limit",
        "patience",
        "max_length",
    ):
        if getattr(config, name) is not None:
            check_count("train", name, getattr(config, name))
    if config.size is not None:
        check_range("train", "size", config.size, 4, 1024)
    if config.lr is not None:
        check_positive("train", "lr", config.lr)
    for name in ("weight_decay", "down_weight", "reconstruction"):
        if getattr(config, name) is not None:
            check_range("train", name, getattr(config, name), 0)
    for name in ("validation", "test"):
        check_range("train", name, getattr(config, name), 0, 0.9)
    if config.stop_at is not None:
        check_range("train", "stop_at", config.stop_at, 0, 1)
    check_count("train", "seed", config.seed, 0)
    check_range("train", "seed", config.seed, 0, 2**31)
    for name in config.model_options(given=True):
        if name in ("routing", "iterations", "decoder", "encoder", "tune", "many"):
            remedy = "For the decoder there is --reconstruction, an encoder needs Python."
            raise input_error("--option", "no option that has a flag of its own", name, remedy)
    if config.model in PLAIN and config.reconstruction:
        raise input_error(
            "--reconstruction", "a capsule model", config.model, "Drop it: there is nothing to draw from."
        )
