"""Squash on a GPU: one launch forwards and one back, where torch's own operations take about eighteen."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 2048  # numbers that a program holds


@triton.jit
def squash_kernel(vectors, found, count, SIZE: tl.constexpr, D2: tl.constexpr, BN: tl.constexpr, constant):
    """n / (constant + n^2) times vectors [count SIZE], with n their length."""
    row, column = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, D2)
    place = row.to(tl.int64)[:, None] * SIZE + column[None, :]
    there = (row[:, None] < count) & (column[None, :] < SIZE)
    v = tl.load(vectors + place, mask=there, other=0.0)
    square = tl.sum(v * v, axis=1)
    tl.store(found + place, v * (tl.sqrt(square) / (constant + square))[:, None], mask=there)


@triton.jit
def squash_back_kernel(
    vectors, gradient, found, count, SIZE: tl.constexpr, D2: tl.constexpr, BN: tl.constexpr, constant
):
    """The gradient a g + a'/n <v, g> v of a(n) v; zero for the zero vector."""
    row, column = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, D2)
    place = row.to(tl.int64)[:, None] * SIZE + column[None, :]
    there = (row[:, None] < count) & (column[None, :] < SIZE)
    v = tl.load(vectors + place, mask=there, other=0.0)
    g = tl.load(gradient + place, mask=there, other=0.0)
    square = tl.sum(v * v, axis=1)
    length = tl.sqrt(square)
    below = constant + square
    slope = (constant - square) / (below * below) / tl.where(length == 0.0, 1.0, length)
    along = tl.sum(v * g, axis=1)
    tl.store(found + place, g * (length / below)[:, None] + v * (slope * along)[:, None], mask=there)


class Squashed(torch.autograd.Function):
    """n^2 / (constant + n^2) v / n for vectors v of length n, [*b d]."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, constant: float) -> Tensor:
        rows = vectors.contiguous()
        ctx.constant = constant
        ctx.save_for_backward(rows)
        return _launch(squash_kernel, rows, constant)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody wants gradients of gradients: in torch's own operations
            return _plain_gradient(rows, gradient, ctx.constant), None
        return _launch(squash_back_kernel, rows, ctx.constant, gradient.contiguous()), None


def _plain_gradient(rows: Tensor, gradient: Tensor, constant: float) -> Tensor:
    """What `squash_back_kernel` computes, as operations that can be differentiated again."""
    length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    below = constant + length * length
    slope = (constant - length * length) / (below * below) / length.masked_fill(length == 0, 1)
    return gradient * (length / below) + rows * (slope * (rows * gradient).sum(-1, keepdim=True))


def _launch(kernel: Any, rows: Tensor, constant: float, *more: Tensor) -> Tensor:
    found = torch.empty_like(rows)
    size = rows.shape[-1]
    count = rows.numel() // max(1, size)
    if count:
        wide = 1 << (size - 1).bit_length()
        high = max(1, ROWS // wide)
        kernel[(-(-count // high),)](rows, *more, found, count, SIZE=size, D2=wide, BN=high, constant=constant)
    return found
