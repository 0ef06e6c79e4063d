"""Fully connected capsules: every child votes for every parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchcaps._core.errors import input_error, shape_text
from torchcaps._core.types import Capsules, Routed, Step, check_capsules
from torchcaps.layers.base import RoutedLayer
from torchcaps.layers.residual import check_skip
from torchcaps.votes.engine import Plan, planned
from torchcaps.votes.job import Gathered


class DenseCapsules(RoutedLayer):
    """Children [b i e] to parents [b j d].

    in_capsules, in_dim: the number of children and the size of their poses. out_capsules, out_dim: those of parents.
    votes: "full", "shared" (in_capsules may be None: any number of children), "factorized" or "matrix".
    routing: a name or a `Routing`. Further arguments are `vote_bias`, `normalize`, `std`, `expected_children`,
    `normalize_poses`, `skip` and `tile_bytes` (see `RoutedLayer`), and the options of a routing given by name, as in
    `DenseCapsules(..., routing="em", iterations=2)`.

    `layer(children, pair_mask)` takes the pairs of child and parent that there are, as the edges of a graph: True or
    False, [i j] for all examples or [b i j]. Only the parents that a child is connected with compete for it, and the
    couplings of other pairs are zero. A child without a pair counts for nothing; a parent without one has zero pose and
    activation, and is masked. Votes are then made by the backend `dense`, for all pairs.
    """

    def _check_skip(self, sizes: dict[str, Any]) -> None:
        check_skip("DenseCapsules", **sizes)

    def gather(self, children: Capsules, pair_mask: Tensor | None = None) -> Gathered:
        if pair_mask is None:
            return super().gather(children)
        self._check(children)
        shape = (*children.activations.shape, self.transform.out_capsules)
        _check_pairs(pair_mask, shape)
        pairs = pair_mask.expand(shape)
        if children.mask is not None:
            pairs = pairs & children.mask.unsqueeze(-1)
        parents = pairs.any(-2)
        children = super().gather(children._replace(mask=pairs.any(-1))).children
        return Gathered(children, pairs=pairs, parent_mask=parents)

    def _gather(self, children: Capsules) -> Gathered:
        return Gathered(children)

    def _check(self, children: Capsules) -> None:
        check_capsules("DenseCapsules", children, "b i e", self.transform.in_capsules, self.transform.in_dim)

    def plan(self, children: Capsules, pair_mask: Tensor | None = None) -> Plan:
        return planned(self._job(self.gather(children, pair_mask)))

    if TYPE_CHECKING:

        def __call__(self, children: Capsules, pair_mask: Tensor | None = None) -> Capsules: ...

    def forward(self, children: Capsules, pair_mask: Tensor | None = None) -> Capsules:
        """The parents of these children. pair_mask: the pairs that there are, [i j] or [b i j]; left out, all."""
        return self._parents(children, self.gather(children, pair_mask))

    def route(self, children: Capsules, couplings: Tensor | None = None, pair_mask: Tensor | None = None) -> Routed:
        return self._routed(children, self.gather(children, pair_mask), couplings)

    def trace(self, children: Capsules, couplings: Tensor | None = None, pair_mask: Tensor | None = None) -> list[Step]:
        return self._traced(children, self.gather(children, pair_mask), couplings)


def _check_pairs(pair_mask: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse what does not say True or False of each pair, for all examples or for each."""
    if not isinstance(pair_mask, Tensor) or pair_mask.dtype != torch.bool:
        got = pair_mask.dtype if isinstance(pair_mask, Tensor) else f"a {type(pair_mask).__name__}"
        raise input_error("DenseCapsules", "a boolean pair_mask", got, "Pass pair_mask.bool(), True for pairs to keep.")
    if pair_mask.shape not in (shape, shape[1:]):
        expected = f"pair_mask [i j] = {shape_text(shape[1:])} or [b i j] = {shape_text(shape)}"
        raise input_error("DenseCapsules", expected, shape_text(pair_mask.shape), "Say True or False of each pair.")
