"""Memory layout: products of matrices in the layout that routing prefers, and reductions along the memory order."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from torchcaps._core.precision import autocasting, without_autocast
from torchcaps.votes.buffers import current_pool, scratch

Shape = tuple[int, ...]


def why_not_eager() -> str | None:
    """The reason why torch is not in plain eager mode (compiling, torch.func, forward AD, dispatch modes), or None."""
    if torch.compiler.is_compiling():  # first, because the compiler cannot trace the other checks
        return "torch compiles or exports"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "torch.func transforms the function"
    if forward_ad._current_level >= 0:
        return "torch differentiates forwards"
    if torch._C._len_torch_dispatch_stack():
        return "a dispatch mode looks at operations"
    return None


def eager() -> bool:
    """Whether torch is in plain eager mode: see `why_not_eager`."""
    return why_not_eager() is None


def constant(value: float, like: Any, shape: Shape) -> Tensor:
    """One number everywhere, of the dtype and on the device of `like`. It is made once and lies in memory once."""
    make = _constant if eager() else _constant.__wrapped__  # else it could be a compiler's stand-in
    return make(float(value), like.dtype, like.device).expand(shape)


@functools.lru_cache(maxsize=256)
def _constant(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.full((), value, dtype=dtype, device=device)


def memory_order(values: Tensor) -> tuple[list[int], list[int]]:
    """The permutation that sorts axes by decreasing stride, and its inverse.

    Sums and maxima over an axis are ten times faster on axes in this order, in backward passes too.
    """
    if not eager():  # the compiler chooses the layout, and strides may be unknown
        return list(range(values.ndim)), list(range(values.ndim))
    order = sorted(range(values.ndim), key=values.stride, reverse=True)
    return order, sorted(range(values.ndim), key=order.__getitem__)


def in_memory_order(work: Callable[..., Tensor], values: Tensor, *beside: Tensor) -> Tensor:
    """The elementwise work(values, *beside) of broadcastable tensors, in the memory order of the first."""
    order, back = memory_order(values)
    others = (other.permute(order).contiguous() for other in beside)
    return work(values.permute(order), *others).permute(back)


def over_axis(reduce: Callable[..., Tensor], values: Tensor, axis: int) -> Tensor:
    """reduce(values, axis, keepdim=True), computed in memory order."""
    order, back = memory_order(values)
    return reduce(values.permute(order), dim=order.index(axis % values.ndim), keepdim=True).permute(back)


def matrices(votes: Tensor) -> Tensor:
    """Votes [*b i j d] as one matrix for each parent, [(b j) i d]; no copy if this is their memory order."""
    return votes.transpose(-3, -2).flatten(0, -3)


def sums_of(weights: Tensor, votes: Tensor) -> Tensor:
    """Sum_i x_ij u_j|i, [*b j d]."""
    rows = weights.mT.flatten(0, -2).unsqueeze(-2)
    return torch.bmm(rows, matrices(votes)).view(*weights.shape[:-2], weights.shape[-1], votes.shape[-1])


def inner_of(votes: Tensor, centers: Tensor) -> Tensor:
    """<u_j|i, y_j>, [*b i j], stored as [*b j i], the order that sums prefer."""
    rows = centers.flatten(0, -2).unsqueeze(-2)
    # A row times a matrix: several times faster than the matrix times a column.
    return torch.bmm(rows, matrices(votes).mT).view(*centers.shape[:-1], votes.shape[-3]).mT


def mass_of(weights: Tensor) -> Tensor:
    """Sum_i x_ij, [*b j], for weights x [*b i j]."""
    return over_axis(torch.sum, weights, -2).squeeze(-2)


def weigh(couplings: Tensor, weights: Tensor) -> Tensor:
    """Couplings [*b i j] times the weights of children [*b i]."""
    once = couplings[..., :1] if couplings.stride(-1) == 0 else couplings  # the same for all parents
    return in_memory_order(torch.mul, once, weights.unsqueeze(-1)).expand(couplings.shape)


def child_first(poses: Tensor) -> Tensor:
    """Poses [*b i e] as one matrix for each child, [i n e]."""
    return (poses.flatten(0, -3) if poses.ndim > 2 else poses.unsqueeze(0)).transpose(0, 1)


def as_votes(parent_first: Tensor, poses: Tensor, dim: int) -> Tensor:
    """Votes stored as [n j i d] (d may be two axes), viewed as [*b i j d] for these poses."""
    return parent_first.view(*poses.shape[:-2], *parent_first.shape[1:3], dim).transpose(-3, -2)


def laid_out_product(left: Tensor, right: Tensor, shape: Shape, order: Shape) -> Tensor:
    """The batched product left @ right, viewed as `shape` and copied with its axes permuted to `order`."""
    if torch.compiler.is_compiling() or current_pool() is None or autocasting(left.device.type):
        return torch.bmm(left, right).view(shape).permute(order).contiguous()
    product: Tensor = _LaidOutProduct.apply(left, right, shape, order)
    return product


class _LaidOutProduct(torch.autograd.Function):
    """Uses scratch buffers for the products, which are as large as the votes."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, shape: Shape, order: Shape) -> Tensor:
        ctx.shape, ctx.order = shape, order
        ctx.save_for_backward(left, right)
        products = scratch((*left.shape[:2], right.shape[2]), left)
        torch.bmm(left.detach(), right.detach(), out=products)
        result = scratch([shape[axis] for axis in order], left, shown=True)
        _copy(products.view(shape).permute(order), result)
        return result

    @staticmethod
    @without_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        left, right = ctx.saved_tensors
        shape = (*left.shape[:2], right.shape[2])
        if torch.is_grad_enabled():  # for gradients of gradients
            back = sorted(range(len(ctx.order)), key=ctx.order.__getitem__)
            products = gradient.permute(back).reshape(shape)
        else:
            products = scratch(shape, gradient)
            _copy(gradient, products.view(ctx.shape).permute(ctx.order))
        for_left = torch.bmm(products, right.mT) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return for_left, None, None, None
        if torch.is_grad_enabled():
            return for_left, torch.bmm(left.mT, products), None, None
        return for_left, torch.bmm(left.mT, products, out=scratch(right.shape, right)), None, None


def _copy(source: Tensor, target: Tensor) -> None:
    """Copy between memory orders. Rows of 16 bytes are copied as one element, which is several times faster."""
    if _in_rows(source) and _in_rows(target):
        source, target = source.view(torch.complex128), target.view(torch.complex128)
    target.copy_(source)


def _in_rows(values: Tensor) -> bool:
    """Whether the last axis is contiguous, 16 bytes long, and aligned to 16 bytes."""
    size = values.element_size()
    places = [values.storage_offset(), *values.stride()[:-1]]
    whole = values.shape[-1] * size == 16 and values.stride(-1) == 1 and all(place * size % 16 == 0 for place in places)
    return whole and values.device.type in ("cpu", "cuda")
