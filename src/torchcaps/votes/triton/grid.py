"""The competition of parents over a grid, on a GPU: one launch forwards and one back, whatever windows there are.

A child at a place of the grid is seen by several windows, and all parents of these windows compete for it. One program
owns the children of a place in one example: it reads their scores wherever windows see them, and writes their shares
there. Torch's own operations take a dozen launches and write numbers of all pairs several times.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchcaps.votes.competition import OverGrid, mask_fill
from torchcaps.votes.windows import Windows

BLOCK = 1024  # numbers that a program holds at a time: parents times types of children


class GridInKernels(OverGrid):
    """`OverGrid` whose softmax and its gradient are kernels."""

    def shares(
        self, scores: Tensor, mask: Tensor | None, kept: Tensor | None, *, hard: bool = False, leaky: bool = False
    ) -> Tensor:
        if hard:
            return super().shares(scores, mask, kept, hard=hard, leaky=leaky)
        couplings: Tensor = _Shares.apply(mask_fill(scores, mask, kept, -torch.inf), self.windows, leaky)
        return couplings


class _Shares(torch.autograd.Function):
    """A softmax over all parents that compete for a child; its gradient needs nothing but the couplings."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, windows: Windows, leaky: bool) -> Tensor:
        rows = _rows(scores)
        shares = _room(rows, windows)
        _launch("grid_softmax_kernel", windows, rows, shares, LEAKY=leaky)
        ctx.windows = windows
        ctx.save_for_backward(shares)
        return _outside(shares, scores)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (shares,) = ctx.saved_tensors
        result = _room(shares, ctx.windows)
        _launch("grid_softmax_back_kernel", ctx.windows, shares, _rows(gradient), result)
        return _outside(result, gradient), None, None


def _rows(values: Tensor) -> Tensor:
    """Numbers of pairs [b *out (k i) j] as [b p j (k i)]."""
    return values.flatten(1, -3).mT.contiguous()


def _outside(rows: Tensor, like: Tensor) -> Tensor:
    return rows.mT.unflatten(1, like.shape[1:-2])


def _room(like: Tensor, windows: Windows) -> Tensor:
    """Room for results; children outside the grid belong to no place, and their shares stay zero."""
    return torch.zeros_like(like) if windows.sees_outside else torch.empty_like(like)


def _launch(name: str, windows: Windows, *arrays: Tensor, **flags: bool) -> None:
    from torchcaps.votes.triton import softmax

    batch, count, parents, children = arrays[0].shape
    views = windows.views(arrays[0].device)  # [q v], the last row for children outside
    offsets = children and windows.seen(arrays[0].device).shape[1]
    types = children // max(1, offsets)
    if not batch or not types or not windows.places:
        return
    wide = min(1 << (types - 1).bit_length(), BLOCK)
    high = max(1, min(1 << (parents - 1).bit_length(), BLOCK // wide))
    kernel: Any = getattr(softmax, name)
    kernel[(batch, windows.places, -(-types // wide))](
        *arrays, views, count, parents, offsets, types, views.shape[1], BJ=high, BC=wide, **flags
    )
