"""Random calls of the native products of small matrices, one for each example."""

from __future__ import annotations

import ctypes

import numpy as np

from torture.drawn import Array, Drawn


class Sharing(Drawn):
    """The arguments that `torchcaps.votes.native.shared` passes, drawn at random: sizes, strides, the same for all."""

    NAMES = ("product",)

    def __init__(self, library: ctypes.CDLL, kind: str, seed: int) -> None:
        super().__init__(library, kind, seed)
        self.blocks, self.rows, self.columns, self.length = (self.whole(most) for most in (5, 11, 15, 9))

    def told(self) -> str:
        return f"{self.blocks} blocks of {self.rows} x {self.length} x {self.columns}, {self.threads} threads"

    def matrices(self, rows: int, columns: int) -> tuple[Array, Array, tuple[int, ...]]:
        """Numbers in memory, the same as [block row column lane], and how far blocks, rows and columns are apart."""
        sizes = [size if self.chance(0.8) else 1 for size in (self.blocks, rows, columns)]
        turned = self.chance(0.5)
        found = self.some(sizes[0], *(sizes[:0:-1] if turned else sizes[1:]), self.lanes)
        seen = found.swapaxes(1, 2) if turned else found
        steps = [0 if size == 1 else step // found.itemsize for size, step in zip(sizes, seen.strides[:3], strict=True)]
        return found, np.broadcast_to(seen, (self.blocks, rows, columns, self.lanes)), tuple(steps)

    def product(self) -> None:
        left, left_seen, left_steps = self.matrices(self.rows, self.length)
        right, right_seen, right_steps = self.matrices(self.length, self.columns)
        add = self.chance(0.5)
        shape = (self.blocks, self.rows, self.columns, self.lanes)
        result = self.some(*shape) if add else self.room(*shape)
        before = result.astype(np.float64) if add else np.zeros(shape)
        sizes = (self.blocks, self.rows, self.columns, self.length)
        self.run("product", *sizes, left, *left_steps, right, *right_steps, add, result)

        def total(left: Array, right: Array) -> Array:
            return np.einsum("bmkl,bknl->bmnl", left.astype(np.float64), right.astype(np.float64))

        self.same(result, before + total(left_seen, right_seen), abs(before) + total(abs(left_seen), abs(right_seen)))
