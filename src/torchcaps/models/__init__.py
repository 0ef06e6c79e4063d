"""Ready-made networks for images and texts.

`create_model("efficient", image_shape=(1, 28, 28), classes=10)`, `create_model("text", vocabulary=5000, classes=2)`.
"""

from __future__ import annotations

import inspect
from typing import Any, overload

from torchcaps._core.errors import check_choice, check_count, input_error
from torchcaps._core.extensions import Registry
from torchcaps.layers.base import LAYER_OPTIONS, RoutedLayer
from torchcaps.layers.parts import keyword_options
from torchcaps.models.base import CapsuleModel, ImageModel, ImageShape, draws, readout_of
from torchcaps.models.calibrate import calibrate
from torchcaps.models.capsnet import CapsNet
from torchcaps.models.cnn import CNN, NorbCNN, SmallCNN
from torchcaps.models.crops import Patches
from torchcaps.models.deep import DeepCapsules
from torchcaps.models.efficient import EfficientCapsNet
from torchcaps.models.matrix import MatrixCapsules, SmallMatrixCapsules
from torchcaps.models.text import Text, TextA, TextB, TextCapsules
from torchcaps.models.textmodel import TextModel
from torchcaps.models.textnets import BiLSTM, TextCNN
from torchcaps.models.vectors import VectorCapsules
from torchcaps.routing import ROUTINGS, routing_like, routing_options

IMAGE_MODELS: dict[str, type[ImageModel]] = {
    "efficient": EfficientCapsNet,
    "capsnet": CapsNet,
    "matrix": MatrixCapsules,
    "matrix-small": SmallMatrixCapsules,
    "deep": DeepCapsules,
    "cnn": CNN,
    "cnn-small": SmallCNN,
    "cnn-norb": NorbCNN,
}
TEXT_MODELS: dict[str, type[TextModel]] = {
    "text": Text,
    "text-a": TextA,
    "text-b": TextB,
    "textcnn": TextCNN,
    "bilstm": BiLSTM,
}
FILLED_IN = ("in_capsules", "out_capsules", "out_dim", "vote_std")  # options of routings that layers know
MODELS: Registry[type[ImageModel] | type[TextModel]] = Registry("torchcaps.models", {**IMAGE_MODELS, **TEXT_MODELS})


def models_for(kind: str) -> list[str]:
    """The names of the models for this kind of input: "images" or "texts"."""
    return [name for name, model in MODELS.items() if model.reads == kind]


def model_options(name: str, routing: str | None = None) -> list[str]:
    """The names of the options that `create_model(name, ...)` accepts: of the model, its layers and its routing.

    name: a key of `MODELS`. routing: the name of a routing; left out, the model's default.
    """
    options = _keywords(name)
    routing = routing or options.get("routing")
    if "routing" in options and isinstance(routing, str) and routing in ROUTINGS:
        layers = (word for word in LAYER_OPTIONS if word not in options)
        return [*options, *layers, *(word for word in routing_options(routing) if word not in FILLED_IN)]
    return list(options)


def _keywords(name: str) -> dict[str, Any]:
    """The options of a model's own constructors, with their defaults."""
    options: dict[str, Any] = {}
    for kind in MODELS[name].__mro__:
        if "__init__" in vars(kind):
            inherited = keyword_options(vars(kind)["__init__"])
            options |= {word: default for word, default in inherited.items() if word not in options}
            parameters = inspect.signature(vars(kind)["__init__"]).parameters
            if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
                break
    return options


def readout_with(name: str, options: dict[str, Any]) -> str | None:
    """The readout of a model made with these options; None if only the model itself can tell.

    name: a key of `MODELS`.
    """
    own = getattr(MODELS[name], "readout", None)
    routing = options.get("routing") or _keywords(name).get("routing")
    if isinstance(own, str) or routing not in list(ROUTINGS):
        return own if isinstance(own, str) else None
    return routing_like(routing, options).readout


Model = ImageModel | TextModel


@overload
def create_model(
    name: str = ..., *, classes: int, image_shape: ImageShape, vocabulary: None = ..., **options: Any
) -> ImageModel: ...


@overload
def create_model(name: str, *, classes: int, vocabulary: int, image_shape: None = ..., **options: Any) -> TextModel: ...


@overload
def create_model(
    name: str = ..., *, classes: int, image_shape: ImageShape | None, vocabulary: int | None, **options: Any
) -> Any: ...


def create_model(
    name: str = "efficient",
    *,
    classes: int,
    image_shape: ImageShape | None = None,
    vocabulary: int | None = None,
    **options: Any,
) -> Any:
    """Create a model by name. `MODELS` lists the names.

    classes: the number of classes. image_shape: (channels, height, width), for models of images. vocabulary: the number
    of words, for models of texts. options: those of the model's class. Capsule models accept `routing` (a name) and its
    options: `create_model("capsnet", ..., routing="em", iterations=2)`.
    """
    check_choice("create_model", "name", name, list(MODELS))
    check_count("create_model", "classes", classes, 2)
    word, given = ("vocabulary", vocabulary) if MODELS[name].reads == "texts" else ("image_shape", image_shape)
    if given is None or (image_shape is not None and vocabulary is not None):
        got = "both image_shape and vocabulary" if given is not None else f"no {word}"
        raise input_error(f"create_model({name!r})", f"{word}, and no other size", got, f"Give {word}=...")
    known = model_options(name, options.get("routing"))
    if "routing" in known and isinstance(options.get("routing"), str):
        check_choice(f"create_model({name!r})", "routing", options["routing"], list(ROUTINGS))
    unknown = ", ".join(option for option in options if option not in known)
    if unknown:
        expected = f"options among {', '.join(known)}" if known else "no options: it routes nothing"
        raise input_error(f"create_model({name!r})", expected, unknown, "Drop or rename them.")
    model = MODELS[name](given, classes, **options)  # type: ignore[arg-type]
    _check_expected(name, options, model)
    model.origin = name, options
    return model


def _check_expected(name: str, options: dict[str, Any], model: Any) -> None:
    """Raise an `InputError` if expected_children was given and no layer starts its weights by it."""
    layers = [layer for layer in model.modules() if isinstance(layer, RoutedLayer)]
    fixed = all(layer.routing.parents_are_means or options.get("std") is not None for layer in layers)
    if options.get("expected_children") is not None and fixed:
        expected = "no expected_children where parents are means of votes, or with std"
        raise input_error(f"create_model({name!r})", expected, options["expected_children"], "Drop expected_children.")


__all__ = [
    "CNN",
    "IMAGE_MODELS",
    "MODELS",
    "TEXT_MODELS",
    "BiLSTM",
    "CapsNet",
    "CapsuleModel",
    "DeepCapsules",
    "EfficientCapsNet",
    "ImageModel",
    "MatrixCapsules",
    "Model",
    "NorbCNN",
    "Patches",
    "SmallCNN",
    "SmallMatrixCapsules",
    "Text",
    "TextA",
    "TextB",
    "TextCNN",
    "TextCapsules",
    "TextModel",
    "VectorCapsules",
    "calibrate",
    "create_model",
    "draws",
    "model_options",
    "models_for",
    "readout_of",
    "readout_with",
]
