"""Convergence of votes: their distances from the mean of each class, in every iteration.

Hinton, Sabour, Frosst 2018, "Matrix Capsules with EM Routing", figure 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps._core.errors import input_error
from torchcaps.analysis.lastlayer import Voted


@dataclass(frozen=True)
class Convergence:
    """For every iteration n: distances [n i j] of votes from their parent's mean, couplings [n i j], activations [n j].

    Distances are weighted by couplings, as in the paper.
    """

    distances: Tensor
    couplings: Tensor
    activations: Tensor

    @property
    def mean_distances(self) -> Float[Tensor, "n j"]:
        """The mean distance of each parent's votes, weighted by their couplings."""
        total = (self.couplings * self.distances).sum(1)
        return total / self.couplings.sum(1).clamp(min=torch.finfo(total.dtype).tiny)


def convergence(voted: Voted) -> Convergence:
    """The distances of votes from the mean of each parent.

    If parents are means, these are their poses; if they are sums, the mean is that of the votes, weighted by couplings.
    Couplings must not be negative, which a learned prior can make them.
    """
    if any(bool((routed.couplings < 0).any()) for routed in voted.steps):
        remedy = "Use a run with em, heinsen, variational, gaussian, kde, kmeans, entropy, inverted or dynamic routing."
        raise input_error("convergence", "couplings from 0 to 1", "negative ones (a learned prior)", remedy)
    found = []
    for routed in voted.steps:
        means = routed.poses
        if not voted.parents_are_means:
            mass = routed.couplings.sum(0).clamp(min=torch.finfo(means.dtype).tiny)
            means = torch.einsum("ij,ijd->jd", routed.couplings, voted.votes) / mass.unsqueeze(1)
        found.append((voted.votes - means).norm(dim=-1))
    return Convergence(
        torch.stack(found),
        torch.stack([routed.couplings for routed in voted.steps]),
        torch.stack([routed.activations for routed in voted.steps]),
    )
