"""Ready-made networks for images: `create_model("efficient", image_shape=(1, 28, 28), classes=10)`."""

from __future__ import annotations

import inspect
from typing import Any

from torchcaps.models.base import CapsuleModel, ImageModel, ImageShape
from torchcaps.models.capsnet import CapsNet
from torchcaps.models.cnn import CNN, SmallCNN
from torchcaps.models.efficient import EfficientCapsNet
from torchcaps.models.matrix import MatrixCapsules, SmallMatrixCapsules
from torchcaps.types import check_choice, check_count, complaint

MODELS: dict[str, type[ImageModel]] = {
    "efficient": EfficientCapsNet,
    "capsnet": CapsNet,
    "matrix": MatrixCapsules,
    "matrix-small": SmallMatrixCapsules,
    "cnn": CNN,
    "cnn-small": SmallCNN,
}


def create_model(name: str = "efficient", *, image_shape: ImageShape, classes: int, **options: Any) -> ImageModel:
    """A model by name for images of this shape. `MODELS` lists the names; options are those of its class.

    Capsule models take `routing` (a name) and its options: `create_model("capsnet", ..., routing="em", iterations=2)`.
    """
    check_choice("create_model", "name", name, list(MODELS))
    check_count("create_model", "classes", classes, 2)
    parameters = inspect.signature(MODELS[name].__init__).parameters.values()
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        known = [parameter.name for parameter in parameters]
        unknown = ", ".join(option for option in options if option not in known)
        if unknown:
            raise complaint(f"create_model({name!r})", "no options: it routes nothing", unknown, "Drop them.")
    return MODELS[name](image_shape, classes, **options)


__all__ = [
    "CNN",
    "MODELS",
    "CapsNet",
    "CapsuleModel",
    "EfficientCapsNet",
    "ImageModel",
    "MatrixCapsules",
    "SmallCNN",
    "SmallMatrixCapsules",
    "create_model",
]
