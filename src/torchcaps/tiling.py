"""Bounded memory: votes are made and routed for a tile of the batch at a time, and made again in the backward pass.

Votes are by far the largest tensors of a capsule network: a number for every child, parent and pose dimension of every
example. A tile's votes fit the processor's cache, where the many passes of a routing over them cost little, and memory
does not grow with the batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from torchcaps.errors import complaint
from torchcaps.precision import autocast_as_now
from torchcaps.scratch import Room

TILE_BYTES = 8 * 2**20
VARIABLE = "TORCHCAPS_TILE_BYTES"

# One tile: batch tensors (None where there is nothing) and weights in, results out.
Work = Callable[[list[Tensor | None], list[Tensor]], tuple[Tensor, ...]]


def tile_bytes(given: int | None = None) -> int:
    """The bytes that the votes of one tile may take: as given, else by TORCHCAPS_TILE_BYTES, else 8 MB; 0: no tiles."""
    if given is not None:
        return given
    text = os.environ.get(VARIABLE)
    if text is None:
        return TILE_BYTES
    if not text.isdecimal():
        raise complaint(VARIABLE, "a number of bytes, or 0 for no tiles", repr(text), "Set it to 8388608, say.")
    return int(text)


def tiled(work: Work, batch: list[Tensor | None], weights: list[Tensor], size: int) -> tuple[Tensor, ...]:
    """`work(batch, weights)` for `size` rows of the batch tensors at a time.

    One tile runs as it is. With more, nothing of a tile is kept for the backward pass but what went in.
    """
    rows = next(len(part) for part in batch if part is not None)
    if rows <= size:
        return work(batch, weights)
    tensors = [*(part for part in batch if part is not None), *weights]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        results: tuple[Tensor, ...] = _Tiled.apply(work, len(batch), size, *batch, *weights)
        return results
    return _run(work, batch, weights, size)


def _run(work: Work, batch: list[Tensor | None], weights: list[Tensor], size: int) -> tuple[Tensor, ...]:
    room, results = Room(), []
    for part in _split(batch, size):
        with room.tile():
            results.append(work(part, weights))
    return tuple(torch.cat(parts) for parts in zip(*results, strict=True))


def _split(batch: list[Any], size: int) -> list[list[Any]]:
    rows = next(len(part) for part in batch if part is not None)
    return [[None if part is None else part[start : start + size] for part in batch] for start in range(0, rows, size)]


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, work: Work, parts: int, size: int, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        ctx.work, ctx.parts, ctx.size = work, parts, size
        ctx.save_for_backward(*tensors)
        device = next(tensor.device.type for tensor in tensors if tensor is not None)
        ctx.autocast = autocast_as_now(device)
        ctx.set_materialize_grads(False)
        return _run(work, list(tensors[:parts]), [w for w in tensors[parts:] if w is not None], size)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if all(gradient is None for gradient in gradients):
            return (None,) * (3 + len(ctx.saved_tensors))
        tensors = ctx.saved_tensors
        needs = ctx.needs_input_grad[3:]
        batch, weights = list(tensors[: ctx.parts]), list(tensors[ctx.parts :])
        leaves = [w.detach().requires_grad_(need) for w, need in zip(weights, needs[ctx.parts :], strict=True)]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        for_weights = [torch.zeros_like(leaf) for leaf in wanted]
        for_batch: list[list[Tensor]] = [[] for _ in batch]
        room = Room()
        for part, given in zip(_split(batch, ctx.size), _split(list(gradients), ctx.size), strict=True):
            rows = [
                None if p is None else p.detach().requires_grad_(need)
                for p, need in zip(part, needs[: ctx.parts], strict=True)
            ]
            entering = [row for row in rows if row is not None and row.requires_grad]
            with room.tile():
                with torch.enable_grad(), ctx.autocast():
                    results = ctx.work(rows, leaves)
                answered = [(r, g) for r, g in zip(results, given, strict=True) if g is not None and r.requires_grad]
                found = torch.autograd.grad(
                    [r for r, _ in answered], [*entering, *wanted], [g for _, g in answered], allow_unused=True
                )
            for total, gradient in zip(for_weights, found[len(entering) :], strict=True):
                if gradient is not None:
                    total += gradient
            arrived = iter(found)
            for place, row in enumerate(rows):
                if row is not None and row.requires_grad:
                    gradient = next(arrived)
                    for_batch[place].append(torch.zeros_like(row) if gradient is None else gradient)
        weights_back = iter(for_weights)
        return (
            None,
            None,
            None,
            *(torch.cat(pieces) if pieces else None for pieces in for_batch),
            *(next(weights_back) if leaf.requires_grad else None for leaf in leaves),
        )
