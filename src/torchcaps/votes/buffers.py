"""Room for intermediate results that is used again from tile to tile.

A tile makes several tensors as large as its votes. To ask the operating system for their pages again and again can take
longer than to compute them, so tiles after the first take the pool of those before, also of those of the last call.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


def _bytes(count: int) -> Tensor:
    with torch.inference_mode(False):  # the next to use it may need gradients
        return torch.empty(count, dtype=torch.uint8)


class BufferPool:
    """Buffers in the order in which a tile asks for them. has_hooks: somebody looks at votes, and may keep them."""

    def __init__(self, has_hooks: bool = False) -> None:
        self.has_hooks = has_hooks
        self._buffers: list[Tensor] = []
        self._taken = 0

    def take(self, shape: Sequence[int], like: Tensor) -> Tensor:
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
        """Whatever is taken inside is free for the next tile."""
        before = current_pool()
        _current.pool, self._taken = self, 0
        try:
            yield
        finally:
            _current.pool = before

    def kept(self, result: Tensor) -> Tensor:
        """A result that the next tile will not overwrite: a copy, if it lies in this pool."""
        place = result.untyped_storage().data_ptr()
        return result.clone() if any(place == buffer.data_ptr() for buffer in self._buffers) else result

    @property
    def bytes(self) -> int:
        return sum(buffer.numel() for buffer in self._buffers)


KEPT_BYTES = 128 * 2**20  # of a thread, between calls

_current = threading.local()


@contextmanager
def reused_pool(has_hooks: bool = False) -> Iterator[BufferPool]:
    """Room for the tiles of one call: that of the thread's last call, if it is free and nobody looks at votes."""
    last: BufferPool | None = getattr(_current, "kept", None)
    pool = BufferPool(has_hooks) if has_hooks or last is None else last
    _current.kept = None  # a call within this one gets pool of its own
    yield pool
    if not has_hooks and pool.bytes <= KEPT_BYTES:
        _current.kept = pool


def current_pool() -> BufferPool | None:
    """The pool of the tile that is being worked on, if any."""
    pool: BufferPool | None = getattr(_current, "pool", None)
    return pool


def scratch(shape: Sequence[int], like: Tensor, *, shown: bool = False) -> Tensor:
    """An uninitialized tensor of this shape that nobody needs after the tile; dtype and device are those of `like`.

    shown: hooks can see it, so that it is no scratch where there are any.
    """
    pool = current_pool()
    if pool is None or like.device.type != "cpu" or (shown and pool.has_hooks):
        return torch.empty(*shape, dtype=like.dtype, device=like.device)
    return pool.take(shape, like)


@contextmanager
def borrowed(shape: Sequence[int], like: Tensor) -> Iterator[Tensor]:
    """The same, for the time of a `with` block only: the next to ask gets the same pool, still in the cache."""
    pool = current_pool()
    before = pool._taken if pool is not None else 0
    yield scratch(shape, like)
    if pool is not None:
        pool._taken = before
