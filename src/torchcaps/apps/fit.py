"""Training in Python: any network that returns capsules, on any data, with a run folder like `torchcaps train`."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path
from typing import Any, get_args

import torch
from torch import nn

from torchcaps._core.device import choose_device
from torchcaps._core.errors import InputError, check_choice, input_error, shape_text
from torchcaps._core.locks import locked
from torchcaps._core.types import Capsules
from torchcaps.apps.networks import first_answer, image_shape_of
from torchcaps.data import AUGMENTATIONS, DATASETS, Splits, make_parts, open_data
from torchcaps.data.own import as_examples, classes_of, hold_out_share, with_classes
from torchcaps.models import TextModel, draws, readout_of
from torchcaps.models.encoders import encoder_of
from torchcaps.models.recipes import COMMON, HasRecipes
from torchcaps.runs.config import Schedule, TrainConfig
from torchcaps.runs.metadata import RunMetadata
from torchcaps.runs.recipes import absent_count, check_given, check_no_down_weight, completed, for_pixels
from torchcaps.runs.run import GIVE_THE_SAME, Run
from torchcaps.runs.runfolders import check_new, next_folder


def fit(
    model: nn.Module,
    train_data: Any,
    validation_data: Any = None,
    *,
    test_data: Any = None,
    classes: Sequence[str] | None = None,
    out: Path | str | None = None,
    resume: Path | str | None = None,
    calibrate: bool = True,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    encoder_lr: float | None = None,
    schedule: str | None = None,
    weight_decay: float | None = None,
    loss: str | None = None,
    down_weight: float | None = None,
    balance: bool | None = None,
    reconstruction: float | None = None,
    augment: str | None = None,
    accumulate: int | None = None,
    patience: int | None = None,
    validation: float | None = None,
    seed: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    workers: int | None = None,
    compile: bool | None = None,  # torch's word
) -> Run:
    """Train a network and return its run. The network ends with the best weights, on the CPU, in evaluation mode.

    model: any torch module that returns `Capsules` with an activation for each class. train_data: (inputs, labels) as
    arrays or tensors, a torch Dataset of such pairs, a set of `torchcaps.data`, or a folder, file or data set by name
    as for `torchcaps train`. validation_data: the same; default: the share `validation` of the training data (0.1) is
    held out. test_data: the same, for `evaluate` and the report. classes: the names of the classes; default: those
    that the data know, or numbers.

    out: the run folder; default: a new one under runs/. resume: continue the interrupted run in this folder, with the
    same network, data, classes and calibrate, and no other options. calibrate: initialize the scales of capsule layers
    from the data (`torchcaps.calibrate`); False for a network that is trained already.

    The other options are those of `torchcaps train`; default: epochs, batch_size, lr, schedule, weight_decay and
    reconstruction are those of the model's recipe. epochs: passes through the training data. batch_size: examples in a
    batch. accumulate: batches that are combined for one step. lr: the highest learning rate. encoder_lr: that of an
    encoder of `load_encoder`; left out, it is frozen, and its features are computed once. schedule: "one-cycle",
    "exponential", "slow-exponential", "epoch-exponential" or "constant". weight_decay: of AdamW. loss: a name in
    `LOSSES`; default: that of the recipe, or else the default of the activations. down_weight: the weight of absent
    classes in the margin loss. balance: weigh examples such that every class counts the same. reconstruction: the
    weight of the reconstruction error of a decoder. augment: a name in `data.AUGMENTATIONS`; left out, "affine" for
    images from files or by name with one label each, otherwise "none". patience: stop after so many epochs without a
    better validation accuracy. validation: the fraction to hold out. seed: of the split, the order and the
    augmentation. device: "auto", "cpu", "cuda" or "mps". precision: "float32", "float16" or "bfloat16". workers:
    processes that load batches; default: 2 on a GPU for a Dataset or data on disk, otherwise 0. compile: train with
    torch.compile.
    """
    options: dict[str, Any] = {
        "epochs": epochs, "batch_size": batch_size, "lr": lr, "encoder_lr": encoder_lr, "schedule": schedule,
        "weight_decay": weight_decay, "loss": loss, "down_weight": down_weight, "balance": balance,
        "reconstruction": reconstruction,
        "augment": augment, "accumulate": accumulate, "patience": patience, "validation": validation, "seed": seed,
        "device": device, "precision": precision, "workers": workers, "compile": compile,
    }  # fmt: skip
    given = {name: value for name, value in options.items() if value is not None}
    _need_lightning()
    from torchcaps.train.engine import fit_run, lock_new

    if resume is not None:
        if given or out is not None:
            remedy = "Drop it: a run continues with its own options."
            raise input_error("fit", "no option beside resume", next(iter(given), "out"), remedy)
        data = (train_data, validation_data, test_data)
        return _resume(model, data, classes, Path(resume), calibrated=not calibrate)
    encoder = encoder_of(model)
    source = None if encoder is None else encoder.source
    config = TrainConfig(data=_name_of(train_data), out=None if out is None else Path(out), encoder=source, **given)
    _check(config)
    if encoder is not None and encoder_lr:
        encoder.tune()
    parts = _parts(config, train_data, validation_data, test_data, classes)
    parts = _with_classes(parts, first_answer(model, parts.train), classes)
    run = _draft(model, config, parts, in_python=not isinstance(train_data, str | Path))
    with ExitStack() as held:
        lock_new(run.folder, held)
        vocabulary = parts.train.vocabulary if parts.train.kind == "texts" else None
        return fit_run(run.begin(parts, vocabulary), parts, model, calibrated=not calibrate)


def _check(config: TrainConfig) -> None:
    """Raise an `InputError` for invalid options, before any data are read."""
    check_given(config)
    for word, known in (
        ("augment", list(AUGMENTATIONS)),
        ("schedule", list(get_args(Schedule))),
        ("precision", ["float32", "float16", "bfloat16"]),
    ):
        if getattr(config, word) is not None:
            check_choice("fit", word, getattr(config, word), known)
    choose_device("fit", config.device)
    if config.out is not None:
        check_new(config.out)


def _resume(
    model: nn.Module, data: tuple[Any, Any, Any], classes: Sequence[str] | None, folder: Path, *, calibrated: bool
) -> Run:
    from torchcaps.train.engine import fit_run

    run = Run.open(folder, network=model)
    encoder = encoder_of(model)
    if encoder is not None and run.config.encoder_lr:
        encoder.tune()
    known = run.metadata.classes
    if classes is None and not set(map(str, classes_of(data[0]) or ())) <= set(known):
        classes = known  # the classes of the Dataset were renamed when the run began
    parts = _parts(run.config, *data, classes, known)
    run = dataclasses.replace(run, parts=_with_classes(parts, first_answer(model, parts.train), known))
    parts = run.load_parts()
    if run.metadata.stopped:
        run.load_into(model, GIVE_THE_SAME)
        return run
    if run.weights.exists():
        run.load_into(deepcopy(model), GIVE_THE_SAME)
    with locked(folder):
        return fit_run(run, parts, model, calibrated=calibrated)


def _name_of(data: Any) -> str:
    """The data in the config: a name, a path, or for data in Python their type in parentheses."""
    if isinstance(data, str) and data in DATASETS:
        return data
    if isinstance(data, str | Path):
        return str(Path(data).expanduser().resolve())
    return "(arrays)" if isinstance(data, tuple | list) else f"({type(data).__name__})"


def _parts(
    config: TrainConfig,
    train: Any,
    validation: Any,
    test: Any,
    classes: Sequence[str] | None,
    known: Sequence[str] | None = None,
) -> Splits:
    """The data in their parts. Missing validation data are held out of training data; missing test data are empty."""
    if isinstance(train, str | Path):
        if validation is not None or test is not None:
            remedy = "Put the parts into subfolders train, val and test of one folder."
            raise input_error("fit", "no other data beside a folder, file or name", "both", remedy)
        found = open_data(_name_of(train), validation=config.validation, seed=config.seed)
        return make_parts(found, validation=config.validation, test=config.test, seed=config.seed)
    rest: Any = as_examples("fit", train, classes, known)
    names = rest.classes or None
    if validation is None:
        rest, held = hold_out_share("fit", rest, config.validation, config.seed)
    else:
        held = as_examples("fit", validation, classes, names)
    empty = hold_out_share("fit", held, 0.0, 0)[1]
    return Splits(rest, held, empty if test is None else as_examples("fit", test, classes, names))


def _with_classes(parts: Splits, answer: Capsules, classes: Sequence[str] | None) -> Splits:
    """The parts with a name for each class of the network; an `InputError` if the data have other classes."""
    count = answer.activations.shape[1]
    known = tuple(map(str, classes or parts.train.classes or ()))
    if len(known) > count or (classes is not None and len(known) != count):
        raise input_error("fit", f"{count} classes, as the network has", len(known), "Make a network for as many.")
    named = known + tuple(str(number) for number in range(len(known), count))
    if len(set(named)) < count:
        raise input_error("fit", "a name of its own for each class", ", ".join(named), "Rename them.")
    return Splits(*(None if part is None else with_classes("fit", part, named) for part in parts))


def _draft(model: nn.Module, config: TrainConfig, parts: Splits, *, in_python: bool) -> Run:
    """The run before anything is written: with the name of its model if that recreates it, else with the object."""
    config = _with_recipe(model, config, parts, in_python)
    train = parts.train
    metadata = RunMetadata(train.classes, labels_per_image=train.labels_per_image, in_python=in_python)
    metadata = dataclasses.replace(metadata, image_shape=image_shape_of(model, train))
    if train.kind == "texts":
        if train.vocabulary is None:
            remedy = "Give a data.TextSet with the vocabulary that the network was made for."
            raise input_error("fit", "texts with a vocabulary", "none", remedy)
        dim = model.dim if isinstance(model, TextModel) else None
        sizes = {"vocabulary": len(train.vocabulary), "word_dim": dim, "many": train.many}
        metadata = dataclasses.replace(metadata, **sizes)
        config = dataclasses.replace(config, max_length=train.max_length)
    encoder = encoder_of(model)
    named = _by_name(model, Run(Path(), config, metadata, encoder=encoder))
    if named is None:
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        named = Run(Path(), config, dataclasses.replace(metadata, network=kind), network=model, encoder=encoder)
    folder = named.config.out or next_folder(dataclasses.replace(named.config, model=type(model).__name__))
    config = dataclasses.replace(named.config, out=folder)
    return dataclasses.replace(named, folder=folder, config=config, parts=parts)


def _with_recipe(model: nn.Module, config: TrainConfig, parts: Splits, in_python: bool) -> TrainConfig:
    recipe = type(model).recipe("default", None) if isinstance(model, HasRecipes) else dict(COMMON)
    recipe.pop("option", None)
    if config.reconstruction and not draws(model):
        remedy = "Drop reconstruction, or make the network with decoder=True."
        raise input_error("fit", "a network with a decoder for reconstruction", "none", remedy)
    recipe = for_pixels(recipe, math.prod(model.image_shape)) if draws(model) else {**recipe, "reconstruction": 0.0}
    if config.augment not in (None, "none"):
        inputs = parts.train.batch(torch.arange(1)).inputs
        if inputs.ndim != 4 or not inputs.is_floating_point():  # nothing else is varied in training
            got = f"inputs {shape_text(inputs.shape[1:])} of {inputs.dtype}"
            raise input_error("fit", "images [c h w] of floating-point numbers for augment", got, "Drop augment.")
    images = not in_python and parts.train.kind == "images" and parts.train.labels_per_image == 1
    recipe["augment"] = "affine" if images else "none"
    if isinstance(model, HasRecipes) and config.encoder is not None:
        recipe |= {"loss": model.encoder_recipe.get("loss")} | ({} if config.encoder_lr else {"augment": "none"})
    many = parts.train.labels_per_image > 1 or (parts.train.kind == "texts" and parts.train.many)
    if config.down_weight is not None and not absent_count(config.loss or recipe.get("loss"), readout_of(model), many):
        check_no_down_weight(config)
    return completed(config, recipe, len(parts.train))


def _by_name(model: nn.Module, run: Run) -> Run | None:
    """The run with the name and the options that recreate this network; None if there are none."""
    origin = model.origin if isinstance(model, HasRecipes) else None
    if origin is None:
        return None
    name, options = origin[0], dict(origin[1])
    fields = {word: options.pop(word) for word in ("routing", "iterations", "tune") if word in options}
    own_decoder = not isinstance(options.pop("decoder", False), bool)
    for word in ("dim", "many", *(["encoder"] if run.encoder is not None else [])):
        options.pop(word, None)
    try:
        texts = tuple(f"{word}={v if isinstance(v, str) else json.dumps(v)}" for word, v in options.items())
    except TypeError:  # an encoder, or another object
        return None
    if own_decoder or draws(model) != bool(run.config.reconstruction):
        return None
    config = dataclasses.replace(run.config, model=name, option=texts, **fields)
    named = dataclasses.replace(run, config=config)
    try:
        plan = named.new_model(plan=True).state_dict()
        check_given(config)
    except InputError:
        return None
    state = model.state_dict()
    alike = plan.keys() == state.keys() and all(plan[key].shape == value.shape for key, value in state.items())
    return named if alike else None


def _need_lightning() -> None:
    try:
        import lightning.pytorch  # noqa: F401
    except ModuleNotFoundError:
        remedy = "Run: pip install 'torchcaps[train]'."
        raise input_error("fit", "the package lightning", "it not installed", remedy) from None
