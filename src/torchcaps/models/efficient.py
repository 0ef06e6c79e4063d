"""Efficient-CapsNet: Mazzia, Salvetti, Chiaberge 2021. 161,824 parameters for MNIST without the decoder.

Also for capsules on a custom encoder.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from torch import nn

from torchcaps._core.errors import check_choice, check_count, input_error
from torchcaps.layers import Decoder, DenseCapsules, PrimaryCapsules
from torchcaps.models.base import CapsuleModel, ImageShape, check_image_shape, check_size, feature_shape, make_decoder
from torchcaps.models.recipes import COMMON, COMMON_BEST, SABOUR, Recipe


def efficient_stem(image_shape: ImageShape, width: float = 1.0) -> nn.Sequential:
    """Four convolutions with batch norm. Large images are average-pooled to about 40 pixels; small ones are padded.

    image_shape: (channels, height, width). width: a factor of the numbers of channels, 32, 64, 64 and 128.
    """
    pool = max(1, round(max(image_shape[1:]) / 40))
    pad = min(image_shape[1:]) // pool < 17
    sizes = [image_shape[0], *(max(1, round(width * channels)) for channels in (32, 64, 64, 128))]
    shape = zip(sizes[:-1], sizes[1:], (5, 3, 3, 3), (1, 1, 1, 2), strict=True)
    blocks: list[nn.Module] = [nn.AvgPool2d(pool)] if pool > 1 else []
    for channels, wider, kernel, step in shape:
        convolution = nn.Conv2d(channels, wider, kernel, step, padding=kernel // 2 if pad else 0)
        nn.init.kaiming_normal_(convolution.weight)
        blocks.append(nn.Sequential(convolution, nn.ReLU(), nn.BatchNorm2d(wider)))
    return nn.Sequential(*blocks)


def photo_stem(image_shape: ImageShape, width: float = 1.0) -> nn.Sequential:
    """Three stages of two convolutions 3x3 with batch norm and max pooling: a map of 3 to 5 pixels a side.

    Images of more than 48 pixels are halved by the first convolution, larger ones by average pooling before it.
    image_shape, width: as in `efficient_stem`; the channels are 32, 64 and 128.
    """
    side = max(image_shape[1:])
    halvings = max(0, round(math.log2(side / 34)))
    blocks: list[nn.Module] = [nn.AvgPool2d(2 ** (halvings - 1))] if halvings > 1 else []
    channels, side = image_shape[0], min(image_shape[1:]) >> halvings
    for stage, wide in enumerate((32, 64, 128)):
        wider = max(1, round(width * wide))
        for step in (2 if halvings and not stage else 1, 1):
            convolution = nn.Conv2d(channels, wider, 3, step, padding=1, bias=False)
            nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
            blocks.append(nn.Sequential(convolution, nn.BatchNorm2d(wider), nn.ReLU()))
            channels = wider
        if side >= 6:
            blocks.append(nn.MaxPool2d(2))
            side //= 2
    return nn.Sequential(*blocks)


STEMS: dict[str, Callable[..., nn.Sequential]] = {"paper": efficient_stem, "photo": photo_stem}


class EfficientCapsNet(CapsuleModel):
    """A convolutional stem, primary capsules from a depthwise convolution over the whole feature map, one routed layer.

    image_shape: (channels, height, width), with sides of at least 4 pixels. classes: the number of classes. encoder:
    any module that returns a feature map [b c h w] or a vector [b c], used instead of the stem, for example a
    pretrained backbone without its head. stem: the paper's, or "photo" for photographs, with more and deeper
    convolutions. capsules: the number of primary capsules, among which the channels of the
    encoder are divided. decoder: True for that of Sabour 2017, or a `Decoder`. routing and further arguments: those of
    the class layer (`DenseCapsules`).
    """

    recipes: ClassVar[dict[str, Recipe]] = {
        "default": COMMON,
        "best": COMMON_BEST,
        "paper": {**SABOUR, "epochs": 150, "batch_size": 16, "lr": 5e-4, "schedule": "epoch-exponential"},
    }

    encoder_recipe: ClassVar[Recipe] = {"loss": "cross-entropy", "reconstruction": 0.0}
    picture_recipes: ClassVar[dict[str, Recipe]] = {
        "photographs": {
            "loss": "cross-entropy",
            "reconstruction": 0.0,
            "epochs": 20,
            "routing": "dynamic",
            "option": ("stem=photo", "squash=exponential"),
        },
    }

    def __init__(
        self,
        image_shape: ImageShape,
        classes: int,
        *,
        encoder: nn.Module | None = None,
        stem: str = "paper",
        capsules: int = 16,
        routing: str = "attention",
        decoder: bool | Decoder = True,
        **options: Any,
    ) -> None:
        image_shape = check_image_shape("EfficientCapsNet", image_shape)
        check_size("EfficientCapsNet", image_shape, 4)
        check_count("EfficientCapsNet", "capsules", capsules)
        check_choice("EfficientCapsNet", "stem", stem, list(STEMS))
        if encoder is not None and stem != "paper":
            raise input_error("EfficientCapsNet", "no stem beside an encoder", repr(stem), "Drop one of them.")
        encoder = STEMS[stem](image_shape) if encoder is None else encoder
        channels, height, width = feature_shape("EfficientCapsNet", encoder, image_shape)
        if channels % capsules:
            got = f"{channels} channels for {capsules} capsules"
            remedy = "Choose capsules that divide the encoder's channels."
            raise input_error("EfficientCapsNet", "an equal share of channels for each capsule", got, remedy)
        dim = channels // capsules
        super().__init__(
            image_shape,
            classes,
            encoder,
            PrimaryCapsules(channels, capsules, dim, (height, width), groups=channels, squash="exponential"),
            [DenseCapsules(capsules, classes, dim, 16, routing=routing, **options)],
            make_decoder(decoder, classes, image_shape),
        )
