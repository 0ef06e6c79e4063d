"""Whose child is it? Parents compete for children: the one place where scores become couplings, for every routing."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from torchcaps.functional import safe_divide, safe_log
from torchcaps.types import Activations, Couplings, Mask

Reduce = Callable[..., Tensor]
OverParents = Callable[[Tensor, Reduce], Tensor]


def over_own_parents(values: Tensor, reduce: Reduce) -> Tensor:
    """Reduce [*b i j] over the parents that compete for a child: here simply the axis j. Gives [*b i 1]."""
    return reduce(values, -1, keepdim=True)


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
    top = over_parents(scores, torch.amax).detach()
    top = top.masked_fill(top == -math.inf, 0)  # a child that nobody may take
    if leaky:
        top = top.clamp(min=0)
    shares = (scores == top).to(scores.dtype) if hard else (scores - top).exp()
    total = over_parents(shares, torch.sum)
    if leaky:
        total = total + ((top == 0).to(top.dtype) if hard else (-top).exp())
    return safe_divide(shares, total)


def _softmax(scores: Tensor, leaky: bool) -> Tensor:
    """A softmax over the last axis, with one more score of zero that is dropped again if it is leaky."""
    if scores.stride(-1) > scores.stride(-2):  # parents lie outside of children in memory: full vector lanes
        rows = pad(scores.mT, (0, 0, 0, 1)) if leaky else scores.mT
        return rows.softmax(-2)[..., : scores.shape[-1], :].mT
    return (pad(scores, (0, 1)) if leaky else scores).softmax(-1)[..., : scores.shape[-1]]


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
