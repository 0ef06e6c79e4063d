"""The votes for the classes of an image as points in the plane, for clustering step by step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from torchcaps._core.errors import check_count
from torchcaps.analysis.lastlayer import Voted

SPREAD = 2.0  # the root mean square of the points along their first axis


@dataclass(frozen=True)
class PlaneVotes:
    """Votes along their first two principal axes, scaled to a common size.

    groups: the class that each vote is for, as an index into `classes`, the most active first. children: their number.
    share: the fraction of the variance of the votes in this plane.
    """

    points: Float[Tensor, "n 2"]
    groups: Int[Tensor, " n"]
    classes: tuple[int, ...]
    children: int
    share: float


def vote_points(voted: Voted, classes: int = 3, most: int = 40) -> PlaneVotes:
    """The votes of the most active children for the most active classes, projected to their principal axes."""
    check_count("vote_points", "classes", classes)
    check_count("vote_points", "most", most)
    best = voted.steps[-1].activations.topk(min(classes, voted.votes.shape[1])).indices
    children = voted.activations.argsort(descending=True, stable=True)[:most]
    votes = voted.votes[children][:, best].movedim(1, 0).double()  # [classes children d]
    groups = torch.arange(len(best)).repeat_interleave(len(children))
    flat = votes.flatten(0, 1)
    centered = flat - flat.mean(0)
    _, sizes, axes = torch.linalg.svd(centered, full_matrices=False)
    points = torch.zeros(len(flat), 2, dtype=flat.dtype)
    axes = axes[:2]
    # The sign of a principal axis is arbitrary: its largest component is made positive.
    axes = axes * axes.gather(1, axes.abs().argmax(1, keepdim=True)).sign()
    points[:, : len(axes)] = centered @ axes.T
    scale = points[:, 0].square().mean().sqrt()
    variance = sizes.square()
    share = float(variance[:2].sum() / variance.sum()) if float(variance.sum()) > 0 else 1.0
    points = points * (SPREAD / scale) if float(scale) > 0 else points
    return PlaneVotes(points, groups, tuple(best.tolist()), len(children), share)
