"""The number of matrices of a capsule layer: one for each pair of child and parent, or one for each parent."""

from __future__ import annotations

from dataclasses import dataclass

from torchcaps.layers import DenseCapsules


@dataclass(frozen=True)
class WeightCount:
    """The vote matrices of one kind of layer: their number, and their total number of parameters."""

    votes: str
    matrices: int
    parameters: int


def weight_counts(in_capsules: int, out_capsules: int, in_dim: int, out_dim: int) -> tuple[WeightCount, WeightCount]:
    """Full and shared weights, counted in layers of these sizes."""
    found = []
    for votes in ("full", "shared"):
        layer = DenseCapsules(in_capsules, out_capsules, in_dim, out_dim, votes=votes)
        numbers = sum(parameter.numel() for parameter in layer.transform.parameters())
        found.append(WeightCount(votes, numbers // (in_dim * out_dim), numbers))
    return found[0], found[1]
