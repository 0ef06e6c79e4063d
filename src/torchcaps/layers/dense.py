"""Fully connected capsules: every child votes for every parent."""

from __future__ import annotations

from typing import Any

from torchcaps._core.types import Capsules, check_capsules
from torchcaps.layers.base import RoutedLayer
from torchcaps.layers.residual import check_skip
from torchcaps.routing import Routing
from torchcaps.votes.job import Gathered
from torchcaps.votes.transforms import VoteTransform


class DenseCapsules(RoutedLayer):
    """Children [b i e] to parents [b j d].

    votes: "full", "shared" (in_capsules may be None: any number of children), "factorized" or "matrix".
    routing: a name or a `Routing`. Further arguments are `vote_bias`, `normalize`, `std`, `expected_children`,
    `normalize_poses`, `skip` and `tile_bytes` (see `RoutedLayer`), and the options of a routing given by name, as in
    `DenseCapsules(..., routing="em", iterations=2)`.
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
        **options: Any,
    ) -> None:
        super().__init__(in_capsules, out_capsules, in_dim, out_dim, votes=votes, routing=routing, **options)
        if self.skip:
            check_skip("DenseCapsules", in_capsules, out_capsules, in_dim, out_dim)

    def _gather(self, children: Capsules) -> Gathered:
        return Gathered(self._checked(children))

    def _checked(self, children: Capsules) -> Capsules:
        check_capsules("DenseCapsules", children, 3, "b i e", self.transform.in_capsules, self.transform.in_dim)
        return children
