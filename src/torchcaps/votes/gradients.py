"""The gradient of votes as a sum of few products, written down while it comes and multiplied out once.

Every iteration of a routing reads all votes, so autograd would make a gradient as large as the votes for each reading
and add them up. But each is a product: of a number for every pair, x_ij, and a vector for every parent, y_j. A ledger
collects the factors, and the sum over iterations is one matrix product for each parent. Where squared distances to a
mean m_j were read, the votes' own distances from it come in: (u_j|i - m_j) * x_ij y_j.

A tensor of votes that has a ledger carries it along as an attribute; `functional` asks for it. Everything else sees a
plain tensor, whose other uses add their gradients in the usual way.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.precision import without_autocast
from torchcaps.votes.buffers import scratch


def matrices(votes: Tensor) -> Tensor:
    """Votes [*b i j d] as one matrix for each parent, [(b j) i d]; no copy if that is how they lie in memory."""
    return votes.transpose(-3, -2).flatten(0, -3)


def sums(weights: Tensor, votes: Tensor) -> Tensor:
    """Sum_i x_ij u_j|i, [*b j d]."""
    rows = weights.mT.flatten(0, -2).unsqueeze(-2)
    return torch.bmm(rows, matrices(votes)).view(*weights.shape[:-2], weights.shape[-1], votes.shape[-1])


def inner(votes: Tensor, centres: Tensor) -> Tensor:
    """<u_j|i, y_j>, [*b i j]; parents lie outside of children in memory, as `sums` wants them."""
    rows = centres.flatten(0, -2).unsqueeze(-2)
    # A row times a matrix: several times faster than the matrix times a column.
    return torch.bmm(rows, matrices(votes).mT).view(*centres.shape[:-1], votes.shape[-3]).mT


class _Entry(NamedTuple):
    pairs: Tensor  # x, [*b i j]
    plain: Tensor | None  # y of x y, [*b j d]
    scaled: Tensor | None  # y of (u - m) x y, [*b j d]
    means: Tensor | None  # m, [*b j d]


PASSES = 8  # backward passes that may be under way at the same time


class Ledger:
    """What the gradient of votes is made of. It holds no votes itself: autograd keeps and frees them."""

    def __init__(self) -> None:
        self._entries: dict[int, list[_Entry]] = {}  # of each backward pass; several threads may be at it
        self._squares: tuple[weakref.ref[Tensor], int, Tensor] | None = None

    def squares(self, votes: Tensor, means: Tensor) -> Tensor:
        """(u_j|i - m_j)^2, [*b i j d]; asked for twice with the same means, made once."""
        version = 0 if means.is_inference() else means._version
        if self._squares is not None and self._squares[0]() is means and self._squares[1] == version:
            return self._squares[2]
        result = less(votes.detach(), means.detach()).square_()
        self._squares = weakref.ref(means), version, result  # to hold the means would be a cycle through their graph
        return result

    def add(
        self, pairs: Tensor, *, plain: Tensor | None = None, scaled: Tensor | None = None, means: Tensor | None = None
    ) -> None:
        task = torch._C._current_graph_task_id()
        self._entries.setdefault(task, []).append(_Entry(pairs, plain, scaled, means))
        while len(self._entries) > PASSES:  # what passes that wanted no gradient of votes have left behind
            self._entries.pop(next(iter(self._entries)))

    def take(self) -> list[_Entry]:
        """All entries of this backward pass; the ledger forgets them."""
        self._squares = None
        return self._entries.pop(torch._C._current_graph_task_id(), [])

    def total(self, votes: Tensor, gradient: Tensor | None) -> Tensor | None:
        """All entries multiplied out, and the gradient that came in the usual way."""
        entries = self.take()
        if not entries:
            return gradient
        total = _multiply(entries, votes)
        return total if gradient is None else gradient + total


class Columns(NamedTuple):
    """Entries that belong together: the gradient is the sum of x (plain + scaled (u - pivot)) over all columns."""

    pairs: list[Tensor]  # x, [*b i j]
    plain: list[list[Tensor]]  # to be added up, [*b j d] each
    scaled: list[list[Tensor]]
    pivot: Tensor | None  # [*b j d]; None: nothing is scaled


def columns(entries: list[_Entry]) -> Columns:
    """The same couplings weigh votes and squares: one column for both; all squares around one pivot."""
    pivot = next((entry.means for entry in entries if entry.means is not None), None)
    found = Columns([], [], [], pivot)
    places: dict[object, int] = {}
    for entry in entries:
        place = places.setdefault((entry.pairs.data_ptr(), entry.pairs.stride()), len(found.pairs))
        if place == len(found.pairs):
            found.pairs.append(entry.pairs)
            found.plain.append([])
            found.scaled.append([])
        if entry.plain is not None:
            found.plain[place].append(entry.plain)
        if entry.scaled is not None:
            found.scaled[place].append(entry.scaled)
            if pivot is not None and entry.means is not None:  # (u - m) = (u - pivot) + (pivot - m)
                found.plain[place].append(entry.scaled * (pivot - entry.means))
    return found


def _multiply(entries: list[_Entry], votes: Tensor) -> Tensor:
    *leading, children, parents, dim = votes.shape
    pairs, plain, scaled, pivot = columns(entries)
    left = torch.stack([each.mT.flatten(0, -2) for each in pairs], -2).mT  # [(b j) i n]

    def product(vectors: list[list[Tensor]]) -> Tensor:
        zero = votes.new_zeros(*leading, parents, dim)
        right = torch.stack([sum(several, zero) for several in vectors], -2)  # [*b j n d]
        result = scratch((len(left), children, dim), left)
        torch.bmm(left, right.flatten(0, -3), out=result)
        return result.view(*leading, parents, children, dim).transpose(-3, -2)

    result = product(plain)
    if pivot is not None:
        result.addcmul_(product(scaled), less(votes, pivot))
    return result


def less(votes: Tensor, means: Tensor) -> Tensor:
    """u_j|i - m_j in scratch room, [*b i j d]."""
    *leading, children, parents, dim = votes.shape
    result = scratch((*leading, parents, children, dim), votes)
    return torch.sub(votes.transpose(-3, -2), means.unsqueeze(-2), out=result).transpose(-3, -2)


def ledger_of(votes: Tensor) -> Ledger | None:
    ledger: Ledger | None = getattr(votes, "ledger", None)
    return ledger


def with_ledger(votes: Tensor) -> Tensor:
    """The same votes [*b i j d], with a ledger for their gradient."""
    ledger = Ledger()
    needed = votes.requires_grad and torch.is_grad_enabled()
    marked: Any = _Collect.apply(votes, ledger) if needed else votes.detach()
    marked.ledger = ledger
    return marked


def centred(votes: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The votes less their mean over the (real) children, and that mean [*b j d], which counts as a constant."""
    given = votes.detach()
    even = torch.ones_like(given[..., 0]) if mask is None else mask.unsqueeze(-1).expand(given.shape[:-1]).to(given)
    pivot = sums(even, given) / even.sum(-2).clamp(min=1).unsqueeze(-1)
    if ledger_of(votes) is None:
        return votes - pivot.unsqueeze(-3), pivot
    return with_ledger(_Shift.apply(votes, pivot)), pivot


def refuse_second_derivatives() -> None:
    """Called in backward passes that autograd cannot look into."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "torchcaps: gradients of gradients (create_graph=True) need votes that are kept. Make the layer with "
            "tile_bytes=0, or set TORCHCAPS_TILE_BYTES=0."
        )


class _Shift(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, votes: Tensor, pivot: Tensor) -> Tensor:
        return less(votes, pivot)

    @staticmethod
    @without_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _Collect(torch.autograd.Function):
    """The identity; its backward pass comes after those of all readers, and closes the ledger."""

    @staticmethod
    def forward(ctx: Any, votes: Tensor, ledger: Ledger) -> Tensor:
        ctx.ledger = ledger
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(votes)
        return votes.view_as(votes)

    @staticmethod
    @without_autocast
    def backward(ctx: Any, gradient: Tensor | None) -> tuple[Tensor | None, None]:
        refuse_second_derivatives()
        return ctx.ledger.total(*ctx.saved_tensors, gradient), None


class Combine(torch.autograd.Function):
    """s_j = Sum_i x_ij u_j|i."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, votes: Tensor, ledger: Ledger) -> Tensor:
        ctx.ledger = ledger
        ctx.save_for_backward(weights, votes)
        return sums(weights, votes)

    @staticmethod
    @without_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None]:
        refuse_second_derivatives()
        weights, votes = ctx.saved_tensors
        if ctx.needs_input_grad[1]:
            ctx.ledger.add(weights, plain=gradient)
        return inner(votes, gradient) if ctx.needs_input_grad[0] else None, None, None


class Agree(torch.autograd.Function):
    """<u_j|i, y_j>."""

    @staticmethod
    def forward(ctx: Any, votes: Tensor, centres: Tensor, ledger: Ledger) -> Tensor:
        ctx.ledger = ledger
        ctx.save_for_backward(votes, centres)
        return inner(votes, centres)

    @staticmethod
    @without_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor | None, None]:
        refuse_second_derivatives()
        votes, centres = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            ctx.ledger.add(gradient, plain=centres)
        return None, sums(gradient, votes) if ctx.needs_input_grad[1] else None, None


class Spread(torch.autograd.Function):
    """Sum_i x_ij (u_j|i - m_j)^2."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, votes: Tensor, means: Tensor, ledger: Ledger) -> Tensor:
        squares = ledger.squares(votes, means)
        ctx.ledger = ledger
        ctx.save_for_backward(weights, votes, means, squares)
        return sums(weights, squares)

    @staticmethod
    @without_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, Tensor | None, None]:
        refuse_second_derivatives()
        weights, votes, means, squares = ctx.saved_tensors
        double = 2 * gradient
        if ctx.needs_input_grad[1]:
            ctx.ledger.add(weights, scaled=double, means=means)
        for_weights = inner(squares, gradient) if ctx.needs_input_grad[0] else None
        for_means = -double * _residual(weights, votes, means) if ctx.needs_input_grad[2] else None
        return for_weights, None, for_means, None


class Distances(torch.autograd.Function):
    """Sum_d (u_j|i - m_j)^2 p_j."""

    @staticmethod
    def forward(ctx: Any, votes: Tensor, means: Tensor, precisions: Tensor, ledger: Ledger) -> Tensor:
        squares = ledger.squares(votes, means)
        ctx.ledger = ledger
        ctx.save_for_backward(votes, means, precisions, squares)
        return inner(squares, precisions)

    @staticmethod
    @without_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor | None, Tensor | None, None]:
        refuse_second_derivatives()
        votes, means, precisions, squares = ctx.saved_tensors
        double = 2 * precisions
        if ctx.needs_input_grad[0]:
            ctx.ledger.add(gradient, scaled=double, means=means)
        for_means = -double * _residual(gradient, votes, means) if ctx.needs_input_grad[1] else None
        return None, for_means, sums(gradient, squares) if ctx.needs_input_grad[2] else None, None


def _residual(pairs: Tensor, votes: Tensor, means: Tensor) -> Tensor:
    """Sum_i x_ij (u_j|i - m_j), [*b j d]."""
    return sums(pairs, votes) - means * pairs.sum(-2).unsqueeze(-1)
