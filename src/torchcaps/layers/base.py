"""A capsule layer is geometry x vote transform x routing; this base joins the three."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchcaps._core.errors import check_count
from torchcaps._core.types import Capsules, Routed, Step
from torchcaps.layers.parts import keyword_options, routing_for, starting_std, transform_for
from torchcaps.layers.residual import add_children
from torchcaps.routing import Routing
from torchcaps.votes import backends as _backends  # noqa: F401  (the engine knows them from here on)
from torchcaps.votes.engine import Plan, planned, route, trace
from torchcaps.votes.job import Gathered, Job
from torchcaps.votes.operator import handle, route_compiled, suits_operator
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
    follows from how many children a parent sees (expected_children, else in_capsules, else 1024) and how many parents
    share a child (rivals), see `starting_std`.
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
        votes: str | VoteTransform = "full",
        routing: str | Routing = "dynamic",
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
        if skip:
            self._check_skip(sizes)
        self._said: set[str] = set()  # plans that were logged
        self._handle = handle(self)  # for compilers
        if std is None and not isinstance(votes, VoteTransform) and not self.routing.parents_are_means:
            children = expected_children or in_capsules or 1024
            self.transform.rescale_weights(starting_std(self.transform, children, rivals, normalize_poses))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]  # torch has no types for it
        self._handle = handle(self)  # a copy is a layer of its own

    def _check_skip(self, sizes: dict[str, Any]) -> None:
        """Refuse skip=True if parents are not in the places of children. sizes: the first four arguments."""

    def gather(self, children: Capsules) -> Gathered:
        """The children of every parent, as they vote."""
        self._check(children)
        if self.norm is not None:
            children = children._replace(poses=self.norm(children.poses))
        return self._gather(children)

    def _check(self, children: Capsules) -> None:
        """Refuse children that are not what this layer takes."""
        raise NotImplementedError

    def _gather(self, children: Capsules) -> Gathered:
        raise NotImplementedError

    def _joined(self, poses: Tensor, activations: Tensor, children: Capsules, gathered: Gathered) -> Capsules:
        """The parents as the layer gives them: silent where there are none, with a child in its place added."""
        parents = Capsules(poses, activations, gathered.parent_mask).silent()
        return add_children(parents, children, gathered.windows) if self.skip else parents

    def _finished(self, routed: Routed, children: Capsules, gathered: Gathered) -> Routed:
        poses, activations, _ = self._joined(routed.poses, routed.activations, children, gathered)
        return Routed(poses, activations, gathered.laid_out(routed.couplings))

    def _job(self, gathered: Gathered, couplings: Tensor | None = None) -> Job:
        flat = None if couplings is None else gathered.flat(couplings)
        budget = tile_bytes(self.tile_bytes, gathered.children.poses.device)
        return Job(gathered, self.transform, self.routing, flat, budget)

    def vote(self, gathered: Gathered) -> Tensor:
        """The votes of these children, [*b i j d]."""
        return self._job(gathered).vote(gathered.poses)

    def plan(self, children: Capsules) -> Plan:
        """How the votes of these children would be made: the backend, its tiles, and why others refuse.

        A routing that never ran is taken to ask for sums only.
        """
        return planned(self._job(self.gather(children)))

    if TYPE_CHECKING:  # torch gives Any

        def __call__(self, children: Capsules) -> Capsules: ...

    def forward(self, children: Capsules) -> Capsules:
        """The parents of these children."""
        return self._parents(children, self.gather(children))

    def _parents(self, children: Capsules, gathered: Gathered) -> Capsules:
        if torch.compiler.is_compiling() and suits_operator(self, gathered):
            poses, activations = route_compiled(self, gathered.children)
        else:
            poses, activations = route(self._job(gathered), 2, self._said)
        return self._joined(poses, activations, children, gathered)

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
        steps = trace(self._job(gathered, couplings))
        return [Step(self._finished(step.routed, children, gathered), step.objective) for step in steps]


# What a user may tell a routed layer beside the options of its routing. Two arguments are for subclasses.
LAYER_OPTIONS = [word for word in keyword_options(RoutedLayer.__init__) if word not in ("rivals", "any_grid")]
