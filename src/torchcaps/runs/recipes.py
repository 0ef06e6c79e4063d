"""Defaults and checks of the options of training."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from torchcaps._core.errors import check_choice, check_count, check_positive, check_range, input_error
from torchcaps._core.extensions import imported
from torchcaps.data import DATASETS
from torchcaps.data.kinds import PHOTOGRAPHS, picture_kind, tells_left_from_right
from torchcaps.data.pictures import parse_size
from torchcaps.losses import LOSSES, READOUTS, weighs_absent
from torchcaps.models import MODELS, model_options, models_for, readout_with
from torchcaps.models.recipes import Recipe, with_options
from torchcaps.routing import ROUTINGS
from torchcaps.runs.config import TrainConfig, required
from torchcaps.runs.encoders import check_reads, usual_size

PIXELS = 3 * 32 * 32  # numbers of an image, up to which the paper's weight of reconstructions is right
MANY_CLASSES = 20  # above which absent classes would be most of a margin loss
_AUGMENT = {**dict.fromkeys(("toys", "toys-full", "smallnorb"), "norb"), "eth-80": "photo"}
_AUGMENT |= dict.fromkeys(("cifar-10", "cifar-100"), "mirror")


def with_size(config: TrainConfig) -> TrainConfig:
    """The config with the image size of its encoder, or of its recipe for these data, before they are read."""
    if config.size is not None:
        return config
    size = _for_data(config).get("size") if config.encoder is None else usual_size(config.encoder)
    return dataclasses.replace(config, size=size)


def _for_data(config: TrainConfig) -> Recipe:
    """The options of the model's recipe that are specific to these data; empty for images of another size."""
    if config.model is None:
        return {}
    found = MODELS[config.model].data_recipes.get((config.preset, config.data), {})
    return found if config.size in (None, found.get("size")) else {}


def for_pixels(recipe: Recipe, numbers: int) -> Recipe:
    """The recipe for images of so many numbers.

    The error of a reconstruction is summed over them and would be most of the loss of a photograph. Its weight is the
    paper's up to 32 x 32 pixels in color, and falls with more.
    """
    weight = recipe.get("reconstruction") or 0.0
    return {**recipe, "reconstruction": weight * min(1.0, PIXELS / numbers)}


def data_facts(train: Any) -> dict[str, Any]:
    """What `resolve` has to know of a training part."""
    texts = train.kind == "texts"
    pictures = picture_kind(train)
    return {
        "examples": len(train),
        "texts": texts,
        "several": train.labels_per_image > 1 or (texts and train.many),
        "numbers": 1 if texts else math.prod(train.image_shape),
        "classes": len(train.classes),
        "pictures": pictures,
        "mirrored": pictures == PHOTOGRAPHS and not tells_left_from_right(train),
    }


def resolve(
    config: TrainConfig,
    examples: int,
    *,
    several: bool = False,
    texts: bool = False,
    numbers: int = 1,
    classes: int = 2,
    pictures: str | None = None,
    mirrored: bool = False,
) -> TrainConfig:
    """The config with every option filled in, for this number of training examples.

    several: an example may have more than one class. texts: the data are texts, not images. numbers: of an image.
    classes: how many. pictures: "photographs" or "drawings", as `picture_kind` tells them apart; None for neither.
    mirrored: training may mirror images.
    """
    if config.model is None:
        config = dataclasses.replace(config, model="text" if texts else "efficient")
    check_given(config)
    _check_kind(config, texts)
    if several and (config.augment not in (None, "none") or config.loss not in (None, "margin")):
        got = f"augment {config.augment} and loss {config.loss}"
        expected = "no augmentation and the margin loss where several classes may be true"
        raise input_error("train", expected, got, "Leave --augment and --loss out.")
    if texts:
        _check_words(config)
    model = MODELS[required(config.model)]
    routing = config.routing or (model.encoder_recipe.get("routing") if config.encoder is not None else None)
    recipe = model.recipe(config.preset, routing)
    recipe = for_pixels(recipe, numbers)
    recipe.setdefault("augment", _AUGMENT.get(config.data, "mirror" if mirrored else "affine"))
    if config.encoder is not None:
        still = {} if config.encoder_lr else {"augment": "none"}
        recipe = _added(recipe, model.encoder_recipe | still)
    elif config.preset in ("default", "best") and pictures is not None:
        recipe = _added(recipe, model.picture_recipes.get(pictures, {}))
    if several or texts:
        recipe["augment"] = "none"
    if several:
        recipe.pop("loss", None)
    if texts and config.encoder is None:
        recipe["tokens"] = "word"
    if config.preset in ("default", "best") and classes > MANY_CLASSES and not several and _independent(config):
        recipe = _added(recipe, model.many_classes_recipe)
    recipe = _added(recipe, _for_data(config))
    own = {text.partition("=")[0] for text in config.option}
    own |= set() if config.vectors is None and config.encoder is None else {"dim"}  # pretrained vectors have their own
    able = set(model_options(required(config.model), config.routing or recipe.get("routing")))
    usual = {text.partition("=")[0]: text for text in recipe.pop("option", ())}
    more = tuple(text for name, text in usual.items() if name in able - own)  # not those of another routing
    config = dataclasses.replace(config, option=config.option + more)
    readout = readout_with(required(config.model), config.model_options())
    if not absent_count(config.loss or recipe.get("loss"), readout, several):
        recipe.pop("down_weight", None)
        check_no_down_weight(config)
    return completed(config, recipe, examples)


def absent_count(loss: str | None, readout: str | None, several: bool) -> bool:
    """Whether this loss, or else that of the readout, has a weight of absent classes."""
    if several:
        return readout != "logit"
    name = loss or READOUTS.get(readout or "")
    return name is None or weighs_absent(name)


def check_no_down_weight(config: TrainConfig) -> None:
    """Raise an `InputError` if the weight of absent classes was given, for a loss that has none."""
    if config.down_weight is not None:
        expected = "the margin loss, which has a weight of absent classes"
        raise input_error("--down-weight", expected, "another one", "Drop --down-weight, or give --loss margin.")


def _independent(config: TrainConfig) -> bool:
    """Whether the activations of classes are independent, so that a loss must compare them."""
    return config.routing is None or ROUTINGS[config.routing].readout != "share"


def _added(recipe: Recipe, more: Recipe) -> Recipe:
    """The recipe with the values of another one; options of the model are added to its own, epochs are the larger."""
    more = dict(more)
    if "epochs" in more:
        more["epochs"] = max(recipe["epochs"], more["epochs"])
    return with_options(recipe, *more.pop("option", ())) | more


def completed(config: TrainConfig, recipe: Recipe, examples: int) -> TrainConfig:
    """The config with the options of a recipe where they were left out, for this number of training examples."""
    recipe = dict(recipe)
    shown = recipe.pop("images")
    recipe["epochs"] = max(recipe["epochs"], math.ceil(shown / max(1, examples)))
    missing = {name: value for name, value in recipe.items() if getattr(config, name) is None}
    return dataclasses.replace(config, **missing)


def _check_kind(config: TrainConfig, texts: bool) -> None:
    """Raise an `InputError` for options without effect on this kind of data."""
    kind, other = ("texts", "images") if texts else ("images", "texts")
    if MODELS[required(config.model)].reads != kind:
        got = f"{config.model}, which is for {other}"
        raise input_error("train", f"a model for {kind}", got, _one_of(models_for(kind)))
    if config.encoder is not None:
        check_reads(config.encoder, kind)
    useless: tuple[str, ...] = ("size", "color", "viewpoint", "augment", "reconstruction")
    useless = (
        useless
        if texts
        else ("text", "label", "separator", "vectors", "max_length", "encoding", "delimiter", "tokens", "tune")
    )
    plain = (None, (), "none", 0.0) if texts else (None, (), True)
    given = [name for name in useless if getattr(config, name) not in plain]
    if given:
        option = "--" + given[0].replace("_", "-")
        raise input_error(option, f"{other} as data", f"{kind} ({config.data})", f"Drop {option}.")


def _check_words(config: TrainConfig) -> None:
    """Raise an `InputError` for options of word vectors that contradict each other or an encoder."""
    pretrained = "--vectors" if config.encoder is None else "--encoder"
    value = config.vectors if config.encoder is None else config.encoder
    if value is not None and "dim" in config.model_options(given=True):
        remedy = "Drop it: they have their own size."
        raise input_error("--option dim", f"no {pretrained} beside it", value, remedy)
    if config.encoder is None:
        return
    if config.vectors is not None:
        remedy = "Drop one of them: the encoder takes the place of word vectors."
        raise input_error("--vectors", "no --encoder beside it", config.encoder, remedy)
    if config.tokens is not None:
        remedy = "Drop it: the encoder has its own tokens."
        raise input_error("--tokens", "no --encoder beside it", config.encoder, remedy)
    if not config.tune:
        remedy = "Drop it: the encoder is frozen without --encoder-lr."
        raise input_error("--no-tune", "no --encoder beside it", config.encoder, remedy)


def _check_encoder(config: TrainConfig) -> None:
    """Raise an `InputError` for an encoder that the model cannot use, and for a rate without an encoder."""
    if config.encoder is None:
        if config.encoder_lr is not None:
            raise input_error("--encoder-lr", "an --encoder beside it", "none", "Give --encoder, or drop --encoder-lr.")
        return
    if config.encoder_lr is not None:
        check_positive("train", "encoder_lr", config.encoder_lr)
    if config.model is not None and "encoder" not in model_options(config.model):
        able = [name for name in models_for(MODELS[config.model].reads) if "encoder" in model_options(name)]
        raise input_error("--encoder", "a model that reads its features", config.model, _one_of(able))


def _one_of(names: list[str]) -> str:
    return f"Choose one of {', '.join(names)} as --model."


def check_imports(owner: str, config: TrainConfig) -> None:
    """Raise an `InputError` for unknown parts, naming the files that may define them, which only --import executes."""
    unknown = [
        f"the {what} {name}"
        for what, name, known in (
            ("model", config.model, MODELS),
            ("routing", config.routing, ROUTINGS),
            ("data set", None if Path(config.data).exists() else config.data, DATASETS),
        )
        if name is not None and name not in known
    ]
    missing = [file for file in config.imports if file not in imported()]
    if unknown and missing:
        got = f"{unknown[0]}, which this run had from {missing[0]}"
        remedy = f"If you trust that file, give --import {missing[0]}, or import it in Python."
        raise input_error(owner, "models, routings and data sets that are there", got, remedy)


def check_given(config: TrainConfig) -> None:
    """Raise an `InputError` for invalid options, before any work is done."""
    if config.vectors is not None and config.tokens not in (None, "word"):
        got = f"{config.tokens} beside it"
        raise input_error("--vectors", "words as --tokens", got, "Drop --vectors or --tokens.")
    if config.model is not None:
        check_choice("train", "model", config.model, list(MODELS))
        check_choice("train", "preset", config.preset, list(MODELS[config.model].recipes))
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
        "limit",
        "patience",
        "max_length",
    ):
        if getattr(config, name) is not None:
            check_count("train", name, getattr(config, name))
    if config.workers is not None:
        check_count("train", "workers", config.workers, 0)
    parse_size("--size", config.size)
    if config.fit != "stretch" and config.size is None:
        raise input_error("--fit", "--size beside it", "none", "Give --size, or drop --fit.")
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
    _check_encoder(config)
    for name in config.model_options(given=True):
        if name in ("routing", "iterations", "decoder", "encoder", "tune", "many"):
            remedy = "For the decoder there is --reconstruction, for an encoder --encoder."
            raise input_error("--option", "no option that has a flag of its own", name, remedy)
    if config.model is not None and not MODELS[config.model].routes and config.reconstruction:
        raise input_error(
            "--reconstruction", "a capsule model", config.model, "Drop it: there is nothing to draw from."
        )
