"""Data sets derived from others: pairs of overlapping digits, and digits translated or deformed in a larger frame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import radians
from pathlib import Path
from typing import cast

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from torchcaps._core.errors import check_count, input_error
from torchcaps.data.augment import linear_maps, warp, window
from torchcaps.data.base import Batch, ImageSet, Splits
from torchcaps.data.builtin import mnist_5k

FRAME = 40  # the side of translated and of affNIST images
_GOLDEN, _FIRST, _SECOND = (value - 2**64 for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class PairSet:
    """Overlapping pairs of digits of different classes, generated on the fly: MultiMNIST of Sabour et al. (2017).

    digits: the images. length: the number of pairs to use, spread evenly over all; default: one for each digit.
    pairs_per_digit: the number of pairs with the same first digit; the second is a random digit of another class.
    shift: the largest translation of both digits along each axis, in pixels; the frame is larger by as much on all
    sides. seed: determines partners and shifts, which are the same for a pair every time.
    """

    labels_per_image = 2
    kind = "images"

    def __init__(
        self, digits: ImageSet, length: int | None = None, pairs_per_digit: int = 1000, shift: int = 4, seed: int = 0
    ) -> None:
        check_count("PairSet", "pairs_per_digit", pairs_per_digit)
        check_count("PairSet", "shift", shift, low=0)
        present = sum(count > 0 for count in digits.counts().values())
        if present < 2:
            raise input_error("PairSet", "digits of at least two classes", f"{present}", "Add another class.")
        total = len(digits) * pairs_per_digit
        length = len(digits) if length is None else length
        if not 1 <= length <= total:
            raise input_error("PairSet", f"a length from 1 to {total}", length, "Ask for fewer pairs.")
        self.digits, self.length, self.seed = digits, length, seed
        self.pairs_per_digit, self.shift = pairs_per_digit, shift
        self._by_class = digits.labels.argsort(stable=True)
        self._counts = torch.bincount(digits.labels, minlength=len(digits.classes))
        self._starts = self._counts.cumsum(0) - self._counts

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.digits.classes

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of the frame."""
        channels, height, width = self.digits.image_shape
        return channels, height + 2 * self.shift, width + 2 * self.shift

    def shortened(self, length: int) -> PairSet:
        """Fewer pairs of the same digits."""
        return PairSet(self.digits, length, self.pairs_per_digit, self.shift, self.seed)

    def __len__(self) -> int:
        return self.length

    def members(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The indices of the two digits of each pair [b 2], and their shifts down and to the right [b 2 2]."""
        pairs = indices * (len(self.digits) * self.pairs_per_digit) // self.length
        base = pairs // self.pairs_per_digit
        numbers = draws(self.seed, pairs, 5)
        label = self.digits.labels[base]
        # In the order of classes, the digits of the base's class are a gap, which is skipped.
        place = numbers[:, 0] % (len(self.digits) - self._counts[label])
        partner = self._by_class[place + self._counts[label] * (place >= self._starts[label])]
        shifts = numbers[:, 1:].unflatten(1, (2, 2)) % (2 * self.shift + 1) - self.shift
        return torch.stack([base, partner], -1), shifts

    def batch(self, indices: Tensor) -> Batch:
        """The pairs with these indices [b]: images, labels [b 2], and both digits alone as parts [b 2 c h w]."""
        members, shifts = self.members(indices)
        top, left = shifts.flatten(0, 1).unbind(-1)
        parts = _place(self.digits.images[members.flatten()], top, left, self.shift).float() / 255
        parts = parts.unflatten(0, (-1, 2))
        return Batch(parts.sum(1).clamp(max=1), self.digits.labels[members], parts)


def multimnist(folder: Path) -> Splits:
    """Pairs of overlapping MNIST digits, 36x36 pixels, made on the fly: 55,000 / 5,000 / 10,000."""
    return _pairs(_mnist(folder))


def multimnist_5k(folder: Path | None = None) -> Splits:
    """Pairs of overlapping digits of mnist-5k, 36x36 pixels, made on the fly: 17,500 / 500 / 1,000."""
    return _pairs(mnist_5k(folder), each=5)


def translated(folder: Path) -> Splits:
    """MNIST digits placed at random in 40x40 pixels: 55,000 / 5,000 / 10,000."""
    return _each(_mnist(folder), _translate)


def translated_5k(folder: Path | None = None) -> Splits:
    """The digits of mnist-5k placed at random in 40x40 pixels: 3,500 / 500 / 1,000."""
    return _each(mnist_5k(folder), _translate)


def affnist(folder: Path) -> Splits:
    """MNIST digits turned, sheared, scaled and moved in 40x40 pixels, as in affNIST: 55,000 / 5,000 / 10,000."""
    return _each(_mnist(folder), _deform)


def affnist_5k(folder: Path | None = None) -> Splits:
    """The digits of mnist-5k turned, sheared, scaled and moved in 40x40 pixels, as in affNIST: 3,500 / 500 / 1,000."""
    return _each(mnist_5k(folder), _deform)


def draws(seed: int, keys: Tensor, count: int) -> Tensor:
    """For each key [b], `count` random integers [b count] from 0 to 2^53 - 1 that depend only on the key and the seed.

    Integer arithmetic only (splitmix64), so the numbers are the same on every machine and in every order.
    """
    start = _mix(torch.tensor(seed, device=keys.device) * _GOLDEN)
    counter = keys.unsqueeze(-1) * count + torch.arange(1, count + 1, device=keys.device)
    return _down(_mix(start + counter * _GOLDEN), 11)


def _mix(state: Tensor) -> Tensor:
    state = (state ^ _down(state, 30)) * _FIRST
    state = (state ^ _down(state, 27)) * _SECOND
    return state ^ _down(state, 31)


def _down(state: Tensor, bits: int) -> Tensor:
    """Logical shift right; torch's own is arithmetic."""
    return (state >> bits) & ((1 << (64 - bits)) - 1)


def _place(images: Tensor, down: Tensor, right: Tensor, room: int) -> Tensor:
    """Pad each image by `room` pixels on all sides and translate it by down and right, at most room."""
    height, width = images.shape[-2] + 2 * room, images.shape[-1] + 2 * room
    return window(pad(images, [2 * room] * 4), room - down, room - right, height, width)


def _translate(images: Tensor, generator: Generator) -> Tensor:
    room = (FRAME - images.shape[-1]) // 2
    down, right = torch.randint(-room, room + 1, (2, len(images)), generator=generator)
    return _place(images, down, right, room)


def _deform(images: Tensor, generator: Generator) -> Tensor:
    images = pad(images, [(FRAME - images.shape[-1]) // 2] * 4).float()
    return warp(images, *affnist_maps(images, generator)).round_().clamp_(0, 255).byte()


def affnist_maps(images: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """Random affine maps for `warp`, matrices [b 2 2] and offsets [b 2], under which all ink stays in the image.

    As in affNIST: turned by up to 20 degrees, sheared by up to 0.2, scaled by 0.8 to 1.2 along each axis, moved as far
    as the digit stays inside.
    """
    angle, shear, stretch_x, stretch_y, *places = torch.rand(6, len(images), generator=generator) * 2 - 1
    linear = linear_maps(radians(20) * angle, 0.2 * shear, 1 + 0.2 * stretch_x, 1 + 0.2 * stretch_y)
    sides = torch.tensor([images.shape[-1], images.shape[-2]])
    # The outermost point after the map is the end of a row before it, so the ends of the rows suffice.
    ink = (images > 0).any(1).byte()
    ends = torch.cat([ink.argmax(-1), sides[0] - 1 - ink.flip(-1).argmax(-1)], -1)  # [b 2h]
    rows = torch.arange(images.shape[-2]).repeat(2).expand_as(ends)
    points = linear @ (torch.stack([ends, rows], 1) - (sides.unsqueeze(-1) - 1) / 2)  # [b 2 2h]
    empty = (ink.amax(-1) == 0).repeat(1, 2).unsqueeze(1)
    # Interpolation spreads ink by one pixel, which the map stretches too.
    reach = linear.abs().sum(-1)
    least = points.masked_fill(empty, torch.inf).amin(-1) - reach
    most = points.masked_fill(empty, -torch.inf).amax(-1) + reach
    low, high = -(sides + 1) / 2 - least, (sides + 1) / 2 - most
    room = ((high - low) / 2).clamp(min=0)  # none where a digit is larger than the image: it is centered
    offset = (low + high) / 2 + room * torch.stack(places, -1)
    return linear, offset.nan_to_num(0, 0, 0)  # an image without ink may stay


def _mnist(folder: Path) -> Splits:
    from torchcaps.data.mnist import mnist

    return mnist(folder)


def _pairs(parts: Splits, each: int = 1) -> Splits:
    """`each` pairs for each training digit, one for each other digit, at most 10,000 for validation and test."""
    train, validation, test = parts[:3]
    sets = [
        PairSet(train, each * len(train), seed=0),
        PairSet(validation, min(len(validation), 10_000), seed=1),
        PairSet(test, min(len(test), 10_000), seed=2),
    ]
    # Training and evaluation need only the protocol `Examples`.
    return Splits(*cast("list[ImageSet]", sets))


def _each(parts: Splits, change: Callable[[Tensor, Generator], Tensor]) -> Splits:
    """All parts with their images changed, each with its own seed."""
    changed = []
    for seed, part in enumerate(parts[:3]):
        generator = Generator().manual_seed(seed)
        images = torch.cat([change(chunk, generator) for chunk in part.images.split(1000)])
        changed.append(replace(part, images=images))
    return Splits(*changed)
