"""Votes that are never made.

A routing that asks for nothing but weighted sums of votes and inner products with them need not see a single vote. With
one matrix for each parent, Sum_i x_ij W_j u_i = W_j Sum_i x_ij u_i and <W_j u_i, y_j> = <u_i, W_j^T y_j>: the
products of a whole routing cost less than the votes alone. With a matrix for each pair, both are products of matrices
whose common axis is long, Sum_(i e) (x_ij u_ie) W_(ie)j, where votes would be many products of tiny matrices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from torchcaps.precision import without_autocast
from torchcaps.votes.buffers import borrowed, scratch
from torchcaps.votes.gradients import refuse_second_derivatives


class Unmade:
    """Votes [*b i j d], as far as a routing asks for them: the shape and their products, two or all four.

    Those of masked children are not zero, but finite: a routing's weights are zero for them.
    """

    def __init__(self, poses: Tensor, parents: int, dim: int, bias: bool) -> None:
        self.poses = pad(poses, (0, 1), value=1) if bias else poses  # the bias is the last row of each matrix
        self.shape = torch.Size((*poses.shape[:-1], parents, dim))
        self.ndim = len(self.shape)
        self.dtype = poses.dtype
        self.device = poses.device

    def is_floating_point(self) -> bool:
        return self.poses.is_floating_point()

    def zeros(self) -> Tensor:
        """A zero for each pair, [*b i j], as it suits the products."""
        *leading, children, parents, _ = self.shape
        return self.poses.new_zeros(*leading, parents, children).mT

    def combine(self, weights: Tensor) -> Tensor:
        """Sum_i x_ij u_j|i, [*b j d], for weights x [*b i j]."""
        raise NotImplementedError

    def agree(self, centres: Tensor) -> Tensor:
        """<u_j|i, y_j>, [*b i j], for centres y [*b j d]."""
        raise NotImplementedError

    def spread(self, weights: Tensor, means: Tensor) -> Tensor:
        """Sum_i x_ij (u_j|i - m_j)^2, [*b j d]; for routings that see squares."""
        raise NotImplementedError

    def distances(self, means: Tensor, precisions: Tensor) -> Tensor:
        """Sum_d p_j (u_j|i - m_j)^2, [*b i j]; for routings that see squares."""
        raise NotImplementedError

    def centred(self, mask: Tensor | None) -> tuple[Unmade, Tensor]:
        """The votes less their mean over the (real) children, and that mean [*b j d], which counts as a constant."""
        raise NotImplementedError


class UnmadeShared(Unmade):
    """u_j|i = W_j u_i, weight [j e d]."""

    def __init__(self, poses: Tensor, weight: Tensor, bias: bool = False) -> None:
        super().__init__(poses, weight.shape[0], weight.shape[2], bias)
        self.weight = weight

    def combine(self, weights: Tensor) -> Tensor:
        if weights.stride(-1) == 0:  # the same for all parents: one sum of poses
            once = weights[..., :1].mT @ self.poses  # [*b 1 e]
            sums = once @ self.weight.transpose(0, 1).flatten(1)
            return sums.view(*self.shape[:-3], *self.shape[-2:])
        return _each_parent(weights.mT @ self.poses, self.weight)

    def agree(self, centres: Tensor) -> Tensor:
        return (_each_parent(centres, self.weight.mT) @ self.poses.mT).mT


def _each_parent(vectors: Tensor, weight: Tensor) -> Tensor:
    """Vectors [*b j e] times a matrix for each parent [j e d], [*b j d]."""
    rows = vectors.flatten(0, -3) if vectors.ndim > 2 else vectors.unsqueeze(0)
    product = torch.bmm(rows.transpose(0, 1), weight).transpose(0, 1)
    return product.reshape(*vectors.shape[:-1], weight.shape[2])


class UnmadeFull(Unmade):
    """u_j|i = W_ij u_i, weight [j d e i]."""

    def __init__(self, poses: Tensor, weight: Tensor, bias: bool = False) -> None:
        super().__init__(poses, weight.shape[0], weight.shape[1], bias)
        self.weight = weight
        self.columns = self.poses.mT.reshape(-1, *self.poses.mT.shape[-2:]).contiguous()  # [n e i]

    def combine(self, weights: Tensor) -> Tensor:
        if weights.numel() and not any(weights.stride()):  # one number for all: one product for all parents
            everything = self.columns.flatten(1) @ self.weight.flatten(2).flatten(0, 1).mT
            return weights.flatten()[0] * everything.view(*self.shape[:-3], *self.shape[-2:])
        result: Tensor = _Combine.apply(weights.mT.flatten(0, -3), self.columns, self.weight)
        return result.view(*self.shape[:-3], *self.shape[-2:])

    def agree(self, centres: Tensor) -> Tensor:
        result: Tensor = _Agree.apply(self.columns, self.weight, centres.flatten(0, -3))
        return result.view(*self.shape[:-3], *result.shape[-2:]).mT


# The number Sum x_nji u_nei W_jdei y_njd has four derivatives; the products and their gradients are these.


def _by_parent(pairs: Tensor, columns: Tensor, weight: Tensor) -> Tensor:
    """Sum_ei x_nji u_nei W_jdei, [n j d]."""
    with _weighed(pairs, columns) as weighed:
        return torch.bmm(weighed, weight.flatten(2).mT).transpose(0, 1)


def _by_pair(columns: Tensor, weight: Tensor, centres: Tensor) -> Tensor:
    """Sum_ed u_nei W_jdei y_njd, [n j i]."""
    result = scratch((len(columns), len(weight), columns.shape[2]), columns)
    parent_first = result.transpose(0, 1)
    with _pulled(weight, centres) as pulled:
        torch.mul(pulled[:, :, 0], columns[:, 0], out=parent_first)
        for row in range(1, columns.shape[1]):  # to multiply all and then add up would write much more
            parent_first.addcmul_(pulled[:, :, row], columns[:, row])
    return result


def _by_pose(pairs: Tensor, weight: Tensor, centres: Tensor) -> Tensor:
    """Sum_jd x_nji W_jdei y_njd, [n e i]."""
    result = scratch((len(pairs), *weight.shape[2:]), pairs)
    with _pulled(weight, centres) as pulled:
        torch.mul(pulled[0], pairs[:, 0].unsqueeze(1), out=result)
        for parent in range(1, len(weight)):
            result.addcmul_(pulled[parent], pairs[:, parent].unsqueeze(1))
    return result


def _by_weight(pairs: Tensor, columns: Tensor, centres: Tensor) -> Tensor:
    """Sum_n x_nji u_nei y_njd, [j d e i]."""
    result = scratch((pairs.shape[1], centres.shape[2], *columns.shape[1:]), columns)
    with _weighed(pairs, columns) as weighed:
        torch.bmm(centres.permute(1, 2, 0), weighed, out=result.flatten(2))
    return result


@contextmanager
def _weighed(pairs: Tensor, columns: Tensor) -> Iterator[Tensor]:
    """x_nji u_nei, [j n (e i)]."""
    with borrowed((pairs.shape[1], *columns.shape), columns) as result:
        torch.mul(pairs.transpose(0, 1).unsqueeze(2), columns, out=result)
        yield result.flatten(2)


@contextmanager
def _pulled(weight: Tensor, centres: Tensor) -> Iterator[Tensor]:
    """Sum_d W_jdei y_njd, [j n e i]."""
    parents, _, *pose = weight.shape
    with borrowed((parents, len(centres), *pose), centres) as result:
        torch.bmm(centres.transpose(0, 1), weight.flatten(2), out=result.flatten(2))
        yield result


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pairs: Tensor, columns: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(pairs, columns, weight)
        return _by_parent(pairs, columns, weight)

    @staticmethod
    @without_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        refuse_second_derivatives()
        pairs, columns, weight = ctx.saved_tensors
        needs = ctx.needs_input_grad
        return (
            _by_pair(columns, weight, gradient) if needs[0] else None,
            _by_pose(pairs, weight, gradient) if needs[1] else None,
            _by_weight(pairs, columns, gradient) if needs[2] else None,
        )


class _Agree(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, columns: Tensor, weight: Tensor, centres: Tensor) -> Tensor:
        ctx.save_for_backward(columns, weight, centres)
        return _by_pair(columns, weight, centres)

    @staticmethod
    @without_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        refuse_second_derivatives()
        columns, weight, centres = ctx.saved_tensors
        needs = ctx.needs_input_grad
        return (
            _by_pose(gradient, weight, centres) if needs[0] else None,
            _by_weight(gradient, columns, centres) if needs[1] else None,
            _by_parent(gradient, columns, weight) if needs[2] else None,
        )
