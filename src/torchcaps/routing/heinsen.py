"""Heinsen routing clusters votes by Gaussians; a parent is active where using its children beats ignoring them.

Heinsen 2019, "An Algorithm for Routing Capsules in All Domains", algorithm 1: EM routing with one more step between E
and M. What parent j uses of child i is D_use = a_i R_ij, what it ignores D_ign = a_i - D_use, and its score is
Sum_i beta_use D_use - Sum_i beta_ign D_ign. Its logistic stands where a mixture has pi_j.

Differs from the paper in what flows between layers: activations, the logistics of its scores. So a child's activation
is taken as f(a_inp) as it is. The votes and their bias are the layer's (`vote_bias`).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from torchcaps._core.types import Activations, Couplings
from torchcaps.routing.checks import needed
from torchcaps.routing.competition import OverParents, over_own_parents
from torchcaps.routing.gaussian import Gaussian, Mixture
from torchcaps.votes.algebra import Votes


class Heinsen(Gaussian):
    """Gaussians weighted by the net benefit of using their children.

    out_capsules: the number of parents, for the learned betas. in_capsules: the number of children; if given, betas are
    learned for every pair, otherwise for every parent. Layers fill in the sizes that they know. beta_use, beta_ignore:
    initial values. Left out, they balance for a parent with a uniform share of its children, so that parents start with
    activation one half and votes receive gradients from the first step (the paper starts both at zero). variance_floor,
    mass_floor and further arguments: see `Gaussian`; covariance="fixed" with variance=0.5 is the soft k-means of the
    released code.
    """

    readout = "logistic"
    needs_child_weights = True

    def __init__(
        self,
        iterations: int = 3,
        *,
        out_capsules: int | None = None,
        in_capsules: int | None = None,
        beta_use: float | None = None,
        beta_ignore: float | None = None,
        variance_floor: float = 1e-5,
        mass_floor: float = 1e-5,
        **mixture: Any,
    ) -> None:
        super().__init__(iterations, variance_floor=variance_floor, mass_floor=mass_floor, **mixture)
        out_capsules = needed(self.name, "out_capsules", out_capsules, "learned betas")
        self.in_capsules, self.out_capsules = in_capsules, out_capsules
        shape = (in_capsules or 1, out_capsules)
        beta_use = 2 / math.sqrt(in_capsules or 1024) if beta_use is None else beta_use
        beta_ignore = beta_use / max(1, out_capsules - 1) if beta_ignore is None else beta_ignore
        self.beta_use = nn.Parameter(torch.full(shape, float(beta_use)))
        self.beta_ignore = nn.Parameter(torch.full(shape, float(beta_ignore)))

    def update(
        self,
        votes: Votes,
        weights: Couplings,
        previous: Mixture | None,
        step: int,
        origin: Tensor | None = None,
        child_weights: Activations | None = None,
        over_parents: OverParents = over_own_parents,
    ) -> Mixture:
        """The M-step of a mixture, with the logistic of the net benefit as its prior.

        child_weights: left out, the weights of each child summed over its parents, which is the same without a leak.
        """
        used = weights  # D-step
        ignored = (weights.sum(-1) if child_weights is None else child_weights).unsqueeze(-1) - used
        ignored = over_parents.present(ignored)  # nobody ignores a child that it is not connected with
        benefit = (self.beta_use * used - self.beta_ignore * ignored).sum(-2)
        return super().update(votes, weights, previous, step, origin)._replace(log_prior=logsigmoid(benefit))

    def objective(
        self, votes: Votes, couplings: Couplings, weights: Activations, clusters: Mixture, step: int
    ) -> Tensor | None:
        """None: with activations in place of pi_j, no objective is known."""
        return None
