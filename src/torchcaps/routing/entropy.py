"""Entropy-regularized routing clusters votes by inner product with unit centers: Algorithm 2.

Wang, Liu 2018, "An Optimization View on Dynamic Routing Between Capsules": minimize
-Sum c_ij <u_j|i, s_j> + alpha Sum c_ij log c_ij over couplings that sum to one and |s_j| <= 1.
Equation numbers are those of He 2018, "Principles of capsule networks", eqs. 38-40.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor
from typing_extensions import Unpack

from torchcaps._core.errors import check_positive, input_error
from torchcaps._core.types import Activations, Couplings, Routed
from torchcaps.functional import agree, combine, length, unit
from torchcaps.routing.base import Routing
from torchcaps.routing.checks import Control, Range, check_idle
from torchcaps.routing.competition import CompetitionOptions
from torchcaps.votes.algebra import Votes


class Entropy(Routing):
    """Algorithm 2, with the scale w_j = |s_j| / (1 + max_k |s_k|) at the end.

    entropy_weight: the weight alpha of the entropy; a number, or one for each of the iterations - 1 E-steps.
    entropy_decay: the factor by which a single entropy_weight is multiplied after every E-step (geometric schedule).
    """

    controls: ClassVar[dict[str, Control]] = {
        "entropy_weight": Range(0.05, 5.0, "How much even couplings are worth."),
        "entropy_decay": Range(0.5, 1.0, "What the weight is multiplied by after every iteration."),
    }

    def __init__(
        self,
        iterations: int = 3,
        *,
        entropy_weight: float | Sequence[float] = 1.0,
        entropy_decay: float = 1.0,
        **competition: Unpack[CompetitionOptions],
    ) -> None:
        super().__init__(iterations, **competition)
        weighed = {"entropy_weight": entropy_weight != 1, "entropy_decay": entropy_decay != 1}
        check_idle(self.name, "with hard=True", **{word: self.hard and given for word, given in weighed.items()})
        self.entropy_weight = entropy_weight
        self.entropy_decay = entropy_decay
        if isinstance(entropy_weight, Sequence):
            if entropy_decay != 1:
                raise input_error(self.name, "a list of entropy weights or a decay", "both", "Drop entropy_decay.")
            if len(entropy_weight) != iterations - 1:
                got = f"{len(entropy_weight)} of them"
                raise input_error(
                    self.name, f"iterations - 1 = {iterations - 1} entropy weights", got, "List one per E-step."
                )
            schedule = [float(value) for value in entropy_weight]
        else:
            check_positive(self.name, "entropy_weight", entropy_weight)
            check_positive(self.name, "entropy_decay", entropy_decay)
            schedule = [entropy_weight * entropy_decay**step for step in range(iterations - 1)]
        for value in schedule:
            check_positive(self.name, "entropy_weight", value)
        self.entropy_weights = tuple(schedule)

    def update(self, votes: Votes, weights: Couplings, previous: Tensor | None, step: int) -> Tensor:
        return combine(weights, votes)

    def assign(self, votes: Votes, clusters: Tensor, scores: Tensor, step: int) -> Tensor:
        # eqs. 39, 40; differs from the printed eq. 40: its denominator sums over parents, because only then do a
        # child's couplings sum to one, as eq. 38 demands.
        return agree(votes, unit(clusters)) / self.entropy_weights[step]

    def read(self, clusters: Tensor, couplings: Couplings, weights: Activations) -> Routed:
        lengths = length(clusters)
        scale = 1 / (1 + lengths.amax(-1, keepdim=True))  # w_j s_j = s^_j / (1 + max_k |s^_k|): no division by |s^_j|
        return Routed(clusters * scale.unsqueeze(-1), lengths * scale, couplings)

    def objective(
        self, votes: Votes, couplings: Couplings, weights: Activations, clusters: Tensor, step: int
    ) -> Tensor | None:
        """Eq. 38 at these couplings and their best centers; None if the entropy weight changes between E-steps."""
        if len(set(self.entropy_weights)) != 1:
            return None
        agreement = length(clusters).sum(-1)  # Sum_i c_ij <u_j|i, s_j> = |s^_j|
        return self.entropy_weights[0] * self.negative_entropy(couplings).sum(-1) - agreement
