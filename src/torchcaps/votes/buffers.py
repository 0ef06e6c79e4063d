"""Buffers for intermediate results, reused between tiles.

A tile needs several tensors as large as its votes. Allocating their pages for every tile can take longer than computing
them, so tiles reuse the buffers of the previous tile, also of the previous call.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


def _bytes(count: int) -> Tensor:
    with torch.inference_mode(False):  # a later use may need gradients
        return torch.empty(count, dtype=torch.uint8)


class BufferPool:
    """Buffers in the order in which a tile requests them. has_hooks: hooks may see votes and keep them."""

    def __init__(self, has_hooks: bool = False) -> None:
        self.has_hooks = has_hooks
        self._buffers: list[Tensor] = []
        self._taken = 0

    def take(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """The next buffer as a tensor of this shape, with the dtype of `like`."""
        count = math.prod(shape) * like.element_size()
        if self._taken == len(self._buffers):
            self._buffers.append(_bytes(0))
        if self._buffers[self._taken].numel() < count:
            self._buffers[self._taken] = _bytes(count)
        buffer = self._buffers[self._taken]
        self._taken += 1
        return buffer[:count].view(like.dtype).view(*shape)

    @contextmanager
    def tile(self) -> Iterator[None]:
        """A context whose buffers are free again for the next tile."""
        before = current_pool()
        _current.pool, self._taken = self, 0
        try:
            yield
        finally:
            _current.pool = before

    def kept(self, result: Tensor) -> Tensor:
        """The result, or a copy if it is in this pool and the next tile would overwrite it."""
        place = result.untyped_storage().data_ptr()
        return result.clone() if any(place == buffer.data_ptr() for buffer in self._buffers) else result

    @property
    def bytes(self) -> int:
        """The size of all buffers."""
        return sum(buffer.numel() for buffer in self._buffers)


KEPT_BYTES = 128 * 2**20  # the most that a thread keeps between calls

_current = threading.local()


@contextmanager
def reused_pool(has_hooks: bool = False) -> Iterator[BufferPool]:
    """The buffers for the tiles of one call: those of the thread's last call if they are free and without hooks."""
    last: BufferPool | None = getattr(_current, "kept", None)
    pool = BufferPool(has_hooks) if has_hooks or last is None else last
    _current.kept = None  # a nested call gets its own pool
    yield pool
    if not has_hooks and pool.bytes <= KEPT_BYTES:
        _current.kept = pool


def current_pool() -> BufferPool | None:
    """The pool of the current tile, if any."""
    pool: BufferPool | None = getattr(_current, "pool", None)
    return pool


def scratch(shape: Sequence[int], like: Tensor, *, shown: bool = False) -> Tensor:
    """An uninitialized tensor of this shape that is free again after the tile, with dtype and device of `like`.

    shown: hooks can see it; if there are any, it is newly allocated.
    """
    pool = current_pool()
    if pool is None or like.device.type != "cpu" or (shown and pool.has_hooks):
        return torch.empty(*shape, dtype=like.dtype, device=like.device)
    return pool.take(shape, like)


@contextmanager
def borrowed(shape: Sequence[int], like: Tensor) -> Iterator[Tensor]:
    """The same as a context, after which the next request gets the same buffer, which is still in the cache."""
    pool = current_pool()
    before = pool._taken if pool is not None else 0
    yield scratch(shape, like)
    if pool is not None:
        pool._taken = before
