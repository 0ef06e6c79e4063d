"""Copies of pictures, exact or nearly: compressed again, resized, a little brighter."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from torchcaps.data.base import ImageSet, Splits

BITS = 3  # of 64, by which the signs of copies may differ
CORRELATION = 0.995  # of the pixels of thumbnails of copies, at least
MOST = 30_000  # images that are compared: more would take minutes
CHUNK = 512


def thumbnails(images: ImageSet) -> tuple[Tensor, Tensor]:
    """Of each image the signs of the steps from left to right in 8 x 9 pixels, [n 64], and 16 x 16 pixels, [n (c h w)].

    Signs are 1 and -1. Pixels have mean zero and norm one; those of an even image are zeros.
    """
    signs, small = [], []
    for chunk in images.images.split(CHUNK):
        coarse = adaptive_avg_pool2d(chunk.float().mean(1, keepdim=True), (8, 9))
        signs.append(((coarse[..., 1:] > coarse[..., :-1]).flatten(1) * 2 - 1).float())
        pixels = adaptive_avg_pool2d(chunk.float(), (16, 16)).flatten(1)
        pixels = pixels - pixels.mean(1, keepdim=True)
        small.append(pixels / pixels.norm(dim=1, keepdim=True).clamp(min=16))
    return torch.cat(signs), torch.cat(small)


def _alike(some: tuple[Tensor, Tensor], others: tuple[Tensor, Tensor]) -> Tensor:
    """Pairs (row, row) [2 p] of images that are copies of each other."""
    found = []
    for start, (signs, small) in zip(
        range(0, len(some[0]), CHUNK), zip(some[0].split(CHUNK), some[1].split(CHUNK), strict=True), strict=True
    ):
        rows, places = (signs @ others[0].T >= 64 - 2 * BITS).nonzero(as_tuple=True)
        for mine, theirs in zip(rows.split(100_000), places.split(100_000), strict=True):
            near = (small[mine] * others[1][theirs]).sum(1) >= CORRELATION
            found.append(torch.stack([mine[near] + start, theirs[near]]))
    return torch.cat(found, 1) if found else torch.zeros(2, 0, dtype=torch.long)


def copies_between(some: ImageSet, others: ImageSet) -> list[tuple[int, int]]:
    """Rows of images of two sets that are copies of each other; none for more images than can be compared."""
    if len(some) + len(others) > MOST or not len(some) or not len(others):
        return []
    return [(mine, theirs) for mine, theirs in _alike(thumbnails(some), thumbnails(others)).T.tolist()]


def without_copies(data: ImageSet) -> ImageSet:
    """The images without those that are copies of an earlier one."""
    known = thumbnails(data)
    first, second = _alike(known, known)
    keep = torch.ones(len(data), dtype=torch.bool)
    keep[second[first < second]] = False
    return data.take(keep)


def deduplicated(data: ImageSet | Splits) -> ImageSet | Splits:
    """The data without copies; of parts, those that are in the test part stay there, and leave the others."""
    if isinstance(data, ImageSet):
        return without_copies(data)
    test, validation, train = (without_copies(part) for part in (data.test, data.validation, data.train))
    validation = _without(validation, test)
    return Splits(_without(_without(train, test), validation), validation, test, data.novel)


def _without(data: ImageSet, others: ImageSet) -> ImageSet:
    keep = torch.ones(len(data), dtype=torch.bool)
    keep[_alike(thumbnails(data), thumbnails(others))[0]] = False
    return data.take(keep)
