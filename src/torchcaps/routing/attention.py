"""Attention routing clusters in one pass: a child goes where its vote agrees with all the votes for that parent.

Mazzia, Salvetti, Chiaberge 2021, "Efficient-CapsNet: Capsule Network with Self-Attention Routing", eqs. 5-8.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from torchcaps._core.errors import check_choice, input_error
from torchcaps._core.types import Activations, Couplings, Mask, Routed
from torchcaps.functional import SQUASHES, agree, combine, length, squash
from torchcaps.routing.base import Routing
from torchcaps.routing.competition import OverParents, mask_fill
from torchcaps.votes.algebra import Votes


class Attention(Routing):
    """Couplings softmax_j(Sum_k <u_j|i, u_j|k> / sqrt(d)) plus a learned prior, in one pass.

    squash: a name in `SQUASHES`. prior: add a learned number to every coupling, starting at zero; it needs in_capsules
    and out_capsules, which layers fill in.
    """

    def __init__(
        self,
        *,
        squash: str = "exponential",
        prior: bool = True,
        in_capsules: int | None = None,
        out_capsules: int | None = None,
        hard: bool = False,
        leaky: bool = False,
        sampling: float = 1.0,
    ) -> None:
        super().__init__(1, hard=hard, leaky=leaky, sampling=sampling)
        check_choice(self.name, "squash", squash, list(SQUASHES))
        self.squash = squash
        self.prior: nn.Parameter | None = None
        if prior:
            if in_capsules is None or out_capsules is None:
                got = f"in_capsules={in_capsules} and out_capsules={out_capsules}"
                expected = "in_capsules and out_capsules for its learned prior"
                raise input_error(self.name, expected, got, "Pass both, or prior=False.")
            self.in_capsules, self.out_capsules = in_capsules, out_capsules
            self.prior = nn.Parameter(torch.zeros(in_capsules, out_capsules))

    @property
    def normalized(self) -> bool:
        return super().normalized and self.prior is None

    def initial_scores(self, votes: Votes, weights: Activations) -> Tensor:
        everything = combine(weights.unsqueeze(-1).expand(votes.shape[:-1]), votes)
        return agree(votes, everything) / math.sqrt(votes.shape[-1])

    def compete(self, scores: Tensor, mask: Mask | None, kept: Tensor | None, over_parents: OverParents) -> Couplings:
        couplings = super().compete(scores, mask, kept, over_parents)
        if self.prior is None:
            return couplings
        return mask_fill(couplings + self.prior, mask, kept, 0)

    def update(self, votes: Votes, weights: Couplings, previous: Tensor | None, step: int) -> Tensor:
        return combine(weights, votes)

    def read(self, clusters: Tensor, couplings: Couplings, weights: Activations) -> Routed:
        poses = squash(clusters, self.squash)
        return Routed(poses, length(poses), couplings)
