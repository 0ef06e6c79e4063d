"""Inverted attention routing clusters votes by inner product with layer-normalized sums: parents compete for children.

Tsai, Srivastava, Goh, Salakhutdinov 2020, "Capsules with Inverted Dot-Product Attention Routing", algorithm 1 and eqs.
2-4: agreements a_ij = <p_j, v_ij> / sqrt(d), couplings softmax_j(a_ij), poses p_j = LayerNorm(Sum_i r_ij v_ij). The
class capsules share one linear classifier; here every parent's activation is its logistic.

Differs from the paper: layers are routed one after another (sequential routing). Its concurrent routing, one iteration
of all layers at a time, is a loop over a network and no routing of a layer.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm
from typing_extensions import Unpack

from torchcaps._core.types import Activations, Couplings, Routed
from torchcaps.functional import agree, combine
from torchcaps.routing.base import Routing
from torchcaps.routing.checks import needed
from torchcaps.routing.competition import CompetitionOptions
from torchcaps.votes.algebra import Votes

EPSILON = 1e-5  # of the layer norm, torch's default


class Inverted(Routing):
    """Each parent is the layer-normalized sum of its votes; its activation is the logistic of a learned projection.

    out_dim: the pose size of parents, for the learned parameters; layers fill it in. All parents share the parameters:
    gain and shift of the layer norm, one for each dimension, and direction and threshold of the activation.
    """

    readout = "logistic"
    smallest_dim = 3  # in two dimensions a layer norm leaves two points

    def __init__(
        self, iterations: int = 3, *, out_dim: int | None = None, **competition: Unpack[CompetitionOptions]
    ) -> None:
        super().__init__(iterations, **competition)
        self.out_dim = out_dim = needed(self.name, "out_dim", out_dim, "layer norm")
        self.gain = nn.Parameter(torch.ones(out_dim))
        self.shift = nn.Parameter(torch.zeros(out_dim))
        signs = 1.0 - 2 * (torch.arange(out_dim) % 2)  # a layer norm removes the component along (1, 1, ...)
        self.direction = nn.Parameter(signs / math.sqrt(out_dim))
        self.threshold = nn.Parameter(torch.zeros(()))

    def update(self, votes: Votes, weights: Couplings, previous: Tensor | None, step: int) -> Tensor:
        return combine(weights, votes)

    def _poses(self, sums: Tensor) -> Tensor:
        return layer_norm(sums, sums.shape[-1:], self.gain, self.shift, EPSILON)

    def assign(self, votes: Votes, clusters: Tensor, scores: Tensor, step: int) -> Tensor:
        return agree(votes, self._poses(clusters)) / math.sqrt(clusters.shape[-1])  # eqs. 2, 3

    def read(self, clusters: Tensor, couplings: Couplings, weights: Activations) -> Routed:
        poses = self._poses(clusters)  # eq. 4
        return Routed(poses, torch.sigmoid(poses @ self.direction - self.threshold), couplings)

    def objective(
        self, votes: Votes, couplings: Couplings, weights: Activations, clusters: Tensor, step: int
    ) -> Tensor | None:
        """-Sum_j phi(s_j) + sqrt(d) Sum c log c, phi the convex potential whose gradient is the layer norm.

        None unless all gains are equal and not negative: otherwise the layer norm is not the gradient of a function.
        """
        gain, dim = self.gain[0], clusters.shape[-1]
        if not bool((self.gain == gain).all() and gain >= 0):
            return None
        deviations = clusters.var(-1, correction=0) + EPSILON
        potential = gain * dim * deviations.sqrt() + clusters @ self.shift
        return math.sqrt(dim) * self.negative_entropy(couplings).sum(-1) - potential.sum(-1)
