"""The parents that compete for a child: those of its window, or those of all windows that contain it.

A `Competition` converts scores to couplings, and reduces values of pairs over the parents of a child. Layers create one
and pass it to their routing; backends have their own for their memory layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from torchcaps.votes.layout import constant, eager, in_memory_order, memory_order, over_axis
from torchcaps.votes.windows import Windows

Reduce = Callable[..., Tensor]


def mask_fill(values: Tensor, mask: Tensor | None, kept: Tensor | None, fill: float) -> Tensor:
    """The values [*b i j] with `fill` for children outside the mask [*b i] and parents not kept [*b j]."""
    if mask is not None:
        values = values.masked_fill(~mask.unsqueeze(-1), fill)
    if kept is not None:
        values = values.masked_fill(~kept.unsqueeze(-2), fill)
    return values


def silent_votes(votes: Tensor, mask: Tensor | None, pairs: Tensor | None) -> Tensor:
    """Votes [*b i j d], zero for children outside the mask and pairs that are not there, whatever stood there."""
    if mask is not None:
        votes = votes.masked_fill(~mask[..., None, None], 0)
    return votes if pairs is None else votes.masked_fill(~pairs.unsqueeze(-1), 0)


class Competition:
    """The parents of one window compete: the axis j of [*b i j]."""

    local = True  # True: all parents that compete for a child are on the axis j
    out: tuple[int, ...] = ()  # otherwise the shape of the grid of windows
    pairs: Tensor | None = None  # the pairs of child and parent that exist, [*b i j]; None: all

    def __call__(self, values: Tensor, reduce: Reduce) -> Tensor:
        """Reduce [*b i j] over the parents that compete for a child, [*b i 1]. `reduce`: torch.sum or torch.amax."""
        return over_axis(reduce, values, -1)

    def shares(
        self, scores: Tensor, mask: Tensor | None, kept: Tensor | None, *, hard: bool = False, leaky: bool = False
    ) -> Tensor:
        """A softmax of scores [*b i j] over the parents of each child; zero if all parents of a child are masked."""
        scores = mask_fill(scores, mask, kept, -math.inf)
        if not hard and eager():
            couplings: Tensor = _Softmax.apply(scores, self, leaky)
            return couplings
        return _shares(scores, self, hard, leaky)

    def even(self, like: Tensor, leaky: bool) -> Tensor | None:
        """The result of `shares` for equal scores, of the shape of `like` [*b i j]; None if `shares` must be called."""
        return constant(1 / (like.shape[-1] + leaky), like, like.shape)

    def present(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """Values of pairs [*b i j], with `fill` for those pairs that are not there."""
        return values if self.pairs is None else values.masked_fill(~self.pairs, fill)

    def for_windows(self, values: Tensor, like: Tensor) -> Tensor:
        """Expand values that all examples share, [i j] or [h w i j] for windows, to the shape of `like`."""
        return values.expand(like.shape)


class OwnParents(Competition):
    """The same with torch's own softmax, for children with at least one finite score."""

    def shares(
        self, scores: Tensor, mask: Tensor | None, kept: Tensor | None, *, hard: bool = False, leaky: bool = False
    ) -> Tensor:
        if kept is not None or hard:
            return super().shares(scores, mask, kept, hard=hard, leaky=leaky)
        return mask_fill(_softmax(scores, leaky), mask, None, 0)


class OverPairs(Competition):
    """The parents that a child is connected with compete: the axis j of [*b i j], where pairs [*b i j] is True."""

    def __init__(self, pairs: Tensor) -> None:
        self.pairs = pairs

    def __call__(self, values: Tensor, reduce: Reduce) -> Tensor:
        return super().__call__(self.present(values, -math.inf if reduce is torch.amax else 0.0), reduce)

    def shares(
        self, scores: Tensor, mask: Tensor | None, kept: Tensor | None, *, hard: bool = False, leaky: bool = False
    ) -> Tensor:
        return super().shares(self.present(scores, -math.inf), mask, kept, hard=hard, leaky=leaky)

    def even(self, like: Tensor, leaky: bool) -> Tensor | None:
        return None


over_own_parents = OwnParents()
careful = Competition()  # also for children whose given couplings are all zero


class OverGrid(Competition):
    """The parents of all windows that contain a child compete: [b *out (k i) j], with k positions in a window."""

    local = False

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.out = windows.out

    def __call__(self, values: Tensor, reduce: Reduce) -> Tensor:
        best = over_axis(reduce, values, -1).squeeze(-1)
        return self.windows.over_views(best, reduce, -math.inf if reduce is torch.amax else 0.0).unsqueeze(-1)

    def even(self, like: Tensor, leaky: bool) -> Tensor | None:
        *_, children, parents = like.shape

        def make() -> Tensor:
            counts = self.windows.counts(like.device).to(like.dtype)  # [p k]
            each = (1 / (counts * parents + leaky)).repeat_interleave(children // counts.shape[1], 1)
            return each.view(*self.windows.out, children, 1)

        name = ("even", children, parents, leaky, like.dtype)
        return self.windows.table(name, like.device, make).expand(like.shape)


def _shares(scores: Tensor, over_parents: Competition, hard: bool, leaky: bool) -> Tensor:
    top = over_parents(scores, torch.amax).detach()
    top = top.masked_fill(top == -math.inf, 0)  # all parents of the child are masked
    if leaky:
        top = top.clamp(min=0)
    shares = in_memory_order(torch.eq if hard else torch.sub, scores, top)
    shares = shares.to(scores.dtype) if hard else shares.exp()
    total = over_parents(shares, torch.sum)
    if leaky:
        total = total + ((top == 0).to(top.dtype) if hard else (-top).exp())
    return in_memory_order(torch.mul, shares, total.masked_fill(total == 0, 1).reciprocal())


class _Softmax(torch.autograd.Function):
    """A softmax over the competing parents, whose gradient c (g - Sum c g) needs only the couplings."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, over_parents: Competition, leaky: bool) -> Tensor:
        couplings = _shares(scores, over_parents, False, leaky)
        ctx.over_parents = over_parents
        ctx.save_for_backward(couplings)
        return couplings

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (couplings,) = ctx.saved_tensors
        weighed = couplings * gradient
        return weighed - in_memory_order(torch.mul, couplings, ctx.over_parents(weighed, torch.sum)), None, None


def _softmax(scores: Tensor, leaky: bool) -> Tensor:
    """A softmax over the last axis; if leaky, with one more score of zero, whose share is dropped."""
    order, back = memory_order(scores)  # axes with a smaller stride than parents fill SIMD lanes
    axis = order.index(scores.ndim - 1)
    rows = scores.permute(order)
    if not leaky:
        return rows.softmax(axis).permute(back)
    rows = pad(rows, (0, 0) * (scores.ndim - 1 - axis) + (0, 1))
    return rows.softmax(axis).narrow(axis, 0, scores.shape[-1]).permute(back)
