"""The base class of routings: the loop that all of them share.

Routing is clustering. Votes are the points, parents the clusters, couplings the shares of a child that belong to each
parent. A subclass implements `update` (M-step), `assign` (E-step), `read` (clusters to capsules) and `objective`.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from torchcaps._core.errors import check_choice, check_count, check_range
from torchcaps._core.precision import HALVES, autocasting, no_autocast
from torchcaps._core.types import Activations, Couplings, Mask, Routed, Step
from torchcaps.routing.checks import COMPETITION_CONTROLS, Control, check_routed, constructor_options, takes
from torchcaps.routing.competition import (
    OverParents,
    careful,
    compete,
    mask_fill,
    over_own_parents,
    sample_parents,
    scores_of,
    silent_votes,
)
from torchcaps.votes.algebra import Votes, as_votes
from torchcaps.votes.bounds import bounded
from torchcaps.votes.layout import constant


class Call(NamedTuple):
    """What a routing is called with beside votes; where steps are a list, those of a trace are added to it."""

    activations: Tensor | None
    mask: Tensor | None
    couplings: Tensor | None
    kept: Tensor | None
    over_parents: OverParents
    steps: list[Step] | None


def _moved(routed: Routed, pivot: Tensor | None) -> Routed:
    return routed if pivot is None else routed._replace(poses=routed.poses + pivot)


class Routing(nn.Module):
    """Base class of all routings.

    iterations: the number of updates; 3 means three M-steps with two E-steps between them.
    gradients: through "all" iterations, or through the "last" update only, with couplings as constants.
    hard: assign each child to its best parent only (ties share it).
    leaky: add one more score, always zero, to the softmax; the share it takes belongs to no parent.
    sampling: the fraction of parents that compete in training mode, at least one, sampled for every example.
    """

    readout: str = "length"  # the kind of activations: "length", "logistic" (of a cost), or "share" (they sum to one)
    parents_are_means: bool = False  # True: parents are means of votes; False: sums
    translation_equivariant: bool = False  # True: shifting all votes shifts the clusters. Votes are then centered
    needs_child_weights: bool = False  # True: `update` also receives the weights of the children
    uses_activations: bool = False  # True: the children's activations weight their votes
    in_capsules: int | None = None  # sizes that learned parameters require; None for any size
    out_capsules: int | None = None
    out_dim: int | None = None
    smallest_dim: int = 1  # in fewer dimensions than this all poses look alike
    controls: ClassVar[dict[str, Control]] = COMPETITION_CONTROLS  # of options, for tools

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
        self.iterations, self.gradients = iterations, gradients
        self.hard, self.leaky, self.sampling = hard, leaky, sampling

    # Methods of an algorithm.

    def initial_scores(self, votes: Votes, weights: Activations) -> Tensor:
        """The scores before the first update, [*b i j]; zeros by default, the same for all parents."""
        return votes.zeros()

    def update(self, votes: Votes, weights: Couplings, previous: Any, step: int) -> Any:
        """M-step: the clusters that best explain the votes under these weights (couplings times child weights).

        If `translation_equivariant` is True, there is one more argument, `origin` [*b j d]: the position of zero among
        the centered votes. If `needs_child_weights` is True: `child_weights` [*b i], the weights of the children. With
        the argument `over_parents`, it receives the competition, as `assign` does.
        """
        raise NotImplementedError

    def assign(self, votes: Votes, clusters: Any, scores: Tensor, step: int) -> Tensor:
        """E-step: how well each parent explains each child, as unnormalized log scores [*b i j].

        If `assign` has the argument `over_parents`, it receives the competition: `over_parents(values, torch.sum)` sums
        pairs over all parents of a child, and `over_parents.local` is True if these are the axis j.
        """
        raise NotImplementedError

    def read(self, clusters: Any, couplings: Couplings, weights: Activations) -> Routed:
        """The poses and activations of the parents. weights: those of the children, zero for a masked child."""
        raise NotImplementedError

    def objective(
        self, votes: Votes, couplings: Couplings, weights: Activations, clusters: Any, step: int
    ) -> Tensor | None:
        """The objective that the loop decreases, [*b]; None if none is known."""
        return None

    def converged(self, clusters: Any) -> bool:
        """Whether further iterations leave all clusters unchanged; the loop then ends early."""
        return False

    # Methods that all algorithms share.

    @property
    def name(self) -> str:
        """The name of the class in lower case, for messages."""
        return type(self).__name__.lower()

    def compete(self, scores: Tensor, mask: Mask | None, kept: Tensor | None, over_parents: OverParents) -> Couplings:
        """Convert scores to couplings: a softmax over the parents that compete for a child."""
        return compete(scores, mask, kept, over_parents, hard=self.hard, leaky=self.leaky)

    def draw(self, like: Activations, parents: int) -> Mask | None:
        """Sample the parents that compete in this pass, [*b j], for children like these [*b i]; None if all do."""
        return sample_parents(like, parents, self.sampling) if self.training and self.sampling < 1 else None

    @property
    def normalized(self) -> bool:
        """Whether the couplings of a child sum to one."""
        return not self.leaky

    def forward(
        self,
        votes: Tensor | Votes,
        activations: Activations | None = None,
        *,
        mask: Mask | None = None,
        couplings: Couplings | None = None,
        kept: Bool[Tensor, "*b j"] | None = None,
        over_parents: OverParents = over_own_parents,
    ) -> Routed:
        """Route votes [*b i j d] of children with activations and mask [*b i].

        couplings: start from these [*b i j]. kept: the parents that compete; left out, they are sampled. over_parents:
        the competition for a child; left out, among all parents of axis j.
        """
        return self._run(votes, Call(activations, mask, couplings, kept, over_parents, None))

    if TYPE_CHECKING:
        __call__ = forward

    def trace(
        self,
        votes: Tensor | Votes,
        activations: Activations | None = None,
        *,
        mask: Mask | None = None,
        couplings: Couplings | None = None,
        over_parents: OverParents = over_own_parents,
    ) -> list[Step]:
        """Like a call, but return the `Routed` and the objective after every update."""
        steps: list[Step] = []
        self._run(votes, Call(activations, mask, couplings, None, over_parents, steps))
        return steps

    @classmethod
    def options(cls) -> dict[str, Any]:
        """The options of the constructor with their defaults."""
        return constructor_options(cls)

    def _run(self, votes: Any, call: Call) -> Routed:
        sizes = {"in_capsules": self.in_capsules, "out_capsules": self.out_capsules, "out_dim": self.out_dim}
        check_routed(self.name, sizes, votes, call.activations, call.mask, call.couplings)
        device = votes.device.type
        autocast = autocasting(device)
        given = votes.dtype
        with no_autocast(device):
            if isinstance(votes, Tensor):
                votes = silent_votes(votes.float() if given in HALVES else votes, call.mask, call.over_parents.pairs)
            routed = self._iterate(as_votes(votes), call)
        if autocast or votes.dtype == given:
            return routed
        if call.steps is not None:
            call.steps[:] = [Step(step.routed.to(given), step.objective) for step in call.steps]
        return routed.to(given)

    def _iterate(self, votes: Any, call: Call) -> Routed:
        activations, mask, couplings, kept, over_parents, steps = call
        if not self.uses_activations:
            activations = None
        weights = constant(1, votes, votes.shape[:-2]) if activations is None else activations.to(votes.dtype)
        if mask is not None:
            weights = weights.masked_fill(~mask, 0)
        if kept is None:
            kept = self.draw(weights, votes.shape[-2])

        last = self.iterations - 1
        place: dict[str, Any] = {}
        pivot: Tensor | None = None
        if self.translation_equivariant:
            votes, pivot = votes.centered(mask, over_parents.pairs)
            place["origin"] = -pivot
        if self.needs_child_weights:
            place["child_weights"] = weights
        if takes(type(self).update, "over_parents"):
            place["over_parents"] = over_parents
        beside = {"over_parents": over_parents} if takes(type(self).assign, "over_parents") else {}

        def update(couplings: Tensor, clusters: Any, step: int) -> Any:
            weighed = votes.weigh(couplings, None if activations is None and mask is None else weights)
            return bounded(self.update(votes, weighed, clusters, step, **place))

        rivals, given = over_parents, couplings is not None
        if couplings is None:
            scores = constant(0, votes, votes.shape[:-1])
            alike = last and steps is None and kept is None and (rivals.local or mask is None)
            even = rivals.even(scores, self.leaky) if alike and self._is_plain("initial_scores", "compete") else None
            if even is None:
                scores = self.initial_scores(votes, weights)
            couplings = rivals.present(self.compete(scores, mask, kept, rivals)) if even is None else even
        else:
            rivals = careful if over_parents is over_own_parents else over_parents
            couplings = rivals.present(couplings.to(votes.dtype))
            scores = scores_of(couplings, over_parents, leaky=self.leaky) if self.iterations > 1 else couplings
            couplings = mask_fill(couplings, mask, kept, 0)

        # Masked children have weight zero: if competition is local, intermediate couplings need no mask.
        unseen = rivals.local and not given and steps is None and self._is_plain("compete")
        clusters = None
        with nullcontext() if self.gradients == "all" else torch.no_grad():
            for step in range(last):
                clusters = update(couplings, clusters, step)
                if steps is not None:
                    steps.append(self._step(votes, couplings, weights, clusters, step, over_parents, pivot))
                elif self.converged(clusters):
                    couplings = mask_fill(couplings, mask, kept, 0)
                    break
                scores = self.assign(votes, clusters, scores, step, **beside)
                masked = None if unseen and step < last - 1 else mask
                couplings = rivals.present(self.compete(scores, masked, kept, rivals))
        del scores  # as large as the couplings
        clusters = update(couplings, clusters, last)
        if steps is not None:
            steps.append(self._step(votes, couplings, weights, clusters, last, over_parents, pivot))
        return _moved(self.read(clusters, couplings, weights), pivot)

    def _is_plain(self, *methods: str) -> bool:
        """Whether this instance uses the base class's methods. Ablations override methods on single instances."""
        return all(getattr(getattr(self, name), "__func__", None) is getattr(Routing, name) for name in methods)

    def _step(
        self,
        votes: Votes,
        couplings: Tensor,
        weights: Tensor,
        clusters: Any,
        step: int,
        over_parents: OverParents,
        pivot: Tensor | None,
    ) -> Step:
        whole = over_parents.local and over_parents.pairs is None  # objectives assume all parents on the axis j
        objective = self.objective(votes, couplings, weights, clusters, step) if whole else None
        return Step(_moved(self.read(clusters, couplings, weights), pivot), objective)

    def negative_entropy(self, couplings: Couplings) -> Tensor:
        """Sum_j c_ij log c_ij for each child, [*b i], with the leak as one more parent; zero for hard couplings."""
        if self.hard:
            return torch.zeros_like(couplings[..., 0])
        total = torch.xlogy(couplings, couplings).sum(-1)
        if self.leaky:
            leak = (1 - couplings.sum(-1)).clamp(min=0)
            total = total + torch.xlogy(leak, leak)
        return total

    def extra_repr(self) -> str:
        """The options that differ from their defaults, if they are numbers, strings or sequences."""
        shown = [f"iterations={self.iterations}"]
        for word, plain in self.options().items():
            value = getattr(self, word, plain)
            if word != "iterations" and isinstance(value, bool | int | float | str | tuple | list) and value != plain:
                shown.append(f"{word}={value!r}")
        return ", ".join(shown)
