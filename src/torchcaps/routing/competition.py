"""Whose child is it? Parents compete for children: the one place where scores become couplings, for every routing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from torchcaps.functional import safe_log
from torchcaps.types import Activations, Couplings, Mask
from torchcaps.votes.layout import eager, in_memory_order, memory_order, over_axis

Reduce = Callable[..., Tensor]
OverParents = Callable[[Tensor, Reduce], Tensor]


def over_own_parents(values: Tensor, reduce: Reduce) -> Tensor:
    """Reduce [*b i j] over the parents that compete for a child: here simply the axis j. Gives [*b i 1]."""
    return over_axis(reduce, values, -1)


def silence(values: Tensor, mask: Tensor | None, kept: Tensor | None, fill: float) -> Tensor:
    """The values [*b i j] with `fill` for children outside the mask [*b i] and parents not kept [*b j]."""
    if mask is not None:
        values = values.masked_fill(~mask.unsqueeze(-1), fill)
    if kept is not None:
        values = values.masked_fill(~kept.unsqueeze(-2), fill)
    return values


def compete(
    scores: Tensor,
    mask: Mask | None,
    kept: Tensor | None,
    over_parents: OverParents,
    *,
    hard: bool = False,
    leaky: bool = False,
) -> Couplings:
    """Turn scores [*b i j] into couplings: a softmax over the parents that compete for a child.

    hard gives a child wholly to its best parent (equal ones share it); leaky lets one more score, always zero, compete
    and drops it. Masked children and parents not kept get exactly zero.
    """
    if kept is None and not hard and over_parents is over_own_parents:
        return silence(_softmax(scores, leaky), mask, None, 0)
    scores = silence(scores, mask, kept, -math.inf)
    if not hard and eager():
        couplings: Tensor = _Softmax.apply(scores, over_parents, leaky)
        return couplings
    return _shares(scores, over_parents, hard, leaky)


def _shares(scores: Tensor, over_parents: OverParents, hard: bool, leaky: bool) -> Tensor:
    top = over_parents(scores, torch.amax).detach()
    top = top.masked_fill(top == -math.inf, 0)  # a child that nobody may take
    if leaky:
        top = top.clamp(min=0)
    shares = in_memory_order(torch.eq if hard else torch.sub, scores, top)
    shares = shares.to(scores.dtype) if hard else shares.exp()
    total = over_parents(shares, torch.sum)
    if leaky:
        total = total + ((top == 0).to(top.dtype) if hard else (-top).exp())
    return in_memory_order(torch.mul, shares, total.masked_fill(total == 0, 1).reciprocal())


class _Softmax(torch.autograd.Function):
    """The same over whatever parents compete; its gradient c (g - Sum c g) needs nothing but the couplings."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, over_parents: OverParents, leaky: bool) -> Tensor:
        couplings = _shares(scores, over_parents, False, leaky)
        ctx.over_parents = over_parents
        ctx.save_for_backward(couplings)
        ctx.save_for_forward(couplings)
        return couplings

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _Softmax.jvp(ctx, gradient), None, None

    @staticmethod
    def jvp(ctx: Any, change: Tensor, *_: Any) -> Tensor:  # the same: its matrix is symmetric
        (couplings,) = ctx.saved_tensors
        weighed = couplings * change
        return weighed - in_memory_order(torch.mul, couplings, ctx.over_parents(weighed, torch.sum))


def _softmax(scores: Tensor, leaky: bool) -> Tensor:
    """A softmax over the last axis, with one more score of zero that is dropped again if it is leaky."""
    order, back = memory_order(scores)  # whatever lies inside of parents fills vector lanes
    axis = order.index(scores.ndim - 1)
    rows = scores.permute(order)
    if not leaky:
        return rows.softmax(axis).permute(back)
    rows = pad(rows, (0, 0) * (scores.ndim - 1 - axis) + (0, 1))
    return rows.softmax(axis).narrow(axis, 0, scores.shape[-1]).permute(back)


def sample_parents(like: Activations, parents: int, share: float) -> Mask:
    """Which parents compete in this pass, [*b j], drawn for each example of children [*b i] (He 2018 eq. 41)."""
    count = max(1, round(share * parents))
    lot = torch.rand(*like.shape[:-1], parents, device=like.device)
    return lot >= lot.topk(count, dim=-1).values[..., -1:]


def scores_of(couplings: Couplings, over_parents: OverParents, *, leaky: bool = False) -> Tensor:
    """The scores whose competition gives these couplings; where they leak, the leak's own score is zero."""
    scores = safe_log(couplings)
    if leaky:
        leak = (1 - over_parents(couplings, torch.sum)).clamp(min=torch.finfo(couplings.dtype).tiny)
        scores = scores - leak.log()
    return scores
