"""Preprocessing of smallNORB in Hinton, Sabour, Frosst 2018: crops, standardized to mean zero and variance one."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps._core.errors import check_range, input_error
from torchcaps._core.types import Capsules
from torchcaps.models.base import ImageModel, ImageShape

# Offsets of the test-time crops from the center, in pixels: the center, and diagonal shifts by one to three pixels.
PATCHES = [(0, 0), *((down * far, right * far) for far in (1, 2, 3) for down in (-1, 1) for right in (-1, 1))]


class Standardize(nn.Module):
    """Standardize every image to mean zero and variance one; a constant image becomes zero."""

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        centered = images - images.mean((1, 2, 3), keepdim=True)
        return centered / (centered.square().mean((1, 2, 3), keepdim=True) + 1e-6).sqrt()


class Crop(nn.Module):
    """A square crop: at a random position for each image in training mode, otherwise from the center.

    size: the side of the crop. The attribute `offset` shifts the center crop by rows and columns.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.offset = (0, 0)

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c s s"]:
        if not self.training:
            down, right = ((side - self.size) // 2 + by for side, by in zip(images.shape[2:], self.offset, strict=True))
            return images[..., down : down + self.size, right : right + self.size]
        count, channels, height, width = images.shape
        steps = torch.arange(self.size, device=images.device)
        top, left = (torch.randint(side - self.size + 1, (count, 1), device=images.device) for side in (height, width))
        rows, columns = (top + steps)[:, None, :, None], (left + steps)[:, None, None, :]
        return images.gather(2, rows.expand(-1, channels, -1, width)).gather(
            3, columns.expand(-1, channels, self.size, -1)
        )

    def extra_repr(self) -> str:
        return str(self.size)


def taken(
    owner: str, image_shape: ImageShape, crop: int | None, standardize: bool
) -> tuple[list[nn.Module], ImageShape]:
    """The modules that crop and standardize images, and the image shape after them."""
    first: list[nn.Module] = []
    if crop is not None:
        check_range(owner, "crop", crop, 1, min(image_shape[1:]))
        first.append(Crop(crop))
        image_shape = (image_shape[0], crop, crop)
    return [*first, *([Standardize()] if standardize else [])], image_shape


class Patches(ImageModel):
    """Evaluates a network that crops on 13 crops of each image, and averages poses and activations.

    model: a network made with the option `crop`, with at least 6 pixels between the sides of images and crops.
    """

    def __init__(self, model: ImageModel) -> None:
        super().__init__(model.image_shape, model.classes)
        self.model = model
        crops = [module for module in model.modules() if isinstance(module, Crop)]
        room = min((min(model.image_shape[1:]) - crop.size for crop in crops), default=0)
        if room < 6:
            got = f"windows with {room} pixels to spare" if crops else "a network that takes whole images"
            remedy = "Train with --option crop=32 and --size 48, say."
            raise input_error("patches", "windows that can move by 3 pixels either way", got, remedy)
        self.crops = crops

    @property
    def readout(self) -> str:
        return self.model.readout

    def forward(self, images: Float[Tensor, "b c h w"]) -> Capsules:
        try:
            found = [self._at(offset, images) for offset in PATCHES]
        finally:
            self._move((0, 0))
        poses, activations = (torch.stack(each).mean(0) for each in zip(*found, strict=True))
        return Capsules(poses, activations)

    def _at(self, offset: tuple[int, int], images: Tensor) -> tuple[Tensor, Tensor]:
        self._move(offset)
        capsules = self.model(images)
        return capsules.poses, capsules.activations

    def _move(self, offset: tuple[int, int]) -> None:
        for crop in self.crops:
            crop.offset = offset
