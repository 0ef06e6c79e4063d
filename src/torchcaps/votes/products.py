"""What a backend gives: readings of votes that it makes in its own way, or never makes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.votes.gradients import Columns
from torchcaps.votes.layout import weigh


class Sums(NamedTuple):
    """Sums over children, with v = vote - place; what was not asked for is None."""

    masses: Tensor | None = None  # Sum_i x, [*b j]
    first: Tensor | None = None  # Sum_i x v, [*b j d]
    second: Tensor | None = None  # Sum_i x v^2, [*b j d]


class Products(ABC):
    """What a backend gives: readings of votes without gradients, and their gradients from factors.

    place [*b j d] is subtracted from votes first: v = vote - place. Where they read squares is said by `squares`.
    """

    shape: torch.Size  # [*b i j d]
    dtype: torch.dtype
    device: torch.device
    sources: tuple[Tensor, ...]  # what votes are made from: it gets gradients, and must not change before
    squares = True

    @abstractmethod
    def sums(
        self, pairs: Tensor, place: Tensor | None, masses: bool = False, first: bool = False, second: bool = False
    ) -> Sums:
        """The sums that are asked for, for a number x of each pair [*b i j]."""

    @abstractmethod
    def inner(
        self, linear: Tensor | None, squared: Tensor | None, offset: Tensor | None, place: Tensor | None
    ) -> Tensor:
        """Sum_d (y v + z v^2) + offset, [*b i j], for y and z [*b j d] and an offset [*b j]."""

    @abstractmethod
    def gradients(self, given: Columns) -> tuple[Tensor | None, ...]:
        """Those of the sources, where the gradient of votes is the sum of x (plain + scaled v) over all columns."""

    def moments(self, pairs: Tensor, place: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Masses, sums and means of v, and the squares about these means."""
        masses, first, _ = self.sums(pairs, place, masses=True, first=True)
        assert masses is not None
        assert first is not None
        means = first / masses.masked_fill(masses < torch.finfo(masses.dtype).tiny, 1).unsqueeze(-1)
        scatter = self.sums(pairs, means if place is None else place + means, second=True).second
        assert scatter is not None
        return masses, first, means, scatter

    def zeros(self) -> Tensor:
        """A zero for each pair, [*b i j], as it suits the products."""
        *leading, children, parents, _ = self.shape
        return self.sources[0].new_zeros(*leading, parents, children).mT

    def weigh(self, couplings: Tensor, weights: Tensor) -> Tensor:
        """Couplings [*b i j] times the weights of children [*b i]."""
        return weigh(couplings, weights)

    def moved(self, offset: Tensor) -> Products | None:
        """The products of votes less an offset [*b j d]; None: their place is the way to say so."""
        return None

    def make(self) -> Tensor | None:
        """All votes as a tensor, with gradients; None: this backend must not, and another one is asked."""
        return None
