"""Routing is clustering: the one loop that every routing runs, and the competition of parents for children.

The children's votes are the points, the parents are the clusters, the couplings say whose a child is. An algorithm
is what differs: `update` (M-step), `assign` (E-step), `read` (clusters to capsules) and `objective`.
"""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from torchcaps.errors import check_choice, check_count, check_range, complaint, shape_text
from torchcaps.ledger import ledger_of
from torchcaps.precision import HALVES, autocasting, no_autocast
from torchcaps.routing.competition import OverParents, compete, over_own_parents, sample_parents, scores_of, silence
from torchcaps.types import Activations, Couplings, Mask, Routed, Step, Votes


def _cast(routed: Routed, dtype: torch.dtype) -> Routed:
    return Routed(*(part.to(dtype) for part in routed))


class Routing(nn.Module):
    """The base of all routings. `iterations` counts updates: 3 means three M-steps with two E-steps between them.

    gradients: "all" iterations, or the "last" update only, with the couplings taken as constants.
    hard: each child goes wholly to its best parent (equal ones share it).
    leaky: a child may belong to nobody; one more score, always zero, competes and is dropped.
    sampling: the share of parents that compete while training, drawn anew for every example, at least one (dropout
        for parents).
    """

    loss: str = "margin"  # the loss that suits the activations: "margin", "spread", or "nll" for shares that sum to one
    averages: bool = False  # are parents means of votes, or sums?
    uses_activations: bool = False  # do the children's activations weigh their votes?
    in_capsules: int | None = None  # sizes that learned parameters fix; None where any size will do
    out_capsules: int | None = None
    out_dim: int | None = None

    def __init__(
        self,
        iterations: int = 3,
        *,
        gradients: str = "all",
        hard: bool = False,
        leaky: bool = False,
        sampling: float = 1.0,
    ) -> None:
        super().__init__()
        check_count(self.name, "iterations", iterations)
        check_choice(self.name, "gradients", gradients, ["all", "last"])
        check_range(self.name, "sampling", sampling, 0, 1)
        self.iterations = iterations
        self.gradients = gradients
        self.hard = hard
        self.leaky = leaky
        self.sampling = sampling

    # What an algorithm says.

    def start(self, votes: Votes, weights: Activations) -> Tensor:
        """The scores before the first update: all zero, every parent alike."""
        return torch.zeros_like(votes[..., 0])

    def update(self, votes: Votes, weights: Couplings, previous: Any, step: int) -> Any:
        """M-step: the clusters that best explain the votes under these weights (couplings times child weights)."""
        raise NotImplementedError

    def assign(self, votes: Votes, clusters: Any, scores: Tensor, step: int) -> Tensor:
        """E-step: how well each parent explains each child, as unnormalised log scores [*b i j]."""
        raise NotImplementedError

    def read(self, clusters: Any, couplings: Couplings, weights: Activations) -> Routed:
        """The parents' poses and activations. The weights are the children's own: zero for a masked child."""
        raise NotImplementedError

    def objective(
        self, votes: Votes, couplings: Couplings, weights: Activations, clusters: Any, step: int
    ) -> Tensor | None:
        """What the loop descends, [*b]; None where theory has nothing to say."""
        return None

    # What all share.

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    def compete(self, scores: Tensor, mask: Mask | None, kept: Tensor | None, over_parents: OverParents) -> Couplings:
        """Turn scores into couplings: a softmax over the parents that compete for a child."""
        return compete(scores, mask, kept, over_parents, hard=self.hard, leaky=self.leaky)

    def draw(self, like: Activations, parents: int) -> Mask | None:
        """Which parents compete in this pass, [*b j], for children like these [*b i]; None when all do."""
        return sample_parents(like, parents, self.sampling) if self.training and self.sampling < 1 else None

    @property
    def normalised(self) -> bool:
        """Do a child's couplings sum to one?"""
        return not self.leaky

    def forward(
        self,
        votes: Votes,
        activations: Activations | None = None,
        *,
        mask: Mask | None = None,
        couplings: Couplings | None = None,
        kept: Bool[Tensor, "*b j"] | None = None,
        over_parents: OverParents = over_own_parents,
    ) -> Routed:
        """Route votes [*b i j d] of children with activations and mask [*b i], from given couplings [*b i j] if any.

        `kept` names the parents that compete; left out, they are drawn (see `draw`). `over_parents` is the layer's word
        on which parents compete for a child; left out, it is the axis j.
        """
        return self._run(votes, activations, mask, couplings, kept, over_parents, None)

    def trace(
        self,
        votes: Votes,
        activations: Activations | None = None,
        *,
        mask: Mask | None = None,
        couplings: Couplings | None = None,
        over_parents: OverParents = over_own_parents,
    ) -> list[Step]:
        """Like a call, but give the `Routed` and the objective after every update."""
        steps: list[Step] = []
        self._run(votes, activations, mask, couplings, None, over_parents, steps)
        return steps

    @classmethod
    def options(cls) -> dict[str, Any]:
        """The options that the constructor takes, with their defaults."""
        options: dict[str, Any] = {}
        for kind in cls.__mro__:
            if "__init__" in vars(kind):
                parameters = inspect.signature(vars(kind)["__init__"]).parameters.values()
                for parameter in parameters:
                    if parameter.name != "self" and parameter.kind is not parameter.VAR_KEYWORD:
                        options.setdefault(parameter.name, parameter.default)
                if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
                    break
        return options

    def _run(
        self,
        votes: Tensor,
        activations: Tensor | None,
        mask: Tensor | None,
        couplings: Tensor | None,
        kept: Tensor | None,
        over_parents: OverParents,
        steps: list[Step] | None,
    ) -> Routed:
        self._check(votes, activations, mask, couplings)
        device = votes.device.type
        autocast = autocasting(device)
        given = votes.dtype
        with no_autocast(device):
            if given in HALVES:
                votes = votes.float()
            routed = self._iterate(votes, activations, mask, couplings, kept, over_parents, steps)
        if autocast or votes.dtype == given:
            return routed
        if steps is not None:
            steps[:] = [Step(_cast(step.routed, given), step.objective) for step in steps]
        return _cast(routed, given)

    def _iterate(
        self,
        votes: Tensor,
        activations: Tensor | None,
        mask: Tensor | None,
        couplings: Tensor | None,
        kept: Tensor | None,
        over_parents: OverParents,
        steps: list[Step] | None,
    ) -> Routed:
        weighty = self.uses_activations and activations is not None
        weights = (
            activations.to(votes.dtype) if weighty and activations is not None else torch.ones_like(votes[..., 0, 0])
        )
        if mask is not None:
            weights = weights.masked_fill(~mask, 0)
            if ledger_of(votes) is None:  # else it was done before
                votes = votes.masked_fill(~mask[..., None, None], 0)  # whatever stands in the padding, NaN too
        if kept is None:
            kept = self.draw(weights, votes.shape[-2])

        def weighed(couplings: Tensor) -> Tensor:
            return couplings if activations is None and mask is None else couplings * weights.unsqueeze(-1)

        if couplings is None:
            scores = self.start(votes, weights)
            couplings = self.compete(scores, mask, kept, over_parents)
        else:
            couplings = couplings.to(votes.dtype)
            scores = scores_of(couplings, over_parents, leaky=self.leaky)
            couplings = silence(couplings, mask, kept, 0)

        clusters = None
        last = self.iterations - 1
        with nullcontext() if self.gradients == "all" else torch.no_grad():
            for step in range(last):
                clusters = self.update(votes, weighed(couplings), clusters, step)
                if steps is not None:
                    steps.append(self._step(votes, couplings, weights, clusters, step, over_parents))
                scores = self.assign(votes, clusters, scores, step)
                couplings = self.compete(scores, mask, kept, over_parents)
        clusters = self.update(votes, weighed(couplings), clusters, last)
        if steps is not None:
            steps.append(self._step(votes, couplings, weights, clusters, last, over_parents))
        return self.read(clusters, couplings, weights)

    def _step(
        self, votes: Tensor, couplings: Tensor, weights: Tensor, clusters: Any, step: int, over_parents: OverParents
    ) -> Step:
        # The objectives are written for children whose parents are all here; a layer where they are not sees None.
        whole = over_parents is over_own_parents
        objective = self.objective(votes, couplings, weights, clusters, step) if whole else None
        return Step(self.read(clusters, couplings, weights), objective)

    def negative_entropy(self, couplings: Couplings) -> Tensor:
        """Sum_j c_ij log c_ij for each child, with the leak as one more parent; zero for hard couplings. [*b i]"""
        if self.hard:
            return torch.zeros_like(couplings[..., 0])
        total = torch.xlogy(couplings, couplings).sum(-1)
        if self.leaky:
            leak = (1 - couplings.sum(-1)).clamp(min=0)
            total = total + torch.xlogy(leak, leak)
        return total

    def _check(self, votes: Tensor, activations: Tensor | None, mask: Tensor | None, couplings: Tensor | None) -> None:
        if not isinstance(votes, Tensor):
            got = f"a {type(votes).__name__}"
            raise complaint(
                self.name, "votes [*b i j d] as a tensor", got, "Pass votes; a layer makes them from capsules."
            )
        if votes.ndim < 3 or not votes.is_floating_point():
            got = f"{shape_text(votes.shape)} of {votes.dtype}"
            raise complaint(
                self.name, "floating-point votes [*b i j d]", got, "Give votes a child, a parent and a pose axis."
            )
        sizes = (
            ("in_capsules", self.in_capsules, -3),
            ("out_capsules", self.out_capsules, -2),
            ("out_dim", self.out_dim, -1),
        )
        for word, size, axis in sizes:
            if size is not None and votes.shape[axis] != size:
                expected = f"votes [*b i j d] with {word}={size}"
                raise complaint(
                    self.name, expected, shape_text(votes.shape), f"Make the routing with {word}={votes.shape[axis]}."
                )
        beside = (
            ("activations [*b i]", activations, votes.shape[:-2]),
            ("mask [*b i]", mask, votes.shape[:-2]),
            ("couplings [*b i j]", couplings, votes.shape[:-1]),
        )
        for word, tensor, shape in beside:
            if tensor is not None and tensor.shape != shape:
                remedy = f"Match the votes {shape_text(votes.shape)}."
                raise complaint(self.name, f"{word} = {shape_text(shape)}", shape_text(tensor.shape), remedy)
        if mask is not None and mask.dtype != torch.bool:
            raise complaint(self.name, "a boolean mask", mask.dtype, "Pass mask.bool(), True where a child is real.")

    def extra_repr(self) -> str:
        """The options that differ from their defaults, as far as they are numbers and words."""
        shown = [f"iterations={self.iterations}"]
        for word, plain in self.options().items():
            value = getattr(self, word, plain)
            if word != "iterations" and isinstance(value, bool | int | float | str | tuple | list) and value != plain:
                shown.append(f"{word}={value!r}")
        return ", ".join(shown)
