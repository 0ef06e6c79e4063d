"""Matrix capsules: Hinton, Sabour, Frosst 2018, "Matrix Capsules with EM Routing", figure 1.

For 32x32 stereo images and 5 classes: 317,056 parameters and 138 betas; the small network 68,680 and 74.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from torchcaps._core.errors import check_choice, check_count, input_error
from torchcaps.layers import ClassCapsules, ConvCapsules2d, Decoder, PrimaryCapsules
from torchcaps.models.base import CapsuleModel, ImageShape, check_image_shape, check_size, make_decoder
from torchcaps.models.crops import taken
from torchcaps.models.recipes import HINTON, MATRIX, NORB, ROUTING_OPTIONS, Recipe
from torchcaps.routing import ROUTINGS, routing_like


class MatrixCapsules(CapsuleModel):
    """Convolution 5x5 with stride 2, 4x4 primary capsules, two convolutional capsule layers, class capsules.

    image_shape: (channels, height, width). classes: the number of classes. sizes: the paper's A, B, C and D: channels,
    and types of capsules in each layer. coordinates: "column", "first" or None, see `ClassCapsules`. crop: the side of
    the square window that the network sees, at a random position in training and otherwise at the center (the paper
    uses 32 of 48 pixels). standardize: scale every image to mean zero and variance one, as in the paper. batch_norm:
    add batch norm after the first convolution (not in the paper). decoder: True for that of Sabour 2017, or a
    `Decoder`. routing and further arguments: passed to all three routed layers. Primary capsules have learned
    activations if the routing uses them.
    """

    recipes: ClassVar[dict[str, Recipe]] = {"default": MATRIX, "best": {**MATRIX, "epochs": 50}, "paper": HINTON}
    data_recipes = NORB

    @classmethod
    def recipe(cls, preset: str, routing: str | None) -> Recipe:
        if preset == "paper" or routing not in (None, "em"):
            return super().recipe(preset, routing)
        options = ("standardize=true", "batch_norm=true", "normalize_poses=true", *ROUTING_OPTIONS["em"])
        return {**cls.recipes[preset], "loss": "cross-entropy", "option": options}

    def __init__(
        self,
        image_shape: ImageShape,
        classes: int,
        *,
        sizes: tuple[int, int, int, int] = (32, 32, 32, 32),
        routing: str = "em",
        decoder: bool | Decoder = False,
        coordinates: str | None = "column",
        crop: int | None = None,
        standardize: bool = False,
        batch_norm: bool = False,
        **options: Any,
    ) -> None:
        image_shape = check_image_shape("MatrixCapsules", image_shape)
        stem, seen = taken("MatrixCapsules", image_shape, crop, standardize)
        check_size("MatrixCapsules", seen, 17)
        if decoder and crop is not None:
            raise input_error("MatrixCapsules", "no decoder beside crop", "both", "Leave one of them out.")
        if not isinstance(sizes, tuple | list) or len(sizes) != 4:
            raise input_error(
                "MatrixCapsules", "four sizes A, B, C and D", repr(sizes), "Give sizes like [32,8,16,16]."
            )
        a, b, c, d = sizes
        for size in sizes:
            check_count("MatrixCapsules", "sizes", size)
        if not isinstance(routing, str):  # one object would be one set of betas for three layers
            remedy = "Enter yours in tc.ROUTINGS and name it."
            raise input_error("MatrixCapsules", "a routing's name", f"a {type(routing).__name__}", remedy)
        check_choice("MatrixCapsules", "routing", routing, list(ROUTINGS))
        # If the routing does not use activations, primary poses are squashed, and their lengths stand for activations.
        kind = "matrix" if routing_like(routing, options).uses_activations else "vector"
        options = {"votes": "matrix", "routing": routing, **options}
        last = {**options, "preset": "official-class"} if options.get("preset") == "official" else options
        stem += [nn.Conv2d(image_shape[0], a, 5, stride=2), *([nn.BatchNorm2d(a)] if batch_norm else []), nn.ReLU()]
        super().__init__(
            image_shape,
            classes,
            nn.Sequential(*stem),
            PrimaryCapsules(a, b, 16, kind=kind),
            [
                ConvCapsules2d(b, c, 16, 16, 3, stride=2, **options),
                ConvCapsules2d(c, d, 16, 16, 3, **options),
                ClassCapsules(d, classes, 16, 16, coordinates=coordinates, **last),
            ],
            make_decoder(decoder, classes, image_shape),
        )


class SmallMatrixCapsules(MatrixCapsules):
    """The paper's small network, `MatrixCapsules` with sizes A, B, C, D = 64, 8, 16, 16."""

    def __init__(
        self,
        image_shape: ImageShape,
        classes: int,
        *,
        sizes: tuple[int, int, int, int] = (64, 8, 16, 16),
        **options: Any,
    ) -> None:
        super().__init__(image_shape, classes, sizes=sizes, **options)
