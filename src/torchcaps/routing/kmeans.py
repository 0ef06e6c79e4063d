"""k-means routing clusters votes around means (Euclidean) or around directions (inner product), softly.

Su Jianlin 2018, "From K-Means to Capsule" (kexue.fm 5112): the minimum over clusters in the loss of k-means is
softened to -1/K log Sum exp(-K d), which gives couplings softmax_j(-K d_ij). K is the sharpness; `hard` its limit.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from typing_extensions import Unpack

from torchcaps._core.errors import check_choice, check_positive
from torchcaps._core.types import Activations, Couplings, Routed
from torchcaps.functional import agree, combine, distances, length, mass, safe_divide, squash, unit
from torchcaps.routing.checks import Choice, Control, Range
from torchcaps.routing.sharp import Sharp, SharpOptions
from torchcaps.votes.algebra import Votes


class Centers(NamedTuple):
    """The clusters of k-means."""

    means: Tensor  # [*b j d]
    masses: Tensor  # [*b j]


def weighted_means(
    votes: Votes, weights: Couplings, previous: Tensor | None, origin: Tensor | None, mass_floor: float
) -> Centers:
    """The means of the votes under these weights; a mean with less mass than mass_floor keeps its previous value."""
    sums, masses = combine(weights, votes), mass(weights)
    floored = masses.clamp(min=mass_floor).unsqueeze(-1)
    means = sums / floored
    if origin is not None:  # mass missing below the floor is placed at the origin
        means = means + origin * (1 - masses.unsqueeze(-1) / floored)
    empty = (masses < mass_floor).unsqueeze(-1)
    return Centers(means if previous is None else torch.where(empty, previous, means), masses)


class KMeans(Sharp):
    """Soft k-means.

    distance: "euclidean" (d = |u - v|^2, centers are means, activations are shares of the children) or "inner"
    (d = -<u, v/|v|>, centers are sums, squashed at the end, activations are lengths). sharpness: K. mass_floor: a mean
    with less mass keeps its previous value.
    """

    controls: ClassVar[dict[str, Control]] = {
        "distance": Choice(("euclidean", "inner"), "Near means by place, or by direction."),
        "sharpness": Range(0.05, 10.0, "How sharply near parents are preferred: K."),
    }

    def __init__(
        self,
        iterations: int = 3,
        *,
        distance: str = "euclidean",
        mass_floor: float = 1e-7,
        **options: Unpack[SharpOptions],
    ) -> None:
        super().__init__(iterations, **options)
        check_choice(self.name, "distance", distance, ["euclidean", "inner"])
        check_positive(self.name, "mass_floor", mass_floor)
        self.parents_are_means = self.translation_equivariant = distance == "euclidean"
        self.readout = "share" if self.parents_are_means else "length"
        self.distance = distance
        self.mass_floor = mass_floor

    def update(
        self, votes: Votes, weights: Couplings, previous: Centers | None, step: int, origin: Tensor | None = None
    ) -> Centers:
        if self.distance == "inner":
            return Centers(combine(weights, votes), mass(weights))
        return weighted_means(votes, weights, None if previous is None else previous.means, origin, self.mass_floor)

    def _distances(self, votes: Votes, clusters: Centers) -> Tensor:
        if self.distance == "inner":
            return -agree(votes, unit(clusters.means))
        return distances(votes, clusters.means)

    def assign(self, votes: Votes, clusters: Centers, scores: Tensor, step: int) -> Tensor:
        return -self.sharpness * self._distances(votes, clusters)

    def read(self, clusters: Centers, couplings: Couplings, weights: Activations) -> Routed:
        if self.distance == "inner":
            poses = squash(clusters.means)
            return Routed(poses, length(poses), couplings)
        shares = safe_divide(clusters.masses, weights.sum(-1, keepdim=True))
        return Routed(clusters.means, shares, couplings)

    def objective(
        self, votes: Votes, couplings: Couplings, weights: Activations, clusters: Centers, step: int
    ) -> Tensor | None:
        """Sum_ij c_ij d_ij + 1/K Sum_ij c_ij log c_ij, whose minimum over the couplings is the softened loss."""
        loss = (couplings * self._distances(votes, clusters)).sum((-1, -2))
        return loss + self.negative_entropy(couplings).sum(-1) / self.sharpness
