"""Votes [*b i j d] as an operator: the few things that routings do with them, each written once.

A backend gives `Products`: sums, inner products and gradients of votes that it makes in its own way, or never makes.
`Votes` is what a routing sees: differentiable readings, and a tensor of all votes for whatever else it may want.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.precision import without_autocast
from torchcaps.votes.gradients import Columns, Ledger, columns, refuse_second_derivatives
from torchcaps.votes.layout import over_axis


class Sums(NamedTuple):
    """Sums over children, with v = vote - place; what was not asked for is None."""

    masses: Tensor | None = None  # Sum_i x, [*b j]
    first: Tensor | None = None  # Sum_i x v, [*b j d]
    second: Tensor | None = None  # Sum_i x v^2, [*b j d]


class Moments(NamedTuple):
    """The weighted votes of each parent: their mass [*b j], their sum and the squares about their mean [*b j d]."""

    masses: Tensor
    sums: Tensor
    scatter: Tensor

    def spread(self, about: Tensor) -> Tensor:
        """Sum_i x (u - about)^2, [*b j d]: the squares about the mean, and the way from there."""
        masses = self.masses.unsqueeze(-1)
        empty = masses < torch.finfo(masses.dtype).tiny
        means = self.sums / masses.masked_fill(empty, 1)
        return self.scatter + masses * (about - means).square()


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

    def moved(self, offset: Tensor) -> Products | None:
        """The products of votes less an offset [*b j d]; None: their place is the way to say so."""
        return None

    def make(self) -> Tensor | None:
        """All votes as a tensor, with gradients; None: this backend must not, and another one is asked."""
        return None


class AnotherBackendError(Exception):
    """Raised in a routing that wants more of votes than a backend has; whoever called it tries another one."""

    def __init__(self, wants: str) -> None:
        super().__init__(f"a routing asks for {wants}")
        self.wants = wants  # "squares", or "votes"


class Votes:
    """Votes [*b i j d], evaluated as they are read.

    Those of masked children are finite, not zero: their weights are. Whatever is no reading of the list below works on
    the tensor of all votes (`dense`), as functions of torch and tensors' methods do.
    """

    def __init__(self, products: Products | None, tensor: Tensor | None = None, origin: Tensor | None = None) -> None:
        self._products = products  # None: torch's own operations on the tensor, and nothing else
        self._tensor = tensor
        self._origin = origin
        self._ledger = Ledger()
        like: Any = tensor if products is None else products
        self.shape: torch.Size = like.shape
        self.dtype: torch.dtype = like.dtype
        self.device: torch.device = like.device
        self._key: Tensor | None = None
        if products is not None:
            self._key = _Open.apply(products, self._ledger, *products.sources)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def zeros(self) -> Tensor:
        """A zero for each pair, [*b i j], as it suits readings."""
        if self._products is not None:
            return self._products.zeros()
        *leading, children, parents, _ = self.shape
        return torch.zeros(*leading, parents, children, dtype=self.dtype, device=self.device).mT

    def dense(self) -> Tensor:
        """All votes as a tensor, with gradients."""
        if self._tensor is None:
            assert self._products is not None
            self._tensor = self._products.make()
            if self._tensor is None:
                raise AnotherBackendError("votes")
        return self._tensor if self._origin is None else self._tensor - self._origin.unsqueeze(-3)

    def shifted(self, offset: Tensor) -> Votes:
        """The votes less an offset [*b j d], which counts as a constant."""
        offset = offset.detach()
        if self._products is None:
            return Votes(None, self.dense() - offset.unsqueeze(-3))
        moved = self._products.moved(offset)
        if moved is not None:
            return Votes(moved, moved.make())
        other = copy.copy(self)
        other._origin = self._place(offset)
        return other

    def centred(self, mask: Tensor | None) -> tuple[Votes, Tensor]:
        """The votes less their mean over the (real) children, and that mean [*b j d], which counts as a constant."""
        even = torch.ones((), dtype=self.dtype, device=self.device)
        even = even.expand(self.shape[:-1]) if mask is None else mask.unsqueeze(-1).expand(self.shape[:-1]).to(even)
        with torch.no_grad():
            sums = self.combine(even)
            count = self.shape[-3] if mask is None else mask.sum(-1).clamp(min=1)[..., None, None]
            pivot = sums / max(count, 1) if isinstance(count, int) else sums / count
        return self.shifted(pivot), pivot

    def combine(self, weights: Tensor) -> Tensor:
        """Sum_i x_ij u_j|i, [*b j d], for weights x [*b i j]."""
        weights = weights.expand(self.shape[:-1])
        if self._products is None:
            return sums_of(weights, self.dense())
        return _Combine.apply(self._key, weights, self._products, self._ledger, self._origin)[1]

    def agree(self, centres: Tensor) -> Tensor:
        """<u_j|i, y_j>, [*b i j], for centres y [*b j d]."""
        centres = self._beside(centres)
        if self._products is None:
            return inner_of(self.dense(), centres)
        result: Tensor = _Inner.apply(self._key, None, centres, None, None, self._products, self._ledger, self._origin)
        return result

    def distances(self, means: Tensor, precisions: Tensor | None = None, offset: Tensor | None = None) -> Tensor:
        """Sum_d p_j (u_j|i - m_j)^2 + offset_j, [*b i j], for means and precisions [*b j d] and an offset [*b j]."""
        precisions = self._beside(torch.ones_like(means) if precisions is None else precisions)
        means = self._beside(means)
        if self._products is not None:
            self._ask_for_squares()
            offset = None if offset is None else offset.expand(precisions.shape[:-1])
            return _Inner.apply(self._key, means, None, precisions, offset, self._products, self._ledger, self._origin)
        found = inner_of((self.dense() - means.unsqueeze(-3)).square(), precisions)
        return found if offset is None else found + offset.unsqueeze(-2)

    def spread(self, weights: Tensor, means: Tensor) -> Tensor:
        """Sum_i x_ij (u_j|i - m_j)^2, [*b j d], for weights [*b i j] and means [*b j d]."""
        return self.moments(weights, near=means).spread(means)

    def moments(self, weights: Tensor, near: Tensor | None = None) -> Moments:
        """The mass, sum and scatter of the votes under weights [*b i j]. near: where their means are, about."""
        weights = weights.expand(self.shape[:-1])
        if self._products is not None:
            self._ask_for_squares()
            near = None if near is None else self._beside(near.detach())
            return Moments(*_Combine.apply(self._key, weights, self._products, self._ledger, self._origin, near, True))
        votes, masses = self.dense(), mass_of(weights)
        sums = sums_of(weights, votes)
        empty = masses < torch.finfo(masses.dtype).tiny
        means = sums / masses.masked_fill(empty, 1).unsqueeze(-1)
        return Moments(masses, sums, sums_of(weights, (votes - means.unsqueeze(-3)).square()))

    def _ask_for_squares(self) -> None:
        if self._products is not None and not self._products.squares:
            raise AnotherBackendError("squares")

    def _place(self, means: Tensor) -> Tensor:
        return means if self._origin is None else means + self._origin

    def _beside(self, centres: Tensor) -> Tensor:
        """One vector for each parent, also where it is the same for all examples."""
        return centres.expand(*self.shape[:-3], *self.shape[-2:])

    # Everything else is done with the tensor.

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return function(*_dense(args), **_dense(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.dense(), name)

    def __getitem__(self, index: Any) -> Tensor:
        return self.dense()[index]

    def __len__(self) -> int:
        return self.shape[0]


def _dense(given: Any) -> Any:
    if isinstance(given, Votes):
        return given.dense()
    if isinstance(given, dict):
        return {key: _dense(value) for key, value in given.items()}
    return type(given)(map(_dense, given)) if type(given) in (list, tuple) else given


def _operator(name: str) -> Callable[..., Any]:
    def apply(self: Votes, *others: Any) -> Any:
        return getattr(self.dense(), name)(*_dense(others))

    return apply


for _name in (
    *(f"__{side}{word}__" for side in ("", "r") for word in ("add", "sub", "mul", "truediv", "pow", "matmul")),
    *("__neg__", "__abs__", "__lt__", "__le__", "__gt__", "__ge__"),
):
    setattr(Votes, _name, _operator(_name))


def as_votes(votes: Tensor | Votes) -> Votes:
    return votes if isinstance(votes, Votes) else Votes(None, votes)


def matrices(votes: Tensor) -> Tensor:
    """Votes [*b i j d] as one matrix for each parent, [(b j) i d]; no copy if that is how they lie in memory."""
    return votes.transpose(-3, -2).flatten(0, -3)


def sums_of(weights: Tensor, votes: Tensor) -> Tensor:
    """Sum_i x_ij u_j|i, [*b j d]."""
    rows = weights.mT.flatten(0, -2).unsqueeze(-2)
    return torch.bmm(rows, matrices(votes)).view(*weights.shape[:-2], weights.shape[-1], votes.shape[-1])


def inner_of(votes: Tensor, centres: Tensor) -> Tensor:
    """<u_j|i, y_j>, [*b i j]; parents lie outside of children in memory, as sums want them."""
    rows = centres.flatten(0, -2).unsqueeze(-2)
    # A row times a matrix: several times faster than the matrix times a column.
    return torch.bmm(rows, matrices(votes).mT).view(*centres.shape[:-1], votes.shape[-3]).mT


def mass_of(weights: Tensor) -> Tensor:
    """Sum_i x_ij, [*b j]."""
    return over_axis(torch.sum, weights, -2).squeeze(-2)


class _Open(torch.autograd.Function):
    """A key that all readings take; its backward pass comes after theirs, and multiplies the ledger out."""

    @staticmethod
    def forward(ctx: Any, products: Products, ledger: Ledger, *sources: Tensor) -> Tensor:
        ctx.products, ctx.ledger = products, ledger
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*sources)  # whoever changes them in between is told
        return sources[0].new_zeros(())

    @staticmethod
    @without_autocast
    def backward(ctx: Any, _: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        entries = ctx.ledger.take()
        if not entries:
            return (None,) * (2 + len(ctx.saved_tensors))
        return None, None, *ctx.products.gradients(columns(entries))


class _Combine(torch.autograd.Function):
    """Sum_i x_ij u_j|i; beside it, if asked for, the masses and the squares about the mean."""

    @staticmethod
    def forward(
        ctx: Any,
        key: Tensor,
        weights: Tensor,
        products: Products,
        ledger: Ledger,
        origin: Tensor | None,
        near: Tensor | None = None,
        squares: bool = False,
    ) -> tuple[Tensor | None, Tensor, Tensor | None]:
        ctx.products, ctx.ledger, ctx.squares = products, ledger, squares
        ctx.set_materialize_grads(False)
        if not squares:
            ctx.save_for_backward(weights, origin, None, *products.sources)
            first = products.sums(weights, origin, first=True).first
            assert first is not None
            return None, first, None
        place = origin if near is None else near if origin is None else near + origin
        masses, first, means, scatter = products.moments(weights, place)
        if near is not None:
            first = torch.addcmul(first, near, masses.unsqueeze(-1))
            relative = means + near
        else:
            relative = means
        middle = means if place is None else means + place
        ctx.save_for_backward(weights, middle, relative, *products.sources)
        return masses, first, scatter

    @staticmethod
    @without_autocast
    def backward(
        ctx: Any, for_masses: Tensor | None, for_sums: Tensor | None, for_scatter: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        weights, place, means, *_ = ctx.saved_tensors
        if ctx.needs_input_grad[0] and not (for_sums is None and for_scatter is None):
            # With v = u - mean, the votes are v + mean, and the squares are v^2 whatever the mean does: Sum_i x v = 0.
            scaled = None if for_scatter is None else 2 * for_scatter
            ctx.ledger.add(weights, plain=for_sums, scaled=scaled, means=None if scaled is None else place)
        result = None
        if ctx.needs_input_grad[1]:
            offset = for_masses
            if ctx.squares and for_sums is not None:
                along = (for_sums * means).sum(-1)
                offset = along if offset is None else offset + along
            if for_sums is None and for_scatter is None:
                result = None if offset is None else offset.unsqueeze(-2).expand(weights.shape)
            else:
                result = ctx.products.inner(for_sums, for_scatter, offset, place)
        return None, result, None, None, None, None, None


class _Inner(torch.autograd.Function):
    """Sum_d (y_j v + z_j v^2) + offset_j, with v = u_j|i - m_j; one of y and z is None."""

    @staticmethod
    def forward(
        ctx: Any,
        key: Tensor,
        means: Tensor | None,
        linear: Tensor | None,
        squared: Tensor | None,
        offset: Tensor | None,
        products: Products,
        ledger: Ledger,
        origin: Tensor | None,
    ) -> Tensor:
        ctx.products, ctx.ledger = products, ledger
        place = origin if means is None else means if origin is None else means + origin
        ctx.save_for_backward(linear, squared, place, *products.sources)
        return products.inner(linear, squared, offset, place)

    @staticmethod
    @without_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        linear, squared, place, *_ = ctx.saved_tensors
        needs = ctx.needs_input_grad
        double = None if squared is None else 2 * squared
        if needs[0]:
            ctx.ledger.add(gradient, plain=linear, scaled=double, means=None if double is None else place)
        found = Sums()
        if any(needs[1:5]):
            found = ctx.products.sums(
                gradient, place, masses=bool(needs[4]), first=bool(needs[1] or needs[2]), second=bool(needs[3])
            )
        for_means = None
        if needs[1]:
            assert double is not None
            assert found.first is not None
            for_means = -double * found.first
        return None, for_means, found.first if needs[2] else None, found.second, found.masses, None, None, None
