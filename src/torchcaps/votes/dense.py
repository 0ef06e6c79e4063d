"""The backend `dense`: computes votes, a tile at a time, and reduces them by matrix products. Supports all jobs."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from torchcaps._core.precision import HALVES, autocasting
from torchcaps.votes.algebra import Votes
from torchcaps.votes.buffers import scratch
from torchcaps.votes.competition import silent_votes
from torchcaps.votes.engine import Plan, Refusal, plan_of_votes
from torchcaps.votes.gradients import MergedFactors
from torchcaps.votes.job import Job, Part
from torchcaps.votes.layout import inner_of, mass_of, sums_of
from torchcaps.votes.products import Products, Sums


class DenseProducts(Products):
    """Reductions of stored votes [*b i j d]; fastest if they are stored as [*b j i d]."""

    def __init__(self, votes: Tensor) -> None:
        self.shape, self.dtype, self.device = votes.shape, votes.dtype, votes.device
        self.sources = (votes,)
        self._votes = votes.detach()
        self._last = threading.local()  # squared deviations from one center, and that center

    def _squared(self, place: Tensor | None) -> Tensor:
        if place is None:
            return self._votes.square()
        if getattr(self._last, "place", None) is not place:  # computed once for repeated requests
            room = getattr(self._last, "squares", None)  # results for the previous center are no longer needed
            self._last.squares, self._last.place = _less(self._votes, place, room).square_(), place
        squares: Tensor = self._last.squares
        return squares

    def sums(
        self, pairs: Tensor, place: Tensor | None, masses: bool = False, first: bool = False, second: bool = False
    ) -> Sums:
        mass = mass_of(pairs) if masses or (first and place is not None) else None
        plain = sums_of(pairs, self._votes) if first else None
        if plain is not None and place is not None and mass is not None:
            plain = torch.addcmul(plain, place, mass.unsqueeze(-1), value=-1)
        squares = sums_of(pairs, self._squared(place)) if second else None
        return Sums(mass if masses else None, plain, squares)

    def inner(
        self, linear: Tensor | None, squared: Tensor | None, offset: Tensor | None, place: Tensor | None
    ) -> Tensor:
        result: Tensor | None = None
        if linear is not None:
            result = inner_of(self._votes, linear)
            if place is not None:
                along = (linear * place).sum(-1)
                offset = -along if offset is None else offset - along
        if squared is not None:
            squares = inner_of(self._squared(place), squared)
            result = squares if result is None else result.add_(squares)
        assert result is not None
        return result if offset is None else result.add_(offset.unsqueeze(-2))

    def gradients(self, given: MergedFactors) -> tuple[Tensor | None, ...]:
        *leading, children, parents, dim = self.shape
        left = torch.stack([each.mT.flatten(0, -2) for each in given.pairs], -2).mT  # [(b j) i n]

        def product(vectors: list[list[Tensor]]) -> Tensor:
            zero = self._votes.new_zeros(*leading, parents, dim)
            right = torch.stack([sum(several, zero) for several in vectors], -2)  # [*b j n d]
            result = scratch((len(left), children, dim), left)
            torch.bmm(left, right.flatten(0, -3), out=result)
            return result.view(*leading, parents, children, dim).transpose(-3, -2)

        result = product(given.plain)
        if any(given.scaled):
            pivot, room = given.pivot, getattr(self._last, "squares", None)
            self._last.place = None
            result.addcmul_(product(given.scaled), self._votes if pivot is None else _less(self._votes, pivot, room))
        return (result,)

    def moved(self, offset: Tensor) -> Products:
        return DenseProducts(_Move.apply(self.sources[0], offset))

    def make(self) -> Tensor:
        return self.sources[0]


class _Move(torch.autograd.Function):
    """Votes minus an offset, in a scratch buffer."""

    @staticmethod
    def forward(ctx: Any, votes: Tensor, offset: Tensor) -> Tensor:
        return _less(votes, offset)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def _less(votes: Tensor, place: Tensor, room: Tensor | None = None) -> Tensor:
    """v = u - place, [*b i j d], in the buffer `room`, or in a scratch buffer."""
    *leading, children, parents, dim = votes.shape
    result = scratch((*leading, parents, children, dim), votes) if room is None else room.transpose(-3, -2)
    return torch.sub(votes.transpose(-3, -2), place.unsqueeze(-2), out=result).transpose(-3, -2)


class Dense:
    """Computes votes with any transform, in any mode of torch."""

    name = "dense"

    def plan(self, job: Job) -> Plan | Refusal:
        if job.transform._forward_pre_hooks:
            job.vote(job.gathered.poses[:0])  # runs hooks that compute weights, such as those of pruning
        weights = job.transform.weights_once()

        def make(part: Part, given: tuple[Tensor, ...]) -> Votes | Tensor:
            votes = job.vote(part.poses, given)
            if job.plain or job.has_hooks:
                return votes
            if votes.dtype in HALVES:
                if not autocasting(votes.device.type):
                    return votes
                votes = votes.float()
            votes = silent_votes(votes, part.mask, part.pairs)
            return Votes(DenseProducts(votes), votes)

        return plan_of_votes(self.name, job, weights, job.transform.out_dim, make)
