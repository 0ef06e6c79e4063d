"""Random calls of the native softmaxes, over the parents of a window or of all windows that see the same child."""

from __future__ import annotations

import ctypes

import numpy as np

from torture.drawn import Array, Drawn


class Competing(Drawn):
    """The arguments that `torchcaps.votes.native.blocks` passes, drawn at random.

    seen [window, offset]: the place that is there; windows see places more than once, or not at all.
    """

    NAMES = ("softmax", "softmax_back", "grid_softmax", "grid_softmax_back", "weigh_back")

    def __init__(self, library: ctypes.CDLL, kind: str, seed: int) -> None:
        super().__init__(library, kind, seed)
        self.rows, self.parents, self.places = (self.whole(most) for most in (30, 7, 12))
        self.groups, self.blocks, self.offsets, self.types = (self.whole(most) for most in (3, 4, 5, 4))
        self.batch = 2 ** int(self.draw.integers(0, self.lanes.bit_length()))
        self.together = self.lanes // self.batch
        shape = (self.blocks * self.together, self.offsets)
        self.seen = np.empty(shape, np.int64)
        self.seen[...] = self.draw.integers(0, self.places, shape)
        self.leaky = self.chance(0.5)

    def told(self) -> str:
        grid = f"{self.groups} groups of {self.blocks} blocks of {self.together} windows, {self.offsets} offsets"
        sizes = f"{self.types} types, {self.parents} parents, {self.places} places, batch {self.batch}"
        return f"{self.rows} rows or {grid}, {sizes}, leaky {self.leaky}, {self.threads} threads"

    @property
    def flat(self) -> tuple[int, ...]:
        return (self.rows, self.parents, self.lanes)

    @property
    def whole_grid(self) -> tuple[int, ...]:
        return (self.groups, self.blocks, self.offsets, self.types, self.parents, self.lanes)

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.groups, self.blocks, self.offsets, self.types, self.parents, self.places, self.batch)

    def scores(self, shape: tuple[int, ...]) -> Array:
        """Large and small ones; some parents may not take a child, and some children nobody; some are no numbers."""
        found = self.some(*shape)
        found *= self.draw.choice([0.1, 1, 30, 1000])
        found[self.draw.random(shape) < self.draw.choice([0, 0.3])] = -np.inf
        nobody = self.draw.random((*shape[:-2], 1, shape[-1])) < self.draw.choice([0, 0.2, 1], p=[0.6, 0.3, 0.1])
        found[np.broadcast_to(nobody, shape)] = -np.inf
        if self.chance(0.1):
            found.reshape(-1)[self.draw.integers(found.size)] = self.draw.choice([np.nan, np.inf])
        return found

    def rivals(self, values: Array) -> list[Array]:
        """What all parents that compete for a child have, along the last axis: one array for each place."""
        if values.ndim == 3:
            return [values.transpose(0, 2, 1).astype(np.float64)]
        apart = values.reshape(*values.shape[:-1], self.together, self.batch)  # [g b k t j w l]
        by_window = apart.transpose(1, 5, 2, 0, 3, 6, 4)  # [b w k g t l j]
        flat = by_window.reshape(-1, *by_window.shape[3:]).astype(np.float64)  # [(b w k) g t l j]
        chosen = [flat[self.seen.reshape(-1) == place] for place in range(self.places)]
        return [np.moveaxis(each, 0, -2).reshape(*each.shape[1:4], -1) for each in chosen if len(each)]

    def softmax(self) -> None:
        self._softmax("softmax", self.flat, (self.rows, self.parents))

    def grid_softmax(self) -> None:
        self._softmax("grid_softmax", self.whole_grid, (*self.sizes, self.seen))

    def _softmax(self, name: str, shape: tuple[int, ...], sizes: tuple[object, ...]) -> None:
        scores, shares = self.scores(shape), self.room(*shape)
        self.run(name, *sizes, self.leaky, scores, shares)
        for given, found in zip(self.rivals(scores), self.rivals(shares), strict=True):
            wanted, sizes_of = _shares(given, self.leaky)
            known = ~np.isnan(wanted)
            if not (np.isnan(found) == ~known).all():
                raise SystemExit(f"wrong numbers: NaN at other places, with {self.told()}")
            if known.any():
                self.same(found[known], wanted[known], sizes_of[known])

    def softmax_back(self) -> None:
        self._back("softmax_back", self.flat, (self.rows, self.parents))

    def grid_softmax_back(self) -> None:
        self._back("grid_softmax_back", self.whole_grid, (*self.sizes, self.seen))

    def _back(self, name: str, shape: tuple[int, ...], sizes: tuple[object, ...]) -> None:
        shares, gradient, result = self.some(*shape), self.some(*shape), self.room(*shape)
        self.run(name, *sizes, shares, gradient, result)
        for c, g, found in zip(*map(self.rivals, (shares, gradient, result)), strict=True):
            wanted = c * (g - (c * g).sum(-1, keepdims=True))
            self.same(found, wanted, abs(c) * (abs(g) + abs(c * g).sum(-1, keepdims=True)))

    def weigh_back(self) -> None:
        couplings, gradient, weights = self.some(*self.flat), self.some(*self.flat), self.some(self.rows, self.lanes)
        for_couplings = None if self.chance(0.3) else self.room(*self.flat)
        for_weights = None if self.chance(0.3) else self.room(self.rows, self.lanes)
        self.run("weigh_back", self.rows, self.parents, couplings, weights, gradient, for_couplings, for_weights)
        if for_couplings is not None:
            wanted = gradient.astype(np.float64) * weights[:, None]
            self.same(for_couplings, wanted, abs(wanted))
        if for_weights is not None:
            products = couplings.astype(np.float64) * gradient
            self.same(for_weights, products.sum(1), abs(products).sum(1))


def _shares(scores: Array, leaky: bool) -> tuple[Array, Array]:
    """A softmax over the last axis, and how far rounded scores may move it."""
    with np.errstate(invalid="ignore"):
        top = scores.max(-1, keepdims=True)
        top = np.maximum(top, 0) if leaky else np.where(top == -np.inf, 0, top)
        rises = np.exp(scores - top)
        total = rises.sum(-1, keepdims=True) + (np.exp(-top) if leaky else 0)
        shares = rises / np.where(total == 0, 1, total)
        far = np.where(shares > 0, scores - top, 0)
    return shares, shares * (1 + abs(far) + (shares * abs(far)).sum(-1, keepdims=True))
