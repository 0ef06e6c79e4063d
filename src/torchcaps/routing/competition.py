"""Competition of parents for children: converts scores to couplings, for every routing."""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import TypedDict

from torchcaps._core.types import Activations, Couplings, Mask
from torchcaps.functional import safe_log
from torchcaps.votes.competition import Competition, careful, mask_fill, over_own_parents, silent_votes

OverParents = Competition


class CompetitionOptions(TypedDict, total=False):
    """The options of every routing; see `Routing`."""

    gradients: str
    hard: bool
    leaky: bool
    sampling: float


__all__ = [
    "Competition",
    "CompetitionOptions",
    "OverParents",
    "careful",
    "compete",
    "divergence",
    "mask_fill",
    "over_own_parents",
    "sample_parents",
    "scores_of",
    "silent_votes",
]


def compete(
    scores: Tensor,
    mask: Mask | None,
    kept: Tensor | None,
    over_parents: Competition,
    *,
    hard: bool = False,
    leaky: bool = False,
) -> Couplings:
    """Convert scores [*b i j] to couplings: a softmax over the parents that compete for a child.

    hard: assign a child to its best parent only (ties share it). leaky: add one more score, always zero, and drop its
    share. Couplings of masked children and of parents that are not kept are exactly zero.
    """
    return over_parents.shares(scores, mask, kept, hard=hard, leaky=leaky)


def divergence(couplings: Couplings, before: Couplings, *, leaky: bool = False) -> Tensor:
    """Sum_j c_ij log(c_ij / before_ij) for each child, [*b i]: the relative entropy (He 2018 eqs. 11-13).

    leaky: what the couplings of a child lack to one is the share of one more parent.
    """
    total = (torch.xlogy(couplings, couplings) - torch.xlogy(couplings, before)).sum(-1)
    if not leaky:
        return total
    leak, was = ((1 - each.sum(-1, keepdim=True)).clamp(min=0) for each in (couplings, before))
    return total + divergence(leak, was)


def sample_parents(like: Activations, parents: int, share: float) -> Mask:
    """Sample the parents that compete in this pass, [*b j], for each example of children [*b i] (He 2018 eq. 41)."""
    count = max(1, round(share * parents))
    lot = torch.rand(*like.shape[:-1], parents, device=like.device)
    return lot >= lot.topk(count, dim=-1).values[..., -1:]


def scores_of(couplings: Couplings, over_parents: Competition, *, leaky: bool = False) -> Tensor:
    """The scores whose competition gives these couplings; with `leaky`, relative to a leak score of zero."""
    scores = safe_log(couplings)
    if leaky:
        leak = (1 - over_parents(couplings, torch.sum)).clamp(min=torch.finfo(couplings.dtype).tiny)
        scores = scores - leak.log()
    return scores
