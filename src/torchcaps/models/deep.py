"""Deep capsules: a convolutional stem, routed layers in residual blocks, and class capsules, for images of any size.

Each block normalizes its input poses, routes 3x3 windows to the same number of capsule types, and adds the parents to
the children at their positions, so that poses, activations and gradients keep their scale at any depth.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from torchcaps._core.errors import check_choice, check_count, input_error
from torchcaps.layers import ClassCapsules, ConvCapsules2d, Decoder, PrimaryCapsules, RoutedLayer
from torchcaps.models.base import CapsuleModel, ImageShape, check_image_shape, check_size, make_decoder
from torchcaps.models.recipes import MATRIX, Recipe
from torchcaps.routing import ROUTINGS, routing_like, routing_options

SIDE = 8  # the largest side of the grid of capsules
DIM = 16  # the size of poses
# Of densities and of agreements: else couplings are all or nothing, and gradients grow from layer to layer.
SHARPNESS = {"dynamic": 0.2}
OTHER_SHARPNESS = 1 / DIM


class DeepCapsules(CapsuleModel):
    """A convolutional stem, any number of routed layers in residual blocks, and class capsules.

    image_shape: (channels, height, width), with sides of at least 8 pixels. classes: the number of classes. depth: the
    number of routed layers, including that of the classes. capsules: capsule types at each position of a grid of at
    most 8 x 8. channels: of the first convolution; each one that halves the image doubles them, up to four times as
    many. coordinates: "column", "first" or None, see `ClassCapsules`. decoder: True for that of Sabour 2017, or a
    `Decoder`. routing and further arguments: passed to all routed layers.
    """

    recipes: ClassVar[dict[str, Recipe]] = {"default": MATRIX, "best": {**MATRIX, "epochs": 50}}

    @classmethod
    def recipe(cls, preset: str, routing: str | None) -> Recipe:
        recipe = super().recipe(preset, routing or "em")
        return {**recipe, "loss": "cross-entropy"} if routing in (None, "em", "variational") else recipe

    def __init__(
        self,
        image_shape: ImageShape,
        classes: int,
        *,
        depth: int = 4,
        capsules: int = 8,
        channels: int = 32,
        routing: str = "em",
        decoder: bool | Decoder = False,
        coordinates: str | None = "column",
        **options: Any,
    ) -> None:
        image_shape = check_image_shape("DeepCapsules", image_shape)
        check_size("DeepCapsules", image_shape, 8)
        for word, count in (("depth", depth), ("capsules", capsules), ("channels", channels)):
            check_count("DeepCapsules", word, count)
        if not isinstance(routing, str):  # one object would be one set of parameters for all layers
            remedy = "Enter yours in tc.ROUTINGS and name it."
            raise input_error("DeepCapsules", "a routing's name", f"a {type(routing).__name__}", remedy)
        check_choice("DeepCapsules", "routing", routing, list(ROUTINGS))
        soft = SHARPNESS.get(routing, OTHER_SHARPNESS)
        softer = {"sharpness": soft} if "sharpness" in routing_options(routing) and not options.get("hard") else {}
        options = {"votes": "matrix", "routing": routing, "normalize_poses": True, **softer, **options}
        stem, width = _stem(image_shape, channels)
        kind = "matrix" if routing_like(routing, options).uses_activations else "vector"
        blocks: list[RoutedLayer] = [
            ConvCapsules2d(capsules, capsules, DIM, DIM, 3, padding=1, **{"skip": True, **options})
            for _ in range(depth - 1)
        ]
        options.pop("skip", None)
        last = ClassCapsules(capsules, classes, DIM, DIM, coordinates=coordinates, **options)
        primary = PrimaryCapsules(width, capsules, DIM, kind=kind)
        super().__init__(
            image_shape, classes, stem, primary, [*blocks, last], make_decoder(decoder, classes, image_shape)
        )


def _stem(image_shape: ImageShape, channels: int) -> tuple[nn.Sequential, int]:
    """Convolutions that halve the image until its sides are at most SIDE, and their number of output channels."""
    layers: list[nn.Module] = []
    before, side, width, stride = image_shape[0], max(image_shape[1:]), channels, 1
    while True:
        layers += [nn.Conv2d(before, width, 3, stride, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        if side <= SIDE:
            return nn.Sequential(*layers), width
        before, width, stride, side = width, min(2 * width, 4 * channels), 2, (side + 1) // 2
