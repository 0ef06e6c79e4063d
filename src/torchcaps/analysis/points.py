"""Sets of points in the plane that show properties of routings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps._core.errors import check_choice


@dataclass(frozen=True)
class PointSet:
    """Points [i 2], the group that each was drawn from, [i], and the number of groups."""

    points: Tensor
    groups: Tensor
    parents: int


def _blobs(dice: torch.Generator) -> list[Tensor]:
    """Three round, well separated groups."""
    centers = ((-2.6, -1.4), (2.6, -1.4), (0.0, 2.4))
    return [torch.randn(50, 2, generator=dice) * 0.8 + torch.tensor(center) for center in centers]


def _ellipses(dice: torch.Generator) -> list[Tensor]:
    """Three elongated groups side by side: the nearest point is often one of another group, so distance misleads."""
    groups = []
    for turn, center in ((35, (-1.6, 0.4)), (35, (1.6, -0.4)), (-55, (2.3, 3.4))):
        angle = math.radians(turn)
        rotation = torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        groups.append(
            (torch.randn(60, 2, generator=dice) * torch.tensor([2.0, 0.28])) @ rotation + torch.tensor(center)
        )
    return groups


def _directions(dice: torch.Generator) -> list[Tensor]:
    """Three rays from the origin, with points near and far: groups differ in direction, not in position."""
    groups = []
    for turn in (10, 60, 215):
        angle = math.radians(turn) + 0.12 * torch.randn(50, generator=dice)
        far = 0.4 + 5.6 * torch.rand(50, generator=dice)
        groups.append(torch.stack([far * angle.cos(), far * angle.sin()], 1))
    return groups


def _overlap(dice: torch.Generator) -> list[Tensor]:
    """Two round groups that overlap: the points between belong to both."""
    return [torch.randn(60, 2, generator=dice) + torch.tensor([place, 0.0]) for place in (-1.3, 1.3)]


POINTS: dict[str, Callable[[torch.Generator], list[Tensor]]] = {
    "blobs": _blobs,
    "ellipses": _ellipses,
    "directions": _directions,
    "overlap": _overlap,
}


def make_points(name: str = "blobs", seed: int = 0) -> PointSet:
    """A set of `POINTS` by name, determined by the seed."""
    check_choice("make_points", "points", name, list(POINTS))
    groups = POINTS[name](torch.Generator().manual_seed(seed))
    labels = torch.arange(len(groups)).repeat_interleave(torch.tensor([len(group) for group in groups]))
    return PointSet(torch.cat(groups), labels, len(groups))
