"""Random calls of native functions, compared with numpy.

python -m torture.sanitized LIBRARY CALLS SEED KIND ROWS INNER COLUMNS

It runs in a process in which AddressSanitizer watches memory, and so knows no torch. Every array ends where its memory
ends: whoever reads or writes a number beyond it is seen. For each call that went well, a line says its name.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
ALLOWED = {"float32": 1e-5, "float64": 1e-13}  # of the sum of the sizes of what is added


class Caller:
    """The arguments that `torchcaps.votes.native.products` passes, drawn at random: sizes, strides, what may be missing."""

    def __init__(self, library: ctypes.CDLL, kind: str, geometry: tuple[int, int, int], seed: int) -> None:
        self.library, self.kind, self.draw = library, kind, np.random.default_rng(seed)
        rows, inner, columns = self.geometry = geometry
        self.out_dim = rows * columns
        lanes = library.lanes()
        self.n = int(lanes if self.draw.random() < 0.2 else self.draw.integers(lanes, 6 * lanes))
        self.children, self.parents = (int(self.draw.integers(1, most)) for most in (20, 7))
        self.threads = int(self.draw.integers(1, 4))
        self.poses = self.some(self.children, rows * inner, self.n)
        self.weight = self.some(self.children, self.parents, inner, columns)
        self.origin = self.vectors() if self.draw.random() < 0.5 else None

    def some(self, *shape: int) -> Array:
        """Numbers up to the very end of their memory; tensors begin at any number of their storage."""
        before = int(self.draw.integers(0, 3))
        found = np.empty(before + int(np.prod(shape)), self.kind)[before:].reshape(shape)
        found[...] = self.draw.standard_normal(shape)
        return found

    def vectors(self) -> Array:
        return self.some(self.parents, self.out_dim, self.n)

    def pairs(self) -> tuple[Array, int, int]:
        """A number for each pair with its strides, or the same for all children, all parents or both."""
        sizes = [size if self.draw.random() < 0.6 else 1 for size in (self.children, self.parents)]
        found = self.some(*sizes, self.n)
        across, along = (
            0 if size == 1 else stride // found.itemsize for size, stride in zip(sizes, found.strides[:2], strict=True)
        )
        return found, across, along

    def votes(self, square: bool = False) -> tuple[Array, Array]:
        """Votes less their origin [i j d n] in double precision, and the sizes of what was added for them."""
        rows, inner, _ = self.geometry
        found = []
        for poses, weight, sign in ((self.poses, self.weight, -1.0), (abs(self.poses), abs(self.weight), 1.0)):
            matrices = poses.astype(np.float64).reshape(self.children, rows, inner, self.n)
            votes = np.einsum("irkn,ijkc->ijrcn", matrices, weight.astype(np.float64))
            votes = votes.reshape(self.children, self.parents, self.out_dim, self.n)
            if self.origin is not None:
                votes = votes + (self.origin if sign < 0 else abs(self.origin)) * sign
            found.append(votes**2 if square else votes)
        return found[0], found[1]

    def call(self, name: str, *arguments: object) -> None:
        sizes = (self.n, self.children, self.parents)
        getattr(self.library, name)(
            ctypes.c_int(self.threads),
            *(ctypes.c_ssize_t(size) for size in sizes),
            *(_argument(each) for each in (self.poses, self.weight, *arguments)),
        )

    def same(self, found: Array, wanted: Array, sizes: Array) -> None:
        worst = (abs(found - wanted) / (sizes + 1e-30)).max()
        if not worst <= ALLOWED[self.kind]:
            raise SystemExit(f"wrong numbers: {worst:.1e} of what was added, with {self.told()}")

    def told(self) -> str:
        return f"{self.n} examples, {self.children} children, {self.parents} parents, {self.threads} threads"

    def sums(self) -> None:
        square = self.origin is not None and self.draw.random() < 0.5
        pairs, across, along = self.pairs()
        result = np.full_like(self.vectors(), np.nan)
        self.call("sums", pairs, across, along, self.origin, square, result)
        votes, sizes = self.votes(square)
        self.same(result, (pairs[:, :, None] * votes).sum(0), (abs(pairs)[:, :, None] * sizes).sum(0))

    def inner(self) -> None:
        square = self.origin is not None and self.draw.random() < 0.5
        centres, result = self.vectors(), np.full_like(self.some(self.children, self.parents, self.n), np.nan)
        self.call("inner", self.origin, square, centres, result)
        votes, sizes = self.votes(square)
        self.same(result, (centres * votes).sum(2), (abs(centres) * sizes).sum(2))

    def gradients(self) -> None:
        terms = int(self.draw.integers(1, 9))
        pairs, across, along = zip(*(self.pairs() for _ in range(terms)), strict=True)
        plain = self.some(terms, self.parents, self.out_dim, self.n)
        scaled = None if self.origin is None else self.some(terms, self.parents, self.out_dim, self.n)
        for_poses, for_weight = self.some(*self.poses.shape), self.some(*self.weight.shape)
        for_poses[...] = for_weight[...] = 0
        sizes = ctypes.c_ssize_t * terms
        addresses = (ctypes.c_void_p * terms)(*(each.ctypes.data for each in pairs))
        given = (self.origin, terms, addresses, sizes(*across), sizes(*along), plain, scaled)
        self.call("gradients", *given, for_poses, for_weight)
        votes, sizes_of_votes = self.votes()
        wanted = self._gradients(np.array, votes, pairs, plain, scaled)
        added = self._gradients(np.abs, sizes_of_votes, pairs, plain, scaled)
        self.same(for_poses, wanted[0], added[0])
        self.same(for_weight, wanted[1], added[1])

    def _gradients(
        self, taken: Callable[[Array], Array], votes: Array, pairs: Sequence[Array], plain: Array, scaled: Array | None
    ) -> tuple[Array, Array]:
        """Those of poses and weights, with each number taken as it is or by its size."""
        given = [taken(each).astype(np.float64)[:, :, None] for each in pairs]
        total = sum(x * taken(y) for x, y in zip(given, plain, strict=True))
        if scaled is not None:
            total = total + votes * sum(x * taken(z) for x, z in zip(given, scaled, strict=True))
        rows, inner, columns = self.geometry
        total = np.broadcast_to(total, votes.shape).reshape(self.children, self.parents, rows, columns, self.n)
        poses = taken(self.poses).astype(np.float64).reshape(self.children, rows, inner, self.n)
        for_poses = np.einsum("ijkc,ijrcn->irkn", taken(self.weight).astype(np.float64), total)
        return for_poses.reshape(self.poses.shape), np.einsum("irkn,ijrcn->ijkc", poses, total)


def _argument(value: object) -> Any:
    if value is None or isinstance(value, np.ndarray):
        return ctypes.c_void_p(None if value is None else value.ctypes.data)
    if isinstance(value, bool):
        return ctypes.c_int(value)
    return ctypes.c_ssize_t(value) if isinstance(value, int) else value


def main(words: list[str]) -> None:
    path, kind = words[0], words[3]
    calls, seed, rows, inner, columns = (int(word) for word in (*words[1:3], *words[4:]))
    library = ctypes.CDLL(path)
    for number in range(calls):
        caller = Caller(library, kind, (rows, inner, columns), 1_000_003 * seed + number)
        name = ("sums", "inner", "gradients")[number % 3]
        getattr(caller, name)()
        print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
