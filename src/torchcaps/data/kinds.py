"""Kinds of pictures, told from their pixels: recipes of training depend on them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, one_hot

PHOTOGRAPHS, DRAWINGS = "photographs", "drawings"
LOOKED_AT = 256  # pictures, spread over the set
FEWEST, COMPARED = 16, 2000  # pictures that are learned with and without mirror images, at THUMBNAIL pixels a side
THUMBNAIL = 12
LOST = 0.06  # of the accuracy with mirror images, above which they would teach wrong classes
SMALL = 16  # pixels a side
FLAT = 0.5  # the share of pixels that equal their neighbors, above which pictures are drawings


def picture_kind(examples: Any) -> str | None:
    """Tell "photographs" from "drawings" (also digits, on an even background); None for other examples.

    In a drawing many pixels are the same as the one above and the one to the left; in a photograph hardly any are.
    Pictures of fewer than 16 pixels a side count as drawings. examples: an `ImageSet`; other examples have no kind.
    """
    images = getattr(examples, "images", None)
    if images is None or not len(images):
        return None
    if min(images.shape[-2:]) < SMALL:
        return DRAWINGS
    rows = torch.linspace(0, len(images) - 1, min(len(images), LOOKED_AT)).long()
    some = images[rows]
    here = some[..., 1:, 1:]
    flat = ((here == some[..., :-1, 1:]) & (here == some[..., 1:, :-1])).all(1)
    return DRAWINGS if flat.float().mean() > FLAT else PHOTOGRAPHS


def tells_left_from_right(examples: Any) -> bool:
    """Whether classes differ by left and right, like arrows or letters, so that training must not mirror pictures.

    A linear classifier of thumbnails learns half of the pictures, with and without their mirror images, and is tried on
    the other half. (That shoes on all pictures point to the left is no difference between classes.) examples: an
    `ImageSet` with one label for each image.
    """
    rows = torch.linspace(0, len(examples) - 1, min(len(examples), COMPARED)).long().unique()
    if len(rows) < FEWEST:
        return False
    pictures = examples.images[rows].float().mean(1, keepdim=True)
    labels = examples.labels[rows]
    small = adaptive_avg_pool2d(pictures, (min(THUMBNAIL, pictures.shape[-2]), min(THUMBNAIL, pictures.shape[-1])))
    small = (small - small.mean()) / small.std().clamp(min=1e-6)
    place = torch.rand(len(rows), generator=torch.Generator().manual_seed(0))
    lost = 0.0
    for half in (place < 0.5, place >= 0.5):
        truth = one_hot(labels[half], len(examples.classes)).float()
        learned = small[half].flatten(1)
        mirrored = torch.cat([learned, small[half].flip(-1).flatten(1)])
        alone, both = (
            _ridge(inputs, wanted)(small[~half].flatten(1)) == labels[~half]
            for inputs, wanted in ((learned, truth), (mirrored, truth.repeat(2, 1)))
        )
        lost += float(alone.float().mean() - both.float().mean()) / 2
    return lost > LOST


def _ridge(inputs: Tensor, truth: Tensor) -> Any:
    """A linear classifier by penalized least squares, as a function from inputs [n e] to classes [n]."""
    middle = truth.mean(0)
    gram = inputs.T @ inputs + len(inputs) * torch.eye(inputs.shape[1])
    weight = torch.linalg.solve(gram, inputs.T @ (truth - middle))
    return lambda given: (given @ weight + middle).argmax(-1)
