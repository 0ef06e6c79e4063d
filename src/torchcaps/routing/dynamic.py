"""Dynamic routing clusters votes by inner product with squashed sums: Algorithm 1.

Sabour, Frosst, Hinton 2017, "Dynamic Routing Between Capsules", procedure 1 and eqs. 1-3; logits overwritten instead
of accumulated after Su Jianlin (kexue.fm 4819); amendment by child activation after Zhao et al. 2018.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from torchcaps._core.errors import check_choice, input_error
from torchcaps._core.types import Activations, Couplings, Routed
from torchcaps.functional import SQUASHES, agree, combine, length, squash, squash_potential
from torchcaps.routing.checks import Choice, Control, Range, Switch
from torchcaps.routing.competition import divergence
from torchcaps.routing.sharp import Sharp, SharpOptions
from torchcaps.votes.algebra import Votes


class Dynamic(Sharp):
    """Each parent is the squashed sum of its votes; the couplings of a child move towards parents that agree with it.

    squash: a name in `SQUASHES`. accumulate: add agreements to the logits (True) or overwrite them (False).
    sharpness: a factor of agreements, 1 in the paper; less makes couplings softer, as for mixtures (`Gaussian`).
    amendment: weight each child's couplings by its activation. bias: add a learned vector to every sum (without it,
    negating all votes leaves activations unchanged); it needs out_capsules and out_dim, which layers fill in.
    """

    controls: ClassVar[dict[str, Control]] = {
        "squash": Choice(tuple(SQUASHES), "How a sum becomes a vector shorter than one."),
        "accumulate": Switch("Agreements add up over iterations, instead of replacing each other."),
        "sharpness": Range(0.05, 2.0, "A factor of agreements."),
    }

    def __init__(
        self,
        iterations: int = 3,
        *,
        squash: str = "quadratic",
        accumulate: bool = True,
        amendment: bool = False,
        bias: bool = False,
        out_capsules: int | None = None,
        out_dim: int | None = None,
        **options: Unpack[SharpOptions],
    ) -> None:
        super().__init__(iterations, **options)
        check_choice(self.name, "squash", squash, list(SQUASHES))
        self.squash = squash
        self.accumulate = accumulate
        self.amendment = self.uses_activations = amendment
        self.bias: nn.Parameter | None = None
        if bias:
            if out_capsules is None or out_dim is None:
                got = f"out_capsules={out_capsules} and out_dim={out_dim}"
                raise input_error(self.name, "out_capsules and out_dim for its bias", got, "Pass both, or bias=False.")
            self.out_capsules, self.out_dim = out_capsules, out_dim
            self.bias = nn.Parameter(torch.full((out_capsules, out_dim), 0.1))  # the official code's value

    def update(self, votes: Votes, weights: Couplings, previous: Tensor | None, step: int) -> Tensor:
        sums = combine(weights, votes)  # eq. 2
        return sums if self.bias is None else sums + self.bias

    def assign(self, votes: Votes, clusters: Tensor, scores: Tensor, step: int) -> Tensor:
        centers = squash(clusters, self.squash)
        centers = centers if self.sharpness == 1 else self.sharpness * centers
        return agree(votes, centers, scores if self.accumulate else None)

    def read(self, clusters: Tensor, couplings: Couplings, weights: Activations) -> Routed:
        poses = squash(clusters, self.squash)  # eq. 1
        return Routed(poses, length(poses), couplings)

    def objective(
        self,
        votes: Votes,
        couplings: Couplings,
        weights: Activations,
        clusters: Tensor,
        step: int,
        *,
        before: Couplings | None = None,
    ) -> Tensor | None:
        """-Sum_j phi(|s_j|) with the squash's potential phi; plus 1/sharpness Sum c log c if logits are overwritten.

        before: the couplings that clusters were made of. Given these, it is the objective of Wang and Liu (He 2018
        eq. 15) with w_j s_j = squash(clusters): -Sum w_j c_ij <u_ij, s_j> + 1/sharpness Sum_i KL(c_i, before_i), which
        the couplings of the next iteration minimize if logits are accumulated.
        """
        if before is not None:
            pull = (couplings * agree(votes, squash(clusters, self.squash))).sum(-1)
            return (weights * (divergence(couplings, before, leaky=self.leaky) / self.sharpness - pull)).sum(-1)
        potential = -squash_potential(length(clusters), self.squash).sum(-1)
        if not self.accumulate:
            return potential + (weights * self.negative_entropy(couplings)).sum(-1) / self.sharpness
        return None if self.hard else potential
