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

from torchcaps._core.errors import input_error
from torchcaps._core.precision import autocast_as_now, without_autocast
from torchcaps.votes.buffers import BufferPool, reused_pool
from torchcaps.votes.gradients import refuse_second_derivatives

TILE_BYTES = 12 * 2**20
FREE_BYTES = 4 * 2**30  # taken to be free on a device that does not tell
VARIABLE = "TORCHCAPS_TILE_BYTES"

# One tile: batch tensors (None where there is nothing) and weights in, results out.
Work = Callable[[list[Tensor | None], list[Tensor]], tuple[Tensor, ...]]


def tile_bytes(given: int | None = None, device: torch.device | None = None) -> int:
    """The bytes that the votes of one tile may take: given, else by TORCHCAPS_TILE_BYTES, else as the device has it.

    12 MB for the cache of a CPU; elsewhere, where tiles only bound memory, an eighth of what is free. 0: no tiles.
    """
    if given is not None:
        return given
    text = os.environ.get(VARIABLE)
    if text is None:
        return TILE_BYTES if device is None or device.type in ("cpu", "meta") else _share_of(device)
    if not text.isdecimal():
        raise input_error(VARIABLE, "a number of bytes, or 0 for no tiles", repr(text), "Set it to 12582912, say.")
    return int(text)


def _share_of(device: torch.device) -> int:
    free = FREE_BYTES
    if device.type == "cuda" and not torch.compiler.is_compiling():
        free, _ = torch.cuda.mem_get_info(device)
        free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return max(TILE_BYTES, free // 8)


def tiled(
    work: Work,
    batch: list[Tensor | None],
    weights: list[Tensor],
    size: int,
    has_hooks: bool = False,
    keep: bool = False,
) -> tuple[Tensor, ...]:
    """`work(batch, weights)` for `size` rows of the batch tensors at a time.

    One tile runs as it is. With more, nothing of a tile is kept for the backward pass but what went in. has_hooks:
    votes are shown to hooks, which may keep them. keep: autograd may keep what it needs of all tiles.
    """
    rows = next(len(part) for part in batch if part is not None)
    if rows <= size:
        with BufferPool().tile():
            return work(batch, weights)
    tensors = [*(part for part in batch if part is not None), *weights]
    learning = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if learning and keep:
        tiles = zip(*([None] * -(-rows // size) if part is None else part.split(size) for part in batch), strict=True)
        return tuple(_joined(list(parts)) for parts in zip(*(work(list(tile), weights) for tile in tiles), strict=True))
    if learning:
        results: tuple[Tensor, ...] = _Tiled.apply(work, len(batch), size, has_hooks, *batch, *weights)
        return results
    return _run(work, batch, weights, size, has_hooks)


def _run(
    work: Work, batch: list[Tensor | None], weights: list[Tensor], size: int, has_hooks: bool
) -> tuple[Tensor, ...]:
    results = []
    with reused_pool(has_hooks) as pool:
        for part in _split(batch, size):
            with pool.tile():
                results.append([pool.kept(result) for result in work(part, weights)])
    return tuple(_joined(list(parts)) for parts in zip(*results, strict=True))


def _split(batch: list[Any], size: int) -> list[list[Any]]:
    rows = next(len(part) for part in batch if part is not None)
    return [[None if part is None else part[start : start + size] for part in batch] for start in range(0, rows, size)]


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, work: Work, parts: int, size: int, has_hooks: bool, *tensors: Tensor | None
    ) -> tuple[Tensor, ...]:
        ctx.work, ctx.parts, ctx.size = work, parts, size
        device = next(tensor.device for tensor in tensors if tensor is not None)
        ctx.autocast = autocast_as_now(device.type)
        ctx.devices = [device] if device.type not in ("cpu", "meta") else []
        ctx.random = [torch.get_rng_state(), *map(_random_state, ctx.devices)]
        ctx.set_materialize_grads(False)
        results = _run(work, list(tensors[:parts]), list(tensors[parts:]), size, has_hooks)  # type: ignore[arg-type]
        ctx.save_for_backward(*tensors)
        return results

    @staticmethod
    @without_autocast
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        if all(gradient is None for gradient in gradients):
            return (None,) * (4 + len(ctx.saved_tensors))
        now = [torch.get_rng_state(), *map(_random_state, ctx.devices)]
        with reused_pool() as pool:  # what a tile draws at random, it draws again
            try:
                _set_random(ctx.random, ctx.devices)
                return None, None, None, None, *_gradients_of_tiles(ctx, list(gradients), pool)
            finally:
                _set_random(now, ctx.devices)


def _random_state(device: torch.device) -> Tensor:
    module: Any = torch.get_device_module(device)  # torch.cuda, torch.mps, and so on
    state: Tensor = module.get_rng_state(device) if device.type == "cuda" else module.get_rng_state()
    return state


def _set_random(states: list[Tensor], devices: list[torch.device]) -> None:
    torch.set_rng_state(states[0])
    for device, state in zip(devices, states[1:], strict=True):
        module: Any = torch.get_device_module(device)
        module.set_rng_state(state, *([device] if device.type == "cuda" else []))


def _gradients_of_tiles(ctx: Any, gradients: list[Tensor | None], pool: BufferPool) -> list[Tensor | None]:
    """The gradients of all batch tensors and weights, from every tile made again."""
    tensors, needs = list(ctx.saved_tensors), ctx.needs_input_grad[4:]
    weights = zip(tensors[ctx.parts :], needs[ctx.parts :], strict=True)
    leaves = [weight.detach().requires_grad_(need) for weight, need in weights]
    for_weights: list[Tensor | None] = [None] * len(leaves)
    for_batch: list[list[Tensor]] = [[] for _ in range(ctx.parts)]
    tiles = zip(_split(tensors[: ctx.parts], ctx.size), _split(gradients, ctx.size), strict=True)
    for number, (part, given) in enumerate(tiles):
        rows = [
            None if tensor is None else tensor.detach().requires_grad_(need)
            for tensor, need in zip(part, needs, strict=False)
        ]
        inputs = [*rows, *leaves]
        wanted = [index for index, tensor in enumerate(inputs) if tensor is not None and tensor.requires_grad]
        with pool.tile():
            with torch.enable_grad(), ctx.autocast():
                results = ctx.work(rows, leaves)
            answered = [(r, g) for r, g in zip(results, given, strict=True) if g is not None and r.requires_grad]
            if number == 0:
                _refuse_others([r for r, _ in answered], [inputs[index] for index in wanted])
            found = torch.autograd.grad(
                [r for r, _ in answered],
                [inputs[index] for index in wanted],
                [g for _, g in answered],
                allow_unused=True,
            )
        for index, gradient in zip(wanted, found, strict=True):
            if index < ctx.parts:
                missing = gradient is None
                for_batch[index].append(torch.zeros_like(inputs[index]) if missing else pool.kept(gradient))
            elif gradient is not None:
                total = for_weights[index - ctx.parts]
                for_weights[index - ctx.parts] = gradient.clone() if total is None else total.add_(gradient)
    return [*(_joined(pieces) if pieces else None for pieces in for_batch), *for_weights]


def _joined(pieces: list[Tensor]) -> Tensor:
    """The pieces of all tiles; torch.cat is slow where their examples lie innermost in memory."""
    if all(piece.is_contiguous() for piece in pieces):
        return torch.cat(pieces)
    if any(piece.requires_grad for piece in pieces):
        return torch.cat(pieces)
    whole = pieces[0].new_empty(sum(map(len, pieces)), *pieces[0].shape[1:])
    for part, piece in zip(whole.split([len(piece) for piece in pieces]), pieces, strict=True):
        part.copy_(piece)
    return whole


def _refuse_others(results: list[Tensor], known: list[Tensor | None]) -> None:
    """Stop if a tile was made from other tensors that want a gradient: they would silently get none."""
    ours = {id(tensor) for tensor in known}
    seen: set[Any] = set()
    nodes: list[Any] = [result.grad_fn for result in results]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in ours:
            raise RuntimeError(
                f"torchcaps: a tile uses a tensor {tuple(leaf.shape)} that requires a gradient and is neither a weight "
                "of the votes nor a parameter of the routing, so that it would get none. Return it from ready(), make "
                "it a parameter, or make the layer with tile_bytes=0."
            )
        nodes += [following for following, _ in node.next_functions]
