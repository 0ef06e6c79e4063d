"""Fully connected capsules: every child votes for every parent."""

from __future__ import annotations

from typing import Any

from torchcaps.layers.base import Gathered, RoutedLayer, routing_for
from torchcaps.layers.votes import make_votes
from torchcaps.routing import Routing
from torchcaps.types import Capsules, check_capsules


class DenseCapsules(RoutedLayer):
    """Children [b i e] to parents [b j d].

    votes: "full", "shared" (in_capsules may be None: any number of children), "factorised" or "matrix".
    routing: a name, with its options as further arguments (`routing="em", iterations=2`), or a `Routing`.
    vote_bias adds a learned bias to every vote; normalise divides each vote matrix by its Frobenius norm; std is the
    scale of the starting weights (see `VoteTransform`).
    """

    def __init__(
        self,
        in_capsules: int | None,
        out_capsules: int,
        in_dim: int,
        out_dim: int,
        *,
        votes: str = "full",
        routing: str | Routing = "dynamic",
        vote_bias: bool = False,
        normalise: bool = False,
        std: float | None = None,
        **routing_options: Any,
    ) -> None:
        super().__init__()
        self.votes = make_votes(
            votes, in_capsules, out_capsules, in_dim, out_dim, bias=vote_bias, normalise=normalise, std=std
        )
        self.routing = routing_for(
            "DenseCapsules",
            routing,
            routing_options,
            in_capsules=in_capsules,
            out_capsules=out_capsules,
            out_dim=out_dim,
        )

    def gather(self, children: Capsules) -> Gathered:
        check_capsules("DenseCapsules", children, 3, "b i e", self.votes.in_capsules, self.votes.in_dim)
        return Gathered(self.votes(children.poses), children.activations, children.mask)
