"""Votes [*b i j d] as an operator: the reductions that routings apply to them.

A backend provides `Products`: sums, inner products and gradients of votes, which it computes with or without storing
the votes. `Votes` is what a routing sees: differentiable reductions, and the dense tensor for any other operation.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.votes.bounds import bounded
from torchcaps.votes.gradients import GradientFactors
from torchcaps.votes.layout import constant, inner_of, mass_of, sums_of, weigh
from torchcaps.votes.products import Products
from torchcaps.votes.readings import Combine, Inner, Open, Spread


class Moments(NamedTuple):
    """The weighted votes of each parent: masses [*b j], sums [*b j d], and squared deviations from any center.

    spread: the function from a center [*b j d] to Sum_i x_ij (u_j|i - center_j)^2, [*b j d]. scatter, means: the same
    about the means, and these, if a backend has them. by_kernels: whether kernels on a GPU computed them.
    """

    masses: Tensor
    sums: Tensor
    spread: Callable[[Tensor], Tensor]
    scatter: Tensor | None = None
    means: Tensor | None = None
    by_kernels: bool = False


class AnotherBackendError(Exception):
    """Raised when a routing needs an operation that the current backend lacks. The engine then tries the next backend.

    wants: "squares" (of distances and deviations) or "votes" (the dense tensor).
    """

    def __init__(self, wants: str) -> None:
        super().__init__(f"a routing asks for {wants}")
        self.wants = wants


class Votes:
    """Votes [*b i j d], evaluated on demand.

    Votes of masked children are finite and have weight zero. Any operation other than the methods below, such as torch
    functions and tensor methods, uses the dense tensor of all votes (`dense`).

    products: the reductions of a backend; None to compute with plain torch operations on `tensor`. tensor: all votes,
    if they exist. origin: what is subtracted from the votes of each parent, [*b j d].
    """

    def __init__(self, products: Products | None, tensor: Tensor | None = None, origin: Tensor | None = None) -> None:
        self._products = products
        self._tensor = tensor
        self._origin = origin
        self._centered = False
        self._factors = GradientFactors()
        like: Any = tensor if products is None else products
        self.shape: torch.Size = like.shape
        self.dtype: torch.dtype = like.dtype
        self.device: torch.device = like.device
        self._key: Tensor | None = None
        if products is not None:
            self._key = Open.apply(products, self._factors, *products.sources)

    @property
    def ndim(self) -> int:
        """The number of axes, as `Tensor.ndim`."""
        return len(self.shape)

    @property
    def by_kernels(self) -> bool:
        """Whether kernels on a GPU compute the reductions."""
        return self._products is not None and self._products.kernels

    def is_floating_point(self) -> bool:
        """Whether votes are floating-point numbers, as `Tensor.is_floating_point`."""
        return self.dtype.is_floating_point

    def zeros(self) -> Tensor:
        """Zeros [*b i j] in the memory order that the reductions prefer."""
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
        """The votes minus an offset [*b j d], which is treated as a constant."""
        offset = offset.detach()
        if self._products is None:
            return Votes(None, self.dense() - offset.unsqueeze(-3))
        moved = self._products.moved(offset)
        if moved is not None:
            return Votes(moved, moved.make())
        other = copy.copy(self)
        other._origin = self._place(offset)
        return other

    def centered(self, mask: Tensor | None, pairs: Tensor | None = None) -> tuple[Votes, Tensor]:
        """The votes minus their mean over the (real) children, and that mean [*b j d], treated as a constant.

        pairs [*b i j]: the mean is over those of them that are there; None: all are.
        """
        if pairs is not None:
            mask = pairs if mask is None else pairs & mask.unsqueeze(-1)
        elif mask is not None:
            mask = mask.unsqueeze(-1)  # [*b i 1]
        shape = self.shape[:-1]
        even = constant(1, self, shape) if mask is None else mask.expand(shape).to(self.dtype)
        with torch.no_grad():
            sums = self.combine(even)
            count = self.shape[-3] if mask is None else mask.sum(-2).clamp(min=1).unsqueeze(-1)
            pivot = (sums / max(count, 1) if isinstance(count, int) else sums / count).detach()  # forwards, too
        moved = self.shifted(pivot)
        moved._centered = True
        return moved, pivot

    def weigh(self, couplings: Tensor, weights: Tensor | None) -> Tensor:
        """Couplings [*b i j] times the weights of children [*b i], for the reductions of these votes."""
        if weights is not None:
            couplings = (weigh if self._products is None else self._products.weigh)(couplings, weights)
        # The backward pass multiplies them by squared distances from a mean, which may be large.
        return bounded(couplings) if self._centered and self._products is None else couplings

    def combine(self, weights: Tensor) -> Tensor:
        """Sum_i x_ij u_j|i, [*b j d], for weights x [*b i j]."""
        weights = self._of_pairs(weights)
        if self._products is None:
            return sums_of(weights, self.dense())
        return self._combine(weights)[1]

    def agree(self, centers: Tensor, before: Tensor | None = None) -> Tensor:
        """<u_j|i, y_j>, [*b i j], for centers y [*b j d]; added to scores `before` [*b i j], if they are given."""
        centers = self._beside(centers)
        if self._products is None:
            found = inner_of(self.dense(), centers)
            return found if before is None else before + found
        given = (self._products, self._factors, self._origin, before)
        result: Tensor = Inner.apply(self._key, None, centers, None, None, *given)
        return result

    def distances(self, means: Tensor, precisions: Tensor | None = None, offset: Tensor | None = None) -> Tensor:
        """Sum_d p_j (u_j|i - m_j)^2 + offset_j, [*b i j], for means and precisions [*b j d] and an offset [*b j]."""
        precisions = self._beside(torch.ones_like(means) if precisions is None else precisions)
        means = self._beside(means)
        if self._products is not None:
            self._ask_for_squares()
            offset = None if offset is None else offset.expand(precisions.shape[:-1])
            backend = (self._products, self._factors, self._origin)
            return Inner.apply(self._key, means, None, precisions, offset, *backend, None)
        found = inner_of((self.dense() - means.unsqueeze(-3)).square(), precisions)
        return found if offset is None else found + offset.unsqueeze(-2)

    def spread(self, weights: Tensor, means: Tensor) -> Tensor:
        """Sum_i x_ij (u_j|i - m_j)^2, [*b j d], for weights [*b i j] and means [*b j d]."""
        return self.moments(weights, near=means).spread(means)

    def moments(self, weights: Tensor, near: Tensor | None = None) -> Moments:
        """The mass, sum and scatter of the votes under weights [*b i j]. near: an estimate of their means [*b j d]."""
        weights = self._of_pairs(weights)
        if self._products is not None:
            self._ask_for_squares()
            near = None if near is None else self._beside(near.detach())
            masses, sums, scatter, means = self._combine(weights, near, True)

            def spread(about: Tensor) -> Tensor:
                found: Tensor = Spread.apply(scatter, masses, sums, about, means)
                return found

            return Moments(masses, sums, spread, scatter, means, self.by_kernels)
        votes = self.dense()
        sums = sums_of(weights, votes)
        return Moments(mass_of(weights), sums, lambda about: sums_of(weights, (votes - about.unsqueeze(-3)).square()))

    def _combine(self, weights: Tensor, near: Tensor | None = None, squares: bool = False) -> Any:
        origin, bound = self._origin, self._centered
        return Combine.apply(self._key, weights, self._products, self._factors, origin, near, squares, bound)

    def _of_pairs(self, weights: Tensor) -> Tensor:
        """Weights expanded to [*b i j]; the same tensor if they have that shape, as the products may know it."""
        return weights if weights.shape == self.shape[:-1] else weights.expand(self.shape[:-1])

    def _ask_for_squares(self) -> None:
        if self._products is not None and not self._products.squares:
            raise AnotherBackendError("squares")

    def _place(self, means: Tensor) -> Tensor:
        return means if self._origin is None else means + self._origin

    def _beside(self, centers: Tensor) -> Tensor:
        """Centers expanded to one vector for each parent of each example, [*b j d]."""
        return centers.expand(*self.shape[:-3], *self.shape[-2:])

    # All other operations use the dense tensor.

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
    """Wrap a tensor of votes [*b i j d] as `Votes`; return `Votes` unchanged."""
    return votes if isinstance(votes, Votes) else Votes(None, votes)
