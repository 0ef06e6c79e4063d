"""Room for intermediate results that is used again from tile to tile.

A tile makes several tensors as large as its votes. To ask the operating system for their pages again and again can take
longer than to compute them, so tiles after the first take the room of those before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


class Room:
    """Buffers in the order in which a tile asks for them."""

    def __init__(self) -> None:
        self._buffers: list[Tensor] = []
        self._taken = 0

    def take(self, shape: Sequence[int], like: Tensor) -> Tensor:
        count = like.element_size()
        for size in shape:
            count *= size
        if self._taken == len(self._buffers):
            self._buffers.append(torch.empty(0, dtype=torch.uint8))
        if self._buffers[self._taken].numel() < count:
            with torch.inference_mode(False):  # else it could not be written to in training
                self._buffers[self._taken] = torch.empty(count, dtype=torch.uint8)
        buffer = self._buffers[self._taken]
        self._taken += 1
        return buffer[:count].view(like.dtype).view(*shape)

    @contextmanager
    def tile(self) -> Iterator[None]:
        """Whatever is taken inside is free for the next tile."""
        before = getattr(_current, "room", None)
        _current.room, self._taken = self, 0
        try:
            yield
        finally:
            _current.room = before


_current = threading.local()


def scratch(shape: Sequence[int], like: Tensor) -> Tensor:
    """An uninitialised tensor of this shape that nobody needs after the tile; dtype and device are those of `like`."""
    room: Room | None = getattr(_current, "room", None)
    if room is None or like.device.type != "cpu":
        return torch.empty(*shape, dtype=like.dtype, device=like.device)
    return room.take(shape, like)
