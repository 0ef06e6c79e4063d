"""The interface of backends: reductions of votes, which they may compute without storing votes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.votes.gradients import Entry, MergedFactors, merged
from torchcaps.votes.layout import weigh


class Sums(NamedTuple):
    """Sums over children, with v = vote - place; those that were not requested are None."""

    masses: Tensor | None = None  # Sum_i x, [*b j]
    first: Tensor | None = None  # Sum_i x v, [*b j d]
    second: Tensor | None = None  # Sum_i x v^2, [*b j d]


class Products(ABC):
    """Base class of backends' reductions: without gradients, and gradients of votes from factors.

    place [*b j d] is subtracted from votes first: v = vote - place. `squares` is False if squares are not supported.
    """

    shape: torch.Size  # [*b i j d]
    dtype: torch.dtype
    device: torch.device
    sources: tuple[Tensor, ...]  # the inputs of votes: they get gradients, and must not change before
    squares = True
    kernels = False  # True: computed by kernels on a GPU, as formulas on parents can be (`routing/fused.py`)

    @abstractmethod
    def sums(
        self, pairs: Tensor, place: Tensor | None, masses: bool = False, first: bool = False, second: bool = False
    ) -> Sums:
        """The requested sums, for a number x of each pair [*b i j]."""

    @abstractmethod
    def inner(
        self, linear: Tensor | None, squared: Tensor | None, offset: Tensor | None, place: Tensor | None
    ) -> Tensor:
        """Sum_d (y v + z v^2) + offset, [*b i j], for y and z [*b j d] and an offset [*b j]."""

    @abstractmethod
    def gradients(self, given: MergedFactors) -> tuple[Tensor | None, ...]:
        """The gradients of the sources; the gradient of votes is the sum of x (plain + scaled v) over all of them."""

    def collected(self, entries: list[Entry]) -> tuple[Tensor | None, ...]:
        """The gradients of the sources, from all that a backward pass has put into `GradientFactors`."""
        return self.gradients(merged(entries))

    def moments(self, pairs: Tensor, place: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Masses, sums and means of v, and the squared deviations from these means."""
        masses, first, _ = self.sums(pairs, place, masses=True, first=True)
        assert masses is not None
        assert first is not None
        means = first / masses.masked_fill(masses < torch.finfo(masses.dtype).tiny, 1).unsqueeze(-1)
        scatter = self.sums(pairs, means if place is None else place + means, second=True).second
        assert scatter is not None
        return masses, first, means, scatter

    def zeros(self) -> Tensor:
        """Zeros [*b i j] in the memory order of the products."""
        *leading, children, parents, _ = self.shape
        return self.sources[0].new_zeros(*leading, parents, children).mT

    def weigh(self, couplings: Tensor, weights: Tensor) -> Tensor:
        """Couplings [*b i j] times the weights of children [*b i]."""
        return weigh(couplings, weights)

    def factors(self, pairs: Tensor) -> tuple[Tensor, Tensor] | None:
        """The couplings and weights whose product `weigh` returned as these pairs, to save instead; None: unknown."""
        return None

    def moved(self, offset: Tensor) -> Products | None:
        """The products of votes minus an offset [*b j d]; None if callers should use `place` instead."""
        return None

    def make(self) -> Tensor | None:
        """All votes as a tensor, with gradients; None if this backend cannot compute them."""
        return None
