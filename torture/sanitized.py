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

from torture.competing import Competing
from torture.drawn import Array, Drawn
from torture.sharing import Sharing

NEAR = 16  # as in votes.c: how much of a square may be lost to a place that is not the mean


class Voting(Drawn):
    """The arguments of `torchcaps.votes.native.products`, drawn at random: sizes, strides, what may be missing.

    u [b i e l] poses, w [t j k c] weights of child i % t.
    """

    NAMES = ("sums", "moments", "inner", "gradients")

    def __init__(self, library: ctypes.CDLL, kind: str, geometry: tuple[int, int, int], seed: int) -> None:
        super().__init__(library, kind, seed)
        rows, inner, columns = self.geometry = geometry
        self.out_dim = rows * columns
        self.types, self.parents, self.blocks = (self.whole(most) for most in (20, 7, 6))
        self.groups = self.whole(4) if self.chance(0.4) else 1
        self.children = self.types * self.groups
        self.poses = self.some(self.blocks, self.children, rows * inner, self.lanes)
        self.weight = self.some(self.types, self.parents, inner, columns)
        if self.chance(0.3):  # children that nearly agree: squares about their mean are small
            little = 1e-3 if kind == "float32" else 1e-6
            self.poses[...] = self.poses[:, :1] + little * self.poses
            self.weight[...] = self.weight[:1] + little * self.weight
        self.place = self.vectors() if self.chance(0.5) else None

    def told(self) -> str:
        sizes = f"{self.blocks} blocks of {self.lanes}, {self.types} x {self.groups} children, {self.parents} parents"
        return f"{sizes}, {self.threads} threads"

    def vectors(self, *more: int) -> Array:
        return self.some(*more, self.blocks, self.parents, self.out_dim, self.lanes)

    def pairs(self) -> tuple[Array, int, int, int]:
        """A number for each pair with its strides, or the same for all blocks, children or parents."""
        full = (self.blocks, self.children, self.parents)
        sizes = [size if self.chance(0.7) else 1 for size in full]
        found = self.some(*sizes, self.lanes)
        steps = [
            0 if size == 1 else stride // found.itemsize for size, stride in zip(sizes, found.strides[:3], strict=True)
        ]
        return found, steps[0], steps[1], steps[2]

    def votes(self, taken: Callable[[Array], Array] = np.array) -> Array:
        """Votes less their place [b i j d l] in double precision, or by np.abs the sizes of what was added for them."""
        rows, inner, _ = self.geometry
        poses = taken(self.poses).astype(np.float64).reshape(self.blocks, self.children, rows, inner, self.lanes)
        weight = np.tile(taken(self.weight).astype(np.float64), (self.groups, 1, 1, 1))
        votes = np.einsum("birkl,ijkc->bijrcl", poses, weight)
        votes = votes.reshape(self.blocks, self.children, self.parents, self.out_dim, self.lanes)
        if self.place is None:
            return votes
        return votes + taken(self.place)[:, None] * (1 if taken is np.abs else -1)

    def call(self, name: str, *arguments: object) -> None:
        sizes = (self.blocks, self.children, self.types, self.parents)
        self.run(name, *sizes, self.poses, self.weight, *arguments)

    def sums(self) -> None:
        given = self.pairs()
        made = [
            None if self.chance(0.3) else self.room(self.blocks, self.parents, *more, self.lanes)
            for more in ((), (self.out_dim,), (self.out_dim,))
        ]
        self.call("sums", *given, self.place, *made)
        pairs = np.broadcast_to(given[0], (self.blocks, self.children, self.parents, self.lanes)).astype(np.float64)
        if made[0] is not None:
            self.same(made[0], pairs.sum(1), abs(pairs).sum(1))
        for power, found in enumerate(made[1:], 1):
            if found is not None:
                wanted, added = self.votes() ** power, self.votes(np.abs) ** power
                self.same(found, (pairs[:, :, :, None] * wanted).sum(1), (abs(pairs)[:, :, :, None] * added).sum(1))

    def moments(self) -> None:
        given = self.pairs()
        given[0][...] = abs(given[0])
        if self.chance(0.2):
            given[0][..., 0] = 0  # an example without weight has its mean at the place
        dim = self.out_dim
        made = [self.room(self.blocks, self.parents, *more, self.lanes) for more in ((), (dim,), (dim,), (dim,))]
        self.call("moments", *given, self.place, *made)
        pairs = np.broadcast_to(given[0], (self.blocks, self.children, self.parents, self.lanes)).astype(np.float64)
        weights, votes, sizes = pairs[:, :, :, None], self.votes(), self.votes(np.abs)
        mass, first, added = weights.sum(1), (weights * votes).sum(1), (weights * sizes).sum(1)
        self.same(made[0], pairs.sum(1), pairs.sum(1))
        self.same(made[1], first, added)
        some = np.where(mass == 0, 1, mass)
        self.same(made[2], first / some, added / some)
        # Each vote is as exact as what it is made of; squares about the mean are not to lose more than that.
        scatter, squares = (weights * (votes - (first / some)[:, None]) ** 2).sum(1), (weights * sizes**2).sum(1)
        lost = 2 * np.sqrt(scatter * squares) + self.allowed * squares
        self.same(made[3], scatter, NEAR * scatter + lost)

    def inner(self) -> None:
        linear, squared = (self.vectors() if self.chance(0.6) else None for _ in range(2))
        if linear is None and squared is None:
            linear = self.vectors()
        offset = self.some(self.blocks, self.parents, self.lanes) if self.chance(0.5) else None
        result = self.room(self.blocks, self.children, self.parents, self.lanes)
        self.call("inner", self.place, linear, squared, offset, result)

        def total(taken: Callable[[Array], Array]) -> Array:
            votes = self.votes(taken)
            found = np.zeros(result.shape) if offset is None else taken(offset)[:, None].astype(np.float64)
            for factor, power in ((linear, 1), (squared, 2)):
                if factor is not None:
                    found = found + (taken(factor)[:, None] * votes**power).sum(3)
            return found

        self.same(result, total(np.array), total(np.abs))

    def gradients(self) -> None:
        terms = self.whole(8)
        pairs, *steps = zip(*(self.pairs() for _ in range(terms)), strict=True)
        plain = self.vectors(terms)
        scaled = self.vectors(terms) if self.chance(0.5) else None
        for_poses, for_weight = self.some(*self.poses.shape), self.some(*self.weight.shape)
        for_poses[...] = for_weight[...] = 0
        sizes = ctypes.c_ssize_t * terms
        addresses = (ctypes.c_void_p * terms)(*(each.ctypes.data for each in pairs))
        given = (self.place, terms, addresses, *(sizes(*each) for each in steps), plain, scaled)
        self.call("gradients", *given, for_poses, for_weight)
        wanted, added = (self._gradients(taken, pairs, plain, scaled) for taken in (np.array, np.abs))
        self.same(for_poses, wanted[0], added[0])
        self.same(for_weight, wanted[1], added[1])

    def _gradients(
        self, taken: Callable[[Array], Array], pairs: Sequence[Array], plain: Array, scaled: Array | None
    ) -> tuple[Array, Array]:
        """Those of poses and weights, with each number taken as it is or by its size."""
        votes = self.votes(taken)
        given = [taken(each).astype(np.float64)[:, :, :, None] for each in pairs]
        total = sum(x * taken(y)[:, None] for x, y in zip(given, plain, strict=True))
        if scaled is not None:
            total = total + votes * sum(x * taken(z)[:, None] for x, z in zip(given, scaled, strict=True))
        rows, inner, columns = self.geometry
        shape = (self.blocks, self.groups, self.types)
        total = np.broadcast_to(total, votes.shape).reshape(*shape, self.parents, rows, columns, self.lanes)
        poses = taken(self.poses).astype(np.float64).reshape(*shape, rows, inner, self.lanes)
        for_poses = np.einsum("ijkc,bgijrcl->bgirkl", taken(self.weight).astype(np.float64), total)
        return for_poses.reshape(self.poses.shape), np.einsum("bgirkl,bgijrcl->ijkc", poses, total)


def main(words: list[str]) -> None:
    path, kind = words[0], words[3]
    calls, seed, rows, inner, columns = (int(word) for word in (*words[1:3], *words[4:]))
    library = ctypes.CDLL(path)
    names = (*Voting.NAMES, *Competing.NAMES, *Sharing.NAMES)
    for number in range(calls):
        name, own = names[number % len(names)], 1_000_003 * seed + number
        caller: Any
        if name in Voting.NAMES:
            caller = Voting(library, kind, (rows, inner, columns), own)
        else:
            caller = (Competing if name in Competing.NAMES else Sharing)(library, kind, own)
        getattr(caller, name)()
        print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
