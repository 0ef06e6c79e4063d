"""Kernels of the softmax over all parents that compete for a child of a grid. See `grid`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _places(views, view, seen, b, windows, parents, offsets, types, j, c):
    """Where the scores of parents j [BJ] for children c [BC] stand, from one of the views of a place; and whether."""
    position = tl.load(views + tl.program_id(1).to(tl.int64) * seen + view)  # (window, offset in it) as one number
    window, offset = position // offsets, position % offsets
    row = (b * windows + window) * parents + j
    real = tl.where(position < windows * offsets, parents, 0)  # parents of a window that is there
    there = (j < real)[:, None] & (c < types)[None, :]
    return row[:, None] * (offsets * types) + offset * types + c[None, :], there


@triton.jit
def grid_softmax_kernel(
    scores, shares, views, windows, parents, offsets, types, seen,
    BJ: tl.constexpr, BC: tl.constexpr, LEAKY: tl.constexpr,
):  # fmt: skip
    """Shares [b p j (k c)] of scores; a program for the children of one place, of BC types."""
    b, c = tl.program_id(0).to(tl.int64), tl.program_id(2) * BC + tl.arange(0, BC)
    top = tl.full((BC,), float("-inf"), dtype=scores.dtype.element_ty)
    for view in range(seen):
        for start in range(0, parents, BJ):
            j = start + tl.arange(0, BJ)
            place, there = _places(views, view, seen, b, windows, parents, offsets, types, j, c)
            top = tl.maximum(top, tl.max(tl.load(scores + place, mask=there, other=float("-inf")), axis=0))
    top = tl.where(top == float("-inf"), 0.0, top)  # a child that nobody may take
    if LEAKY:
        top = tl.maximum(top, 0.0)
    total = tl.zeros((BC,), dtype=scores.dtype.element_ty)
    for view in range(seen):
        for start in range(0, parents, BJ):
            j = start + tl.arange(0, BJ)
            place, there = _places(views, view, seen, b, windows, parents, offsets, types, j, c)
            x = tl.load(scores + place, mask=there, other=float("-inf"))
            total += tl.sum(tl.exp(x - top[None, :]), axis=0)
    if LEAKY:
        total += tl.exp(-top)
    share = 1.0 / tl.where(total == 0.0, 1.0, total)
    for view in range(seen):
        for start in range(0, parents, BJ):
            j = start + tl.arange(0, BJ)
            place, there = _places(views, view, seen, b, windows, parents, offsets, types, j, c)
            x = tl.load(scores + place, mask=there, other=float("-inf"))
            tl.store(shares + place, tl.exp(x - top[None, :]) * share[None, :], mask=there)


@triton.jit
def grid_softmax_back_kernel(
    shares, gradient, found, views, windows, parents, offsets, types, seen, BJ: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The gradient of scores, c (g - Sum c g), over all parents that compete for a child."""
    b, c = tl.program_id(0).to(tl.int64), tl.program_id(2) * BC + tl.arange(0, BC)
    total = tl.zeros((BC,), dtype=shares.dtype.element_ty)
    for view in range(seen):
        for start in range(0, parents, BJ):
            j = start + tl.arange(0, BJ)
            place, there = _places(views, view, seen, b, windows, parents, offsets, types, j, c)
            x = tl.load(shares + place, mask=there, other=0.0)
            total += tl.sum(x * tl.load(gradient + place, mask=there, other=0.0), axis=0)
    for view in range(seen):
        for start in range(0, parents, BJ):
            j = start + tl.arange(0, BJ)
            place, there = _places(views, view, seen, b, windows, parents, offsets, types, j, c)
            x = tl.load(shares + place, mask=there, other=0.0)
            g = tl.load(gradient + place, mask=there, other=0.0)
            tl.store(found + place, x * (g - total[None, :]), mask=there)
