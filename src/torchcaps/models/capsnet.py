"""CapsNet: Sabour, Frosst, Hinton 2017, "Dynamic Routing Between Capsules", figures 1 and 2.

8,215,568 parameters for MNIST, 6,804,224 without the decoder.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from torchcaps._core.errors import check_count
from torchcaps.layers import Decoder, DenseCapsules, PrimaryCapsules
from torchcaps.models.base import CapsuleModel, ImageShape, check_image_shape, check_size, make_decoder
from torchcaps.models.recipes import COMMON, SABOUR, Recipe


class CapsNet(CapsuleModel):
    """CapsNet: convolution 9x9, primary capsules 9x9 with stride 2, class capsules with poses of size 16.

    image_shape: (channels, height, width), with sides from 17 to 64 pixels. classes: the number of classes. channels:
    of the first convolution. capsules: types of primary capsules, with poses of size 8. decoder: True for the paper's,
    or a `Decoder`. routing and further arguments: those of the class layer (`DenseCapsules`).
    """

    recipes: ClassVar[dict[str, Recipe]] = {
        "default": {**COMMON, "batch_size": 128, "lr": 2e-3},
        "best": {**COMMON, "batch_size": 128, "lr": 2e-3, "epochs": 50},
        "paper": {**SABOUR, "epochs": 50, "augment": "shift"},
        "code": {**SABOUR, "epochs": 50, "augment": "shift", "loss": "official-margin", "option": ("bias=true",)},
    }

    @classmethod
    def recipe(cls, preset: str, routing: str | None) -> Recipe:
        own = routing in (None, "dynamic", "uniform")  # others have no bias, and other losses
        return super().recipe("paper" if preset == "code" and not own else preset, routing)

    def __init__(
        self,
        image_shape: ImageShape,
        classes: int,
        *,
        routing: str = "dynamic",
        decoder: bool | Decoder = True,
        channels: int = 256,
        capsules: int = 32,
        **options: Any,
    ) -> None:
        image_shape = check_image_shape("CapsNet", image_shape)
        check_size("CapsNet", image_shape, 17, 64)  # the class layer's weights grow with the area
        for word, count in (("channels", channels), ("capsules", capsules)):
            check_count("CapsNet", word, count)
        height, width = ((size - 8 - 9) // 2 + 1 for size in image_shape[1:])
        super().__init__(
            image_shape,
            classes,
            nn.Sequential(nn.Conv2d(image_shape[0], channels, 9), nn.ReLU()),
            PrimaryCapsules(channels, capsules, 8, kernel_size=9, stride=2),
            [DenseCapsules(capsules * height * width, classes, 8, 16, routing=routing, **options)],
            make_decoder(decoder, classes, image_shape),
        )
