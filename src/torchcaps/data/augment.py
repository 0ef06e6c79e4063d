"""Random augmentation of batches of images [b c h w] from 0 to 1, different for each image.

All functions use torch's global random generator, or the given one. x points to the right and y down.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import radians

import torch
from torch import Generator, Tensor
from torch.nn.functional import grid_sample, pad

from torchcaps._core.errors import check_choice, check_count, check_range, input_error, shape_text

# The values beyond the border of an image: zeros, or its outermost pixels (for photographs).
FILLS = {"zeros": "constant", "border": "replicate"}


def shift(images: Tensor, pixels: int, fill: str = "zeros", generator: Generator | None = None) -> Tensor:
    """Shift each image by up to `pixels` whole pixels along both axes, without wrapping around.

    images: [b c h w] from 0 to 1. fill: the values that enter at the border: "zeros", or "border" for the outermost
    pixels. generator: of random numbers; default: torch's global one.
    """
    _check_images("shift", images)
    check_count("shift", "pixels", pixels, low=0)
    check_choice("shift", "fill", fill, list(FILLS))
    wide = pad(images, [pixels] * 4, mode=FILLS[fill])
    return _random_window(wide, images.shape[-2], images.shape[-1], generator)


def affine(
    images: Tensor,
    rotate: float = 0.0,
    scale: tuple[float, float] = (1.0, 1.0),
    shear: float = 0.0,
    translate: float = 0.0,
    fill: str = "zeros",
    generator: Generator | None = None,
) -> Tensor:
    """Rotate each image by up to `rotate` degrees, scale it by a factor from the range `scale`, shear and translate it.

    images: [b c h w] from 0 to 1. shear: the largest shift of x for a unit of y, in either direction. translate: the
    largest shift along each axis, in pixels. fill, generator: as in `shift`.
    """
    _check_images("affine", images)
    check_range("affine", "rotate", rotate, 0)
    check_range("affine", "shear", shear, 0)
    check_range("affine", "translate", translate, 0)
    _check_factors("affine", "scale", scale)
    draws = _rand(images, (5, len(images)), generator)
    angle, slope, right, down = 2 * draws[:4] - 1
    factor = scale[0] + (scale[1] - scale[0]) * draws[4]
    linear = linear_maps(radians(rotate) * angle, shear * slope, factor, factor)
    return warp(images, linear, translate * torch.stack([right, down], -1), fill)


def brightness(images: Tensor, amount: float, generator: Generator | None = None) -> Tensor:
    """Add a random number from -amount to amount to all pixels of an image, and clamp to 0 to 1.

    images: [b c h w] from 0 to 1. generator: as in `shift`.
    """
    _check_images("brightness", images)
    check_range("brightness", "amount", amount, 0)
    added = amount * (2 * _rand(images, (len(images), 1, 1, 1), generator) - 1)
    return (images + added).clamp(0, 1)


def contrast(images: Tensor, low: float, high: float, generator: Generator | None = None) -> Tensor:
    """Multiply the deviations of all pixels from the image's mean by a random factor from low to high; clamp to 0 to 1.

    images: [b c h w] from 0 to 1. generator: as in `shift`.
    """
    _check_images("contrast", images)
    _check_factors("contrast", "low and high", (low, high), least=0)
    factor = low + (high - low) * _rand(images, (len(images), 1, 1, 1), generator)
    mean = images.mean((1, 2, 3), keepdim=True)
    return (mean + factor * (images - mean)).clamp(0, 1)


def flip(images: Tensor, generator: Generator | None = None) -> Tensor:
    """Mirror images [b c h w] horizontally with probability one half. generator: as in `shift`."""
    _check_images("flip", images)
    return torch.where(_rand(images, (len(images), 1, 1, 1), generator) < 0.5, images.flip(-1), images)


def crop(images: Tensor, size: int | tuple[int, int], generator: Generator | None = None) -> Tensor:
    """Crop each image at a random position.

    images: [b c h w] from 0 to 1. size: the side, or (height, width). generator: as in `shift`.
    """
    return _random_window(images, *_crop_size("crop", images, size), generator)


def center_crop(images: Tensor, size: int | tuple[int, int]) -> Tensor:
    """Crop images [b c h w] at the center, for evaluation. size: the side, or (height, width)."""
    height, width = _crop_size("center_crop", images, size)
    top, left = (images.shape[-2] - height) // 2, (images.shape[-1] - width) // 2
    return images[..., top : top + height, left : left + width]


def window(images: Tensor, top: Tensor, left: Tensor, height: int, width: int) -> Tensor:
    """The height x width window of each image [c h w] that starts at its row top [b] and column left [b]."""
    # All windows are one view, so that only the selected ones are copied.
    windows = images.unfold(2, height, 1).unfold(3, width, 1)
    chosen: Tensor = windows[torch.arange(len(images), device=images.device), :, top, left]
    return chosen


def linear_maps(angle: Tensor, shear: Tensor, scale_x: Tensor, scale_y: Tensor) -> Tensor:
    """Matrices [b 2 2] on (x, y) that scale, then shear x by y, then rotate (clockwise, because y points down)."""
    cos, sin = angle.cos(), angle.sin()
    rows = [cos * scale_x, (shear * cos - sin) * scale_y, sin * scale_x, (shear * sin + cos) * scale_y]
    return torch.stack(rows, -1).unflatten(-1, (2, 2))


def warp(images: Tensor, linear: Tensor, offset: Tensor, fill: str = "zeros") -> Tensor:
    """Move the points of each image to linear @ (x, y) + offset, in pixels from its center, with interpolation."""
    check_choice("warp", "fill", fill, list(FILLS))
    height, width = images.shape[-2:]
    (xx, xy), (yx, yy) = linear.permute(1, 2, 0)
    inverse = torch.stack([yy, -xy, -yx, xx], -1).div_((xx * yy - xy * yx).unsqueeze(-1)).unflatten(-1, (2, 2))
    y, x = torch.meshgrid(_steps(height, images), _steps(width, images), indexing="ij")
    # grid_sample needs the source of each pixel, in units of half the image. (affine_grid is far slower.)
    source = inverse @ (torch.stack([x, y]).flatten(1) - offset.unsqueeze(-1))
    grid = torch.stack([source[:, 0] * (2 / width), source[:, 1] * (2 / height)], -1).unflatten(1, (height, width))
    return grid_sample(images, grid, padding_mode=fill, align_corners=False)


def _steps(size: int, images: Tensor) -> Tensor:
    return torch.arange(size, device=images.device, dtype=images.dtype) - (size - 1) / 2


def _none(images: Tensor) -> Tensor:
    return images


def _affine(images: Tensor) -> Tensor:
    return affine(images, 15, (0.9, 1.1), 0.1, translate=images.shape[-1] / 14, fill="border")


def _photo(images: Tensor) -> Tensor:
    moved = affine(flip(images), 10, (0.9, 1.1), translate=images.shape[-1] / 16, fill="border")
    return contrast(brightness(moved, 0.1), 0.8, 1.2)


def _mirror(images: Tensor) -> Tensor:
    moved = shift(flip(images), max(1, images.shape[-1] // 8), "border")
    return contrast(brightness(moved, 0.1), 0.8, 1.2)


def _light(images: Tensor) -> Tensor:
    return contrast(brightness(images, 63 / 255), 0.2, 1.8)


def _norb(images: Tensor) -> Tensor:
    return _light(shift(images, 2, "border"))


# Augmentations by name. photo, mirror: for photographs, the first also turned and scaled. shift: Sabour et al. (2017).
# light: as in the code of Hinton et al. (2018), for networks that crop. norb: the same for networks that see whole
# images, with a shift instead of crops.
AUGMENTATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": _none,
    "shift": partial(shift, pixels=2),
    "affine": _affine,
    "photo": _photo,
    "mirror": _mirror,
    "light": _light,
    "norb": _norb,
}


def _rand(images: Tensor, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
    device = images.device if generator is None else generator.device
    return torch.rand(shape, generator=generator, device=device, dtype=images.dtype).to(images.device)


def _random_window(images: Tensor, height: int, width: int, generator: Generator | None) -> Tensor:
    device = images.device if generator is None else generator.device
    top, left = (
        torch.randint(room + 1, (len(images),), generator=generator, device=device).to(images.device)
        for room in (images.shape[-2] - height, images.shape[-1] - width)
    )
    return window(images, top, left, height, width)


def _check_images(owner: str, images: Tensor) -> None:
    if images.ndim != 4 or not images.is_floating_point():
        got = f"{shape_text(images.shape)} of {images.dtype}"
        raise input_error(owner, "images [b c h w] from 0 to 1", got, "Take them from a set's .batch(indices).")


def _check_factors(owner: str, name: str, factors: tuple[float, float], least: float = 0.01) -> None:
    low, high = factors
    if not least <= low <= high:
        raise input_error(
            owner, f"{name} from {least:g} on, the lower first", f"({low}, {high})", "Swap or raise them."
        )


def _crop_size(owner: str, images: Tensor, size: int | tuple[int, int]) -> tuple[int, int]:
    _check_images(owner, images)
    height, width = (size, size) if isinstance(size, int) else size
    if not (1 <= height <= images.shape[-2] and 1 <= width <= images.shape[-1]):
        expected = f"a size from 1 x 1 to {images.shape[-2]} x {images.shape[-1]}"
        raise input_error(owner, expected, f"{height} x {width}", "Choose a part of the image.")
    return height, width
