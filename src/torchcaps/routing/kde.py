"""KDE routing clusters votes by climbing their density: parents are modes, found by mean shift.

Zhang, Zhao, Wu, Zhou 2018, "Fast Dynamic Routing Based on Weighted Kernel Density Estimation": maximize the weighted
density Sum_ij c_ij k(|u_j|i - v_j|^2 / h^2) over modes v_j and couplings. This is the paper's mean shift (FRMS): v_j
moves to the mean of its votes, each weighed by c_ij and by -k' where v_j was, and scores grow by a multiple of k. (Its
other way, by EM, is `kmeans` where kernels are Gaussian.) Adaptive stopping: Zhao et al. 2019, "Towards Scalable and
Reliable Capsule Networks for Challenging NLP Applications", who watch the logarithm of the density of a batch.

Differs from these: each example stops for itself, so that batch mates never matter, and after `iterations` updates at
the latest; the change is relative and no logarithm, which the released code takes of numbers below zero. Activations
are densities.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from typing_extensions import Unpack

from torchcaps._core.errors import check_choice, check_positive, check_range
from torchcaps._core.types import Activations, Couplings, Routed, can_look_at
from torchcaps.functional import distances, safe_divide
from torchcaps.routing.checks import Choice, Control, Range
from torchcaps.routing.competition import CompetitionOptions
from torchcaps.routing.kmeans import weighted_means
from torchcaps.routing.sharp import Sharp
from torchcaps.votes.algebra import Votes


class Modes(NamedTuple):
    """The clusters of mean shift."""

    means: Tensor  # [*b j d]
    kernels: Tensor  # k of each vote at its parent's mode, [*b i j]
    pulls: Tensor | None  # -k' where the modes were before, by which votes were weighed, [*b i j]
    density: Tensor  # of the example, [*b]
    settled: Tensor  # [*b]


class KDE(Sharp):
    """Modes of the votes' weighted density, found by mean shift until an example has converged.

    iterations: the maximum. tolerance: an example has converged, and does not change any more, when its density grew by
    no more than this fraction of itself in one iteration. kernel: "gaussian", exp(-x/2), or "epanechnikov", 1 - x up to
    x = 1 and zero beyond, of x = distance^2 / bandwidth^2. bandwidth: left out, the order of the distance of votes that
    do not agree from their mean, vote_std * sqrt(out_dim / 2); one if vote_std or out_dim is unknown. vote_std,
    out_dim: the expected standard deviation and the size of votes; layers fill them in. sharpness: the increase of a
    score in an iteration where the kernel is one. mass_floor: a mode with less mass keeps its previous value.
    """

    readout = "share"
    parents_are_means = True
    translation_equivariant = True
    uses_activations = True
    controls: ClassVar[dict[str, Control]] = {
        "kernel": Choice(("gaussian", "epanechnikov"), "How the weight of a point falls with its distance."),
        "bandwidth": Range(0.1, 3.0, "How far away a point still counts: h."),
        "sharpness": Range(0.05, 10.0, "How surely the densest parent wins."),
        "tolerance": Range(0.0, 0.5, "It settles when the density grew by no more than this share."),
    }

    def __init__(
        self,
        iterations: int = 5,
        *,
        kernel: str = "gaussian",
        bandwidth: float | None = None,
        sharpness: float = 2.0,
        tolerance: float = 0.05,
        mass_floor: float = 1e-7,
        vote_std: float | None = None,
        out_dim: int | None = None,
        **competition: Unpack[CompetitionOptions],
    ) -> None:
        super().__init__(iterations, sharpness=sharpness, **competition)
        check_choice(self.name, "kernel", kernel, ["gaussian", "epanechnikov"])
        if bandwidth is None:
            bandwidth = 1.0 if vote_std is None or out_dim is None else vote_std * math.sqrt(out_dim / 2)
        for word, value in (("bandwidth", bandwidth), ("mass_floor", mass_floor)):
            check_positive(self.name, word, value)
        check_range(self.name, "tolerance", tolerance, 0)
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.tolerance = tolerance
        self.mass_floor = mass_floor

    def update(
        self, votes: Votes, weights: Couplings, previous: Modes | None, step: int, origin: Tensor | None = None
    ) -> Modes:
        if previous is None:
            pulls, before = None, None
        else:
            pulls, before = self._pulls(previous), previous.means
        weighed = weights if pulls is None else weights * pulls
        means = weighted_means(votes, weighed, before, origin, self.mass_floor).means
        kernels = self._kernels(distances(votes, means) / self.bandwidth**2)
        density = (weights * kernels).sum((-1, -2))
        settled = torch.zeros_like(density, dtype=torch.bool)
        if previous is not None:
            settled = previous.settled | (density - previous.density <= self.tolerance * density)
        return Modes(means, kernels, pulls, density, settled)

    def _kernels(self, squares: Tensor) -> Tensor:
        return (-squares / 2).exp() if self.kernel == "gaussian" else (1 - squares).clamp(min=0)

    def _pulls(self, modes: Modes) -> Tensor:
        """-k' at the modes; unchanged for a settled example, whose modes thus stay the same function of its votes."""
        pulls = modes.kernels if self.kernel == "gaussian" else (modes.kernels > 0).to(modes.kernels.dtype)
        return pulls if modes.pulls is None else torch.where(modes.settled[..., None, None], modes.pulls, pulls)

    def assign(self, votes: Votes, clusters: Modes, scores: Tensor, step: int) -> Tensor:
        return torch.where(clusters.settled[..., None, None], scores, scores + self.sharpness * clusters.kernels)

    def converged(self, clusters: Modes) -> bool:
        # Inspecting values would synchronize other devices. Settled examples are frozen, so this only saves time.
        return can_look_at(clusters.settled) and bool(clusters.settled.all())

    def read(self, clusters: Modes, couplings: Couplings, weights: Activations) -> Routed:
        """Modes, and their densities as shares of the children's weight."""
        densities = (couplings * weights.unsqueeze(-1) * clusters.kernels).sum(-2)
        return Routed(clusters.means, safe_divide(densities, weights.sum(-1, keepdim=True)), couplings)

    def objective(
        self, votes: Votes, couplings: Couplings, weights: Activations, clusters: Modes, step: int
    ) -> Tensor | None:
        """Minus the weighted density; None for hard couplings, which may decrease the density."""
        return None if self.hard else -clusters.density
