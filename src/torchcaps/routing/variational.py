"""Variational routing clusters votes by a Bayesian mixture of Gaussians: a posterior over clusters, not a best guess.

Ribeiro, Leontidis, Kollias 2020, "Capsule Routing via Variational Bayes", algorithm 1; the updates are those of Bishop
2006, eqs. 10.46-10.67. Priors keep a parent with few children from collapsing on one of them, and stand where `em` has
floors.

Differs from the paper: each dimension has a Gaussian-Gamma posterior of its own (a Wishart of dimension one, so its
degrees of freedom start at 2 as the paper's at d + 1), because the diagonal of a d-dimensional Wishart is no exact
step and need not raise the evidence bound. Activations are not normalized over a batch, as no result may depend on
batch mates; beta_use counts with the entropy, as in `em`. Responsibilities have E log pi_j in them, as Bishop 10.46.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from torchcaps._core.errors import check_positive
from torchcaps._core.types import Activations, Couplings, Routed
from torchcaps.functional import moments
from torchcaps.routing.checks import Control, Range, needed
from torchcaps.routing.gaussian import LOG_2PI, Gaussian, Mixture
from torchcaps.routing.sharp import SharpOptions
from torchcaps.votes.algebra import Votes


class Variational(Gaussian):
    """A Bayesian mixture of Gaussians; a parent is active if the entropy of its posterior is low.

    out_capsules: the number of parents, for the learned betas. concentration: of the Dirichlet prior over mixing
    proportions. mean_strength, degrees: the number of children that the priors of a mean (at zero) and of a variance
    count for. prior_variance: the variance of a parent without children; left out, vote_std squared.
    inverse_temperature: the factor of the logit of activations. beta_use, beta_active: initial values of learned costs,
    one for each parent; left out, beta_use is minus the entropy of one dimension of votes that do not agree, and
    beta_active zero. vote_std: the expected standard deviation of such votes; left out, one. Layers fill in
    out_capsules and vote_std. sharpness: see `Gaussian`.
    """

    readout = "logistic"
    controls: ClassVar[dict[str, Control]] = {
        "concentration": Range(0.05, 5.0, "How even shares are expected to be."),
        "mean_strength": Range(0.05, 5.0, "How many points the expected place, the origin, counts for."),
        "prior_variance": Range(0.05, 5.0, "The variance that a cluster without points would have."),
    }

    def __init__(
        self,
        iterations: int = 3,
        *,
        out_capsules: int | None = None,
        concentration: float = 1.0,
        mean_strength: float = 1.0,
        degrees: float = 2.0,
        prior_variance: float | None = None,
        inverse_temperature: float = 1.0,
        beta_use: float | None = None,
        beta_active: float | None = None,
        vote_std: float | None = None,
        **options: Unpack[SharpOptions],
    ) -> None:
        super().__init__(iterations, **options)
        self.out_capsules = out_capsules = needed(self.name, "out_capsules", out_capsules, "learned betas")
        self.given = set() if beta_active is None else {"beta_active"}  # what `calibrate` does not change
        vote_std = 1.0 if vote_std is None else vote_std
        check_positive(self.name, "vote_std", vote_std)
        prior_variance = vote_std**2 if prior_variance is None else prior_variance
        for word, value in (
            ("concentration", concentration),
            ("mean_strength", mean_strength),
            ("degrees", degrees),
            ("prior_variance", prior_variance),
            ("inverse_temperature", inverse_temperature),
        ):
            check_positive(self.name, word, value)
        self.concentration = concentration
        self.mean_strength = mean_strength
        self.degrees = degrees
        self.prior_variance = prior_variance
        self.inverse_temperature = inverse_temperature
        beta_use = -(1 + LOG_2PI) / 2 - math.log(vote_std) if beta_use is None else beta_use
        self.beta_use = nn.Parameter(torch.full((out_capsules,), float(beta_use)))
        self.beta_active = nn.Parameter(torch.full((out_capsules,), float(beta_active or 0)))

    def update(
        self, votes: Votes, weights: Couplings, previous: Mixture | None, step: int, origin: Tensor | None = None
    ) -> Mixture:
        """The posterior: `covariances` are inverse expected precisions, `log_prior` all other terms of a score."""
        found = moments(weights, votes, near=None if previous is None else previous.means)
        masses, sums = found.masses, found.sums
        zero = torch.zeros_like(sums) if origin is None else origin
        means = (sums + self.mean_strength * zero) / (self.mean_strength + masses).unsqueeze(-1)  # 10.60, 10.61
        # 10.62, with the prior of a mean as so many votes for zero
        scatter = found.spread(means) + self.mean_strength * (means - zero).square()
        degrees = (self.degrees + masses).unsqueeze(-1)  # 10.63
        covariances = (self.degrees * self.prior_variance + scatter) / degrees
        return Mixture(masses, means, covariances, self._log_prior(masses, covariances, step))

    def _log_prior(self, masses: Tensor, covariances: Tensor, step: int) -> Tensor:
        """The terms of 10.46 other than the density of a vote at the expected precision."""
        uncertain = self._log_slack(masses) - 1 / (self.mean_strength + masses)  # 10.64
        return self._log_shares(masses) + self.sharpness * covariances.shape[-1] / 2 * uncertain

    def _log_shares(self, masses: Tensor) -> Tensor:
        """E log pi_j (10.66), [*b j]."""
        counts = self.concentration + masses  # 10.58
        return torch.digamma(counts) - torch.digamma(counts.sum(-1, keepdim=True))

    def _log_slack(self, masses: Tensor) -> Tensor:
        """E log lambda - log E lambda for a dimension (10.65), [*b j]."""
        half = (self.degrees + masses) / 2
        return torch.digamma(half) - half.log()

    def read(self, clusters: Mixture, couplings: Couplings, weights: Activations) -> Routed:
        """Means, and the logistic of minus the expected entropy of a vote, weighted by the expected proportion."""
        log_precisions = self._log_slack(clusters.masses).unsqueeze(-1) - clusters.covariances.log()
        entropies = (1 + LOG_2PI - log_precisions) / 2
        shares = self._log_shares(clusters.masses).exp()
        cost = shares * (self.beta_use.unsqueeze(-1) + entropies).sum(-1)
        active = torch.sigmoid(self.inverse_temperature * (self.beta_active - cost))
        return Routed(clusters.means, active, couplings)

    def objective(
        self, votes: Votes, couplings: Couplings, weights: Activations, clusters: Mixture, step: int
    ) -> Tensor | None:
        """Minus the evidence lower bound (10.70): at the best posterior, a ratio of normalizing constants."""
        if self.sharpness != 1:
            return None
        masses, dim = clusters.masses, votes.shape[-1]
        counts = self.concentration + masses
        start = torch.full_like(counts, self.concentration)
        shares = _log_beta(counts) - _log_beta(start)
        prior = torch.full_like(masses, self.degrees)
        gammas = _log_gamma(prior + masses, clusters.covariances) - _log_gamma(
            prior, torch.full_like(clusters.covariances, self.prior_variance)
        )
        means = math.log(self.mean_strength) - (self.mean_strength + masses).log()
        evidence = (gammas + dim / 2 * (means - masses * LOG_2PI)).sum(-1) + shares
        return (weights * self.negative_entropy(couplings)).sum(-1) - evidence


def _log_beta(counts: Tensor) -> Tensor:
    """The logarithm of a Dirichlet's normalizing constant, inverted."""
    return torch.lgamma(counts).sum(-1) - torch.lgamma(counts.sum(-1))


def _log_gamma(degrees: Tensor, variances: Tensor) -> Tensor:
    """The same of Gammas over precisions, summed over dimensions; 1 / variances are the expected ones."""
    half = degrees / 2
    per_dimension = torch.lgamma(half).unsqueeze(-1) - half.unsqueeze(-1) * (half.unsqueeze(-1) * variances).log()
    return per_dimension.sum(-1)
