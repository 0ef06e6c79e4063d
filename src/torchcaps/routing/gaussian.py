"""Gaussian routing clusters votes by a mixture of Gaussians: plain expectation-maximization.

Su Jianlin 2018, "Matrix capsules and EM routing" (kexue.fm 5155), eqs. 4, 6, 7, 9 (full covariance), 10 (diagonal)
and 11 (one fixed variance for all).
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from typing_extensions import Unpack

from torchcaps._core.errors import check_choice, check_positive, check_range
from torchcaps._core.types import Activations, Couplings, Routed
from torchcaps.functional import combine, distances, mass, moments
from torchcaps.routing.base import Routing
from torchcaps.routing.checks import Choice, Control, Range, check_idle
from torchcaps.routing.competition import CompetitionOptions
from torchcaps.routing.fused import fused_density, fused_fit, has_kernel, why_not_fused
from torchcaps.votes.algebra import Votes, as_votes

LOG_2PI = math.log(2 * math.pi)


class Mixture(NamedTuple):
    """The clusters of a Gaussian mixture."""

    masses: Tensor  # [*b j]
    means: Tensor  # [*b j d]
    covariances: Tensor  # [*b j d d] if full, else variances [*b j d]
    log_prior: Tensor  # [*b j]


class Gaussian(Routing):
    """A mixture of Gaussians, in which the children are samples weighted by their activations.

    covariance: "full", "diagonal", "spherical", or "fixed" (the same `variance` for all, never fitted).
    variance_floor: added to every variance; to the diagonal of a full covariance it is added times one plus the mean
    variance, so that fewer children than dimensions cause no problem at any scale. mass_floor: added to every cluster's
    mass. Set floors to zero only for many children, as in plain clustering. sharpness: a factor of the log-density in
    the E-step. In many dimensions densities differ so much that couplings become nearly 0 or 1 from the second
    iteration on; 1 / out_dim (the log-density per dimension) keeps them soft.
    """

    readout = "share"
    parents_are_means = True
    translation_equivariant = True
    uses_activations = True
    controls: ClassVar[dict[str, Control]] = {
        "covariance": Choice(("full", "diagonal", "spherical", "fixed"), "The shape of a cluster."),
        "variance": Range(0.05, 5.0, "The variance of all clusters where the shape is fixed."),
        "sharpness": Range(0.05, 2.0, "A factor of the log-density when points are assigned."),
    }

    def __init__(
        self,
        iterations: int = 3,
        *,
        covariance: str = "diagonal",
        variance: float = 1.0,
        variance_floor: float = 1e-4,
        mass_floor: float = 1e-7,
        sharpness: float = 1.0,
        **competition: Unpack[CompetitionOptions],
    ) -> None:
        super().__init__(iterations, **competition)
        check_positive(self.name, "sharpness", sharpness)
        check_choice(self.name, "covariance", covariance, ["full", "diagonal", "spherical", "fixed"])
        check_positive(self.name, "variance", variance)
        check_idle(self.name, 'unless covariance="fixed"', variance=variance != 1 and covariance != "fixed")
        check_range(self.name, "variance_floor", variance_floor, 0)
        check_range(self.name, "mass_floor", mass_floor, 0)
        self.covariance = covariance
        self.variance = variance
        self.variance_floor = variance_floor
        self.mass_floor = mass_floor
        self.sharpness = sharpness

    def update(
        self, votes: Votes, weights: Couplings, previous: Mixture | None, step: int, origin: Tensor | None = None
    ) -> Mixture:
        fitted = self.covariance in ("diagonal", "spherical")
        before = None if previous is None else previous.means
        found = moments(weights, votes, near=before) if fitted else None
        fused = None if found is None else fused_fit(self, found, origin, before, step)
        if fused is not None:
            return Mixture(*fused)
        masses = (mass(weights) if found is None else found.masses) + self.mass_floor
        sums = combine(weights, votes) if found is None else found.sums
        if origin is not None:  # the floor is a mass there
            sums = torch.add(sums, origin, alpha=self.mass_floor)
        means = self._damp(sums / masses.unsqueeze(-1), origin if before is None else before)  # eq. 6
        if self.covariance == "full":
            covariances = self._full_covariances(as_votes(votes).dense() - means.unsqueeze(-3), weights, masses)
        elif found is None:
            covariances = torch.full_like(means, self.variance)  # eq. 11
        else:
            covariances = found.spread(means) / masses.unsqueeze(-1) + self.variance_floor  # eq. 10
            if self.covariance == "spherical":
                covariances = covariances.mean(-1, keepdim=True).expand_as(means)
        return Mixture(masses, means, covariances, self._log_prior(masses, covariances, step))

    @has_kernel
    def _damp(self, means: Tensor, previous: Tensor | None) -> Tensor:
        return means

    def why_not_fused(self) -> str | None:
        """Why a GPU computes the clusters by operations of torch, not by a kernel; None if it has one."""
        return why_not_fused(self)

    def _full_covariances(self, centered: Tensor, weights: Tensor, masses: Tensor) -> Tensor:
        scatter = torch.einsum("...ijd,...ijf->...jdf", centered * weights.unsqueeze(-1), centered)  # eq. 7
        covariances = scatter / masses[..., None, None]
        scale = 1 + covariances.diagonal(dim1=-2, dim2=-1).mean(-1)
        eye = torch.eye(centered.shape[-1], dtype=centered.dtype, device=centered.device)
        return covariances + self.variance_floor * scale[..., None, None] * eye

    def _log_prior(self, masses: Tensor, covariances: Tensor, step: int) -> Tensor:
        """log pi_j, the cluster's share of the mass (eq. 9)."""
        return (masses / masses.sum(-1, keepdim=True)).clamp(min=torch.finfo(masses.dtype).tiny).log()

    def log_density(self, votes: Votes, clusters: Mixture, *, offset: Tensor | float = 0.0) -> Tensor:
        """sharpness log N(vote; mean, covariance) + offset [*b j], for every pair, [*b i j] (eqs. 2, 10)."""
        sharpness = self.sharpness
        if self.covariance == "full":
            centered = as_votes(votes).dense() - clusters.means.unsqueeze(-3)
            root = torch.linalg.cholesky_ex(clusters.covariances).L
            white = torch.linalg.solve_triangular(root, centered.movedim(-3, -1), upper=False)  # [*b j d i]
            exponents = -sharpness / 2 * white.square().sum(-2).mT
            logarithm = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        else:
            beside = sharpness, votes.shape[-1] * LOG_2PI / 2
            fused = fused_density(votes, clusters.covariances, offset, *beside)
            if fused is not None:
                return distances(votes, clusters.means, *fused)
            logarithm = clusters.covariances.log().sum(-1) / 2
        constant = offset - sharpness * (logarithm + votes.shape[-1] * LOG_2PI / 2)
        if self.covariance != "full":
            return distances(votes, clusters.means, -sharpness / 2 / clusters.covariances, constant)
        return exponents + constant.unsqueeze(-2)

    def assign(self, votes: Votes, clusters: Mixture, scores: Tensor, step: int) -> Tensor:
        return self.log_density(votes, clusters, offset=clusters.log_prior)  # eq. 4

    def read(self, clusters: Mixture, couplings: Couplings, weights: Activations) -> Routed:
        return Routed(clusters.means, clusters.log_prior.exp(), couplings)

    def objective(
        self, votes: Votes, couplings: Couplings, weights: Activations, clusters: Mixture, step: int
    ) -> Tensor | None:
        """Minus the log-likelihood; with hard couplings the likelihood of the best cluster."""
        if self.sharpness != 1:
            return None
        scores = self.assign(votes, clusters, couplings, step)
        likelihood = scores.amax(-1) if self.hard else scores.logsumexp(-1)
        if self.leaky:
            zero = torch.zeros_like(likelihood)
            likelihood = torch.maximum(likelihood, zero) if self.hard else torch.logaddexp(likelihood, zero)
        return -(weights * likelihood).sum(-1)
