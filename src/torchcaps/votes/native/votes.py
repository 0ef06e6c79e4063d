"""Votes that are made in registers, read at once and forgotten: the products of routings as native functions.

Votes of every pair of child and parent are cheap to make and dear to keep. `votes.c` makes them anew at every reading,
a few numbers for sixteen examples at a time, and never writes one to memory. Their gradient is collected in a ledger,
as factors, and multiplied out once.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from torchcaps.precision import without_autocast
from torchcaps.votes.gradients import refuse_second_derivatives
from torchcaps.votes.layout import eager
from torchcaps.votes.lazy import Unmade
from torchcaps.votes.native.build import Geometry, library
from torchcaps.votes.native.products import Products
from torchcaps.votes.tiling import Work

FEWEST = 8  # examples: with fewer, most of each vector would be padding
FILLED = 32 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 16  # examples that fill vectors
# Numbers for each pair of child and parent:
TILE_NUMBERS = 3  # those of a tile that should be in the cache together
KEPT_NUMBERS = 3  # those that autograd keeps of an iteration, about


def fill_lanes(size: int, windows: int) -> int:
    """About so many examples, of so many windows each, that their windows fill vectors, and lie well in memory."""
    for lanes in (64, 32, 16):
        step = lanes // math.gcd(lanes, windows)
        if step <= 1.5 * size:
            return max(step, size - size % step)
    return size


def filled(work: Work, windows: int) -> Work:
    """The same work on whole vectors of windows: the last example is repeated, and the repetitions dropped.

    Else torch would compute what is left over by other instructions, and an example's last bit depend on its place.
    """
    step = FILLED // math.gcd(FILLED, windows)

    def whole(part: list[Tensor | None], given: list[Tensor]) -> tuple[Tensor, ...]:
        rows = next(len(tensor) for tensor in part if tensor is not None)
        extra = -rows % step
        if not extra:
            return work(part, given)
        more = [None if each is None else torch.cat([each, each[-1:].expand(extra, *each.shape[1:])]) for each in part]
        return tuple(result[:rows] for result in work(more, given))

    return whole


def native_votes(
    poses: Tensor, weight: Tensor, bias: bool, examples: int, beside: Iterable[Tensor] = ()
) -> Callable[..., NativeVotes] | None:
    """What makes native votes of a tile of such poses [*b i e] and matrices [i j k c]; None where torch must do it.

    examples: how many a tile has. beside: all else that takes part.
    """
    tensors = (poses, weight, *beside)
    plain = all(type(tensor) in (Tensor, Parameter) and tensor.device.type == "cpu" for tensor in tensors)
    alike = all(tensor.dtype == poses.dtype for tensor in tensors)
    if not (plain and alike and examples >= FEWEST and eager()):
        return None
    inner, columns = weight.shape[2:]
    geometry = Geometry((poses.shape[-1] + bias) // inner, inner, columns)
    functions = library(geometry, poses.dtype)
    if functions is None:
        return None
    return lambda poses, _, weight: NativeVotes(functions, geometry, poses, weight, bias)


class NativeVotes(Unmade):
    """Votes [*b i j d] of poses [*b i e] and a matrix for each pair [i j k c], less an origin [*b j d] if centred."""

    def __init__(self, library: ctypes.CDLL, geometry: Geometry, poses: Tensor, weight: Tensor, bias: bool) -> None:
        super().__init__(poses, weight.shape[1], geometry.out_dim, bias)
        self.products = Products(library, geometry, self.poses, weight)
        self.key: Tensor = _Open.apply(self.poses, weight, self.products)
        self.origin: Tensor | None = None

    def zeros(self) -> Tensor:
        products = self.products
        return products.outside(self.poses.new_zeros(products.children, products.parents, products.width))

    def centred(self, mask: Tensor | None) -> tuple[Unmade, Tensor]:
        # The counterpart of `ledger.centred`.
        even = self.poses.new_ones(()) if mask is None else mask.unsqueeze(-1).to(self.dtype)
        even = even.expand(self.shape[:-1])
        pivot = self.products.sums(even, self.origin) / even.sum(-2).clamp(min=1).unsqueeze(-1)
        other = object.__new__(NativeVotes)
        other.__dict__.update(self.__dict__, origin=_moved(pivot, self.origin))
        return other, pivot

    def combine(self, weights: Tensor) -> Tensor:
        result: Tensor = _Combine.apply(self.key, weights, self.products, self.origin)
        return result

    def agree(self, centres: Tensor) -> Tensor:
        result: Tensor = _Agree.apply(self.key, centres, self.products, self.origin)
        return result

    def spread(self, weights: Tensor, means: Tensor) -> Tensor:
        result: Tensor = _Spread.apply(self.key, weights, means, self.products, self.origin)
        return result

    def distances(self, means: Tensor, precisions: Tensor) -> Tensor:
        result: Tensor = _Distances.apply(self.key, means, precisions, self.products, self.origin)
        return result


def _moved(means: Tensor, origin: Tensor | None) -> Tensor:
    return means if origin is None else means + origin


class _Open(torch.autograd.Function):
    """A key that all readers take; its backward pass comes after theirs, and closes the ledger."""

    @staticmethod
    def forward(ctx: Any, poses: Tensor, weight: Tensor, products: Products) -> Tensor:
        ctx.products = products
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(poses, weight)  # whoever changes them in between is told
        return poses.new_zeros(())

    @staticmethod
    @without_autocast
    def backward(ctx: Any, _: Tensor | None) -> tuple[Tensor | None, Tensor | None, None]:
        refuse_second_derivatives()
        assert len(ctx.saved_tensors) == 2
        found = ctx.products.gradients()
        return (None, None, None) if found is None else (*found, None)


class _Combine(torch.autograd.Function):
    """s_j = Sum_i x_ij u_j|i."""

    @staticmethod
    def forward(ctx: Any, key: Tensor, weights: Tensor, products: Products, origin: Tensor | None) -> Tensor:
        ctx.products = products
        ctx.save_for_backward(weights, origin, *products.sources)
        return products.sums(weights, origin)

    @staticmethod
    @without_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor | None, None, None]:
        refuse_second_derivatives()
        weights, origin, *_ = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            ctx.products.ledger.add(weights, plain=gradient)
        return None, ctx.products.inner(gradient, origin) if ctx.needs_input_grad[1] else None, None, None


class _Agree(torch.autograd.Function):
    """<u_j|i, y_j>."""

    @staticmethod
    def forward(ctx: Any, key: Tensor, centres: Tensor, products: Products, origin: Tensor | None) -> Tensor:
        ctx.products = products
        ctx.save_for_backward(centres, origin, *products.sources)
        return products.inner(centres, origin)

    @staticmethod
    @without_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor | None, None, None]:
        refuse_second_derivatives()
        centres, origin, *_ = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            ctx.products.ledger.add(gradient, plain=centres)
        return None, ctx.products.sums(gradient, origin) if ctx.needs_input_grad[1] else None, None, None


class _Spread(torch.autograd.Function):
    """Sum_i x_ij (u_j|i - m_j)^2."""

    @staticmethod
    def forward(
        ctx: Any, key: Tensor, weights: Tensor, means: Tensor, products: Products, origin: Tensor | None
    ) -> Tensor:
        ctx.products = products
        place = _moved(means, origin)
        ctx.save_for_backward(weights, place, *products.sources)
        return products.sums(weights, place, square=True)

    @staticmethod
    @without_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor | None, Tensor | None, None, None]:
        refuse_second_derivatives()
        weights, place, *_ = ctx.saved_tensors
        products, double = ctx.products, 2 * gradient
        if ctx.needs_input_grad[0]:
            products.ledger.add(weights, scaled=double, means=place)
        for_weights = products.inner(gradient, place, square=True) if ctx.needs_input_grad[1] else None
        for_means = -double * products.sums(weights, place) if ctx.needs_input_grad[2] else None
        return None, for_weights, for_means, None, None


class _Distances(torch.autograd.Function):
    """Sum_d (u_j|i - m_j)^2 p_j."""

    @staticmethod
    def forward(
        ctx: Any, key: Tensor, means: Tensor, precisions: Tensor, products: Products, origin: Tensor | None
    ) -> Tensor:
        ctx.products = products
        place = _moved(means, origin)
        ctx.save_for_backward(place, precisions, *products.sources)
        return products.inner(precisions, place, square=True)

    @staticmethod
    @without_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor | None, Tensor | None, None, None]:
        refuse_second_derivatives()
        place, precisions, *_ = ctx.saved_tensors
        products, double = ctx.products, 2 * precisions
        if ctx.needs_input_grad[0]:
            products.ledger.add(gradient, scaled=double, means=place)
        for_means = -double * products.sums(gradient, place) if ctx.needs_input_grad[1] else None
        for_precisions = products.sums(gradient, place, square=True) if ctx.needs_input_grad[2] else None
        return None, for_means, for_precisions, None, None
