"""Convolutional baselines for comparison with capsule networks.

`cnn`: the baseline of Sabour, Frosst, Hinton 2017, 35,445,522 parameters for MNIST. `cnn-small`: the stem of
Efficient-CapsNet with an ordinary head, of the same size as that network. `cnn-norb`: the baseline of Hinton, Sabour,
Frosst 2018, 4,253,349 parameters for two-channel images of 32x32 pixels and 5 classes.
"""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from torchcaps._core.errors import check_positive, check_range
from torchcaps._core.types import Capsules
from torchcaps.models.base import ImageModel, ImageShape, check_size
from torchcaps.models.crops import taken
from torchcaps.models.efficient import efficient_stem
from torchcaps.models.recipes import COMMON, COMMON_BEST, HINTON, NORB, SABOUR, Recipe


class _Network(ImageModel):
    """A plain network that returns capsules: the pose of a class is its logit, its activation the softmax.

    image_shape: (channels, height, width). classes: the number of classes.
    """

    routes = False
    readout = "logit"
    network: nn.Module

    @classmethod
    def recipe(cls, preset: str, routing: str | None) -> Recipe:
        return {**super().recipe(preset, routing), "reconstruction": 0.0}

    def forward(self, images: Float[Tensor, "b c h w"]) -> Capsules:
        self.check_images(images)
        logits = self.network(images)
        return Capsules(logits.unsqueeze(-1), logits.softmax(-1))


class CNN(_Network):
    """Three convolutions 5x5 with 256, 256 and 128 channels and padding, then linear layers of 328, 192 and classes."""

    recipes: ClassVar[dict[str, Recipe]] = {
        "default": {**COMMON, "lr": 1e-3},
        "best": {**COMMON, "lr": 1e-3, "epochs": 30},
        "paper": {**SABOUR, "epochs": 50, "augment": "shift"},
    }

    def __init__(self, image_shape: ImageShape, classes: int) -> None:
        super().__init__(image_shape, classes)
        channels, height, width = self.image_shape
        self.network = nn.Sequential(
            nn.Conv2d(channels, 256, 5, padding=2),
            nn.ReLU(),
            nn.Conv2d(256, 256, 5, padding=2),
            nn.ReLU(),
            nn.Conv2d(256, 128, 5, padding=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(128 * height * width, 328),
            nn.ReLU(),
            nn.Linear(328, 192),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(192, classes),
        )


class NorbCNN(_Network):
    """Two convolutions 5x5 with 32 and 64 channels, each with max pooling 2x2, then linear layers of 1,024 and classes.

    dropout: the probability before the last layer. crop, standardize: as in `MatrixCapsules`.
    """

    recipes: ClassVar[dict[str, Recipe]] = {**CNN.recipes, "paper": {**HINTON, "weight_decay": 0.0}}
    data_recipes = NORB

    def __init__(
        self,
        image_shape: ImageShape,
        classes: int,
        *,
        dropout: float = 0.5,
        crop: int | None = None,
        standardize: bool = False,
    ) -> None:
        super().__init__(image_shape, classes)
        check_range("NorbCNN", "dropout", dropout, 0, 0.95)
        first, (channels, height, width) = taken("NorbCNN", self.image_shape, crop, standardize)
        check_size("NorbCNN", (channels, height, width), 4)
        self.network = nn.Sequential(
            *first,
            nn.Conv2d(channels, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * (height // 4) * (width // 4), 1024),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(1024, classes),
        )


class SmallCNN(_Network):
    """The stem of `efficient`, average pooling over positions, and two linear layers.

    width: a factor of all channels, to match the size of another network; 0.64 is about the size of `matrix-small`.
    """

    recipes: ClassVar[dict[str, Recipe]] = {"default": COMMON, "best": COMMON_BEST, "paper": CNN.recipes["paper"]}

    def __init__(self, image_shape: ImageShape, classes: int, *, width: float = 1.0) -> None:
        super().__init__(image_shape, classes)
        check_positive("SmallCNN", "width", width)
        last, hidden = (max(1, round(width * channels)) for channels in (128, 224))
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, hidden), nn.ReLU(), nn.Linear(hidden, classes)]
        self.network = nn.Sequential(efficient_stem(self.image_shape, width), *head)
