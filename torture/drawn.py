"""What random calls of native functions share: memory that ends where its numbers end, and what counts as the same."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
ALLOWED = {"float32": 1e-5, "float64": 1e-13}  # of the sum of the sizes of what is added


class Drawn:
    """Arguments drawn at random, for a library of so many lanes."""

    def __init__(self, library: ctypes.CDLL, kind: str, seed: int) -> None:
        self.library, self.kind, self.draw = library, kind, np.random.default_rng(seed)
        self.lanes = library.lanes()
        self.threads = self.whole(4)
        self.allowed = ALLOWED[kind]

    def chance(self, share: float) -> bool:
        return bool(self.draw.random() < share)

    def whole(self, most: int) -> int:
        return int(self.draw.integers(1, most + 1))

    def some(self, *shape: int) -> Array:
        """Numbers up to the very end of their memory; tensors begin at any number of their storage."""
        before = int(self.draw.integers(0, 3))
        found = np.empty(before + int(np.prod(shape)), self.kind)[before:].reshape(shape)
        found[...] = self.draw.standard_normal(shape)
        return found

    def room(self, *shape: int) -> Array:
        """Where results go; none of them may be left out."""
        found = self.some(*shape)
        found[...] = np.nan
        return found

    def run(self, name: str, *arguments: object) -> None:
        getattr(self.library, name)(ctypes.c_int(self.threads), *map(_argument, arguments))

    def same(self, found: Array, wanted: Array, sizes: Array) -> None:
        worst = (abs(found - wanted) / (sizes + 1e-30)).max()
        if not worst <= self.allowed:
            raise SystemExit(f"wrong numbers: {worst:.1e} of what was added, with {self.told()}")

    def told(self) -> str:
        raise NotImplementedError


def _argument(value: object) -> Any:
    if value is None or isinstance(value, np.ndarray):
        return ctypes.c_void_p(None if value is None else value.ctypes.data)
    if isinstance(value, bool):
        return ctypes.c_int(value)
    return ctypes.c_ssize_t(value) if isinstance(value, int) else value
