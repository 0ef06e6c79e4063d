"""A capsule layer is geometry x vote transform x routing; this base joins the three."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchcaps._core.errors import check_count
from torchcaps._core.types import Capsules, Routed, Step
from torchcaps.layers.parts import routing_for, transform_for
from torchcaps.layers.residual import add_children
from torchcaps.routing import Routing
from torchcaps.votes import backends as _backends  # noqa: F401  (the engine knows them from here on)
from torchcaps.votes.engine import Plan, choose, route
from torchcaps.votes.job import Gathered, Job
from torchcaps.votes.operator import handle, parameters_of
from torchcaps.votes.tiling import tile_bytes
from torchcaps.votes.transforms import VoteTransform


class RoutedLayer(nn.Module):
    """Base class of layers that vote and route. A subclass gathers the children and lays out the couplings.

    in_capsules, in_dim: the number of children (None: any number) and the size of their poses. out_capsules, out_dim:
    those of the parents. any_grid: children at the places of a grid of any size share the vote transform.
    votes: "full", "shared" (in_capsules may be None: any number of children), "factorized" or "matrix", or a
    `VoteTransform`. routing: a name, with its options as further arguments, or a `Routing`. vote_bias adds a learned
    bias to every vote; normalize divides each vote matrix by its Frobenius norm. std is the standard deviation of the
    starting weights; left out, votes keep the scale of poses where parents are means of votes. Where they are sums, it
    is such that children of length 0.7 under uniform couplings sum to a length of about one: squash is neither
    saturated nor silent, and learning starts at the first step. For this a layer must know about how many children a
    parent sees (expected_children, else in_capsules, else 1024) and how many parents share a child (rivals).
    normalize_poses: a layer norm with learned gain and shift on the poses of children before they vote. skip: add each
    parent to the child in its place (see `residual`); both make deep stacks train.
    tile_bytes: how many bytes the votes of one tile may take (see `tiling`); 0 keeps all votes, which only gradients of
    gradients need.
    """

    def __init__(
        self,
        in_capsules: int | None,
        out_capsules: int,
        in_dim: int,
        out_dim: int,
        *,
        votes: str | VoteTransform,
        routing: str | Routing,
        vote_bias: bool = False,
        normalize: bool = False,
        std: float | None = None,
        expected_children: int | None = None,
        rivals: float | None = None,
        any_grid: bool = False,
        normalize_poses: bool = False,
        skip: bool = False,
        tile_bytes: int | None = None,
        **routing_options: Any,
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        sizes = {"in_capsules": in_capsules, "out_capsules": out_capsules, "in_dim": in_dim, "out_dim": out_dim}
        self.transform = transform_for(owner, votes, sizes, bias=vote_bias, normalize=normalize, std=std)
        known = {
            "in_capsules": None if any_grid else in_capsules,  # on any grid, nothing is learned for single children
            "out_capsules": out_capsules,
            "out_dim": out_dim,
            "vote_std": self.transform.vote_std(),
        }
        self.routing = routing_for(owner, routing, routing_options, known, LAYER_OPTIONS)
        if tile_bytes is not None:
            check_count(owner, "tile_bytes", tile_bytes, 0)
        self.tile_bytes = tile_bytes
        self.norm = nn.LayerNorm(in_dim) if normalize_poses else None
        self.skip = skip
        self._said: set[str] = set()  # plans that were logged
        self._handle = handle(self)  # for compilers
        if std is None and not isinstance(votes, VoteTransform) and not self.routing.parents_are_means:
            children = expected_children or in_capsules or 1024
            length = math.sqrt(in_dim) if normalize_poses else 0.7  # of a child
            vote = length * math.sqrt(self.transform.fan_out())  # of a vote, for weights of standard deviation one
            start = (rivals or out_capsules) / (vote * math.sqrt(children))
            # Few children of a dense layer would need votes so long that the first couplings are all or nothing.
            self.transform.rescale_weights(start if rivals else min(start, 0.4 / vote))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]  # torch has no types for it
        self._handle = handle(self)  # a copy is a layer of its own

    def gather(self, children: Capsules) -> Gathered:
        """The children of every parent, as they vote."""
        if self.norm is None:
            return self._gather(children)
        return self._gather(self._checked(children)._replace(poses=self.norm(children.poses)))

    def _gather(self, children: Capsules) -> Gathered:
        raise NotImplementedError

    def _checked(self, children: Capsules) -> Capsules:
        """The children, if they are what this layer takes."""
        raise NotImplementedError

    def _in_place(self, children: Capsules) -> Capsules:
        """For a skip connection: the child in the place of each parent."""
        return children

    def _joined(self, poses: Tensor, activations: Tensor, children: Capsules, gathered: Gathered) -> Capsules:
        """The parents as the layer gives them: silent where there are none, with a child in its place added."""
        parents = Capsules(poses, activations, gathered.parent_mask)
        if parents.mask is not None:
            parents = parents._replace(
                poses=parents.silent_poses(), activations=activations.masked_fill(~parents.mask, 0)
            )
        return add_children(parents, self._in_place(children)) if self.skip else parents

    def _finished(self, routed: Routed, children: Capsules, gathered: Gathered) -> Routed:
        poses, activations, _ = self._joined(routed.poses, routed.activations, children, gathered)
        return self._laid_out(Routed(poses, activations, routed.couplings))

    def _laid_out(self, routed: Routed) -> Routed:
        """The couplings in the layer's own shape."""
        return routed

    def _flat(self, couplings: Tensor) -> Tensor:
        """The couplings in the routing's shape, [*b i j]."""
        return couplings

    def _job(self, gathered: Gathered, couplings: Tensor | None = None) -> Job:
        flat = None if couplings is None else self._flat(couplings)
        budget = tile_bytes(self.tile_bytes, gathered.children.poses.device)
        return Job(gathered, self.transform, self.routing, flat, budget)

    def vote(self, gathered: Gathered) -> Tensor:
        """The votes of these children, [*b i j d]."""
        return self._job(gathered).vote(gathered.poses)

    def plan(self, children: Capsules) -> Plan:
        """How the votes of these children would be made: the backend, its tiles, and why others refuse.

        A routing that never ran is taken to ask for sums only.
        """
        return self._planned(self.gather(children))

    def _planned(self, gathered: Gathered) -> Plan:
        with torch.random.fork_rng(devices=[]):
            return choose(self._job(gathered))

    if TYPE_CHECKING:  # torch gives Any

        def __call__(self, children: Capsules) -> Capsules: ...

    def forward(self, children: Capsules) -> Capsules:
        """The parents of these children."""
        return self._parents(children, self.gather(children))

    def _parents(self, children: Capsules, gathered: Gathered) -> Capsules:
        if torch.compiler.is_compiling() and self._is_operator(gathered):
            given, known = parameters_of(self), gathered.children
            dtype = given[0].dtype  # behind an operator there is no autocast
            children_given = (known.poses.to(dtype), known.activations.to(dtype), known.mask)
            poses, activations = torch.ops.torchcaps.route(*children_given, given, self._handle)
        else:
            poses, activations = route(self._job(gathered), 2, self._said)
        return self._joined(poses, activations, children, gathered)

    def _is_operator(self, gathered: Gathered) -> bool:
        """May a compiler see the layer as one operator? Not in an exported program, which must stand for itself."""
        draws = self.routing.training and self.routing.sampling < 1  # the backward pass would draw others
        whole = gathered.pairs is None and gathered.children.poses.is_floating_point() and self.tile_bytes != 0
        return whole and not draws and not torch.compiler.is_exporting()

    def route(self, children: Capsules, couplings: Tensor | None = None) -> Routed:
        """The parents together with the couplings that made them; from given couplings (in that shape) if any."""
        return self._routed(children, self.gather(children), couplings)

    def _routed(self, children: Capsules, gathered: Gathered, couplings: Tensor | None) -> Routed:
        routed = Routed(*route(self._job(gathered, couplings), 3, self._said))
        return self._finished(routed, children, gathered)

    def trace(self, children: Capsules, couplings: Tensor | None = None) -> list[Step]:
        """The routing's `Routed` and objective after every iteration."""
        return self._traced(children, self.gather(children), couplings)

    def _traced(self, children: Capsules, gathered: Gathered, couplings: Tensor | None) -> list[Step]:
        steps = self.routing.trace(
            self.vote(gathered),
            gathered.activations,
            mask=gathered.mask,
            couplings=None if couplings is None else self._flat(couplings),
            over_parents=gathered.over_parents,
        )
        return [Step(self._finished(step.routed, children, gathered), step.objective) for step in steps]


# What a user may tell a routed layer, beside the options of its routing.
LAYER_OPTIONS = tuple(
    word
    for word, parameter in inspect.signature(RoutedLayer.__init__).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY and word not in ("rivals", "any_grid")  # these are the layer's own
)
