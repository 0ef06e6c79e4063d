"""The backends `lazy` and `lazy, by pairs`: votes are never computed.

A routing that needs only weighted sums of votes and inner products with them does not need the votes. With one matrix
for each parent, Sum_i x_ij W_j u_i = W_j Sum_i x_ij u_i and <W_j u_i, y_j> = <u_i, W_j^T y_j>: the
products of a whole routing cost less than the votes alone. With a matrix for each pair, both are products of matrices
whose common axis is long, Sum_(i e) (x_ij u_ie) W_(ie)j, where votes would be many products of tiny matrices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.functional import pad

from torchcaps.votes.algebra import Votes
from torchcaps.votes.buffers import borrowed, scratch
from torchcaps.votes.engine import Plan, Refusal, plan_of_votes
from torchcaps.votes.gradients import MergedFactors
from torchcaps.votes.job import Job, Part
from torchcaps.votes.layout import mass_of
from torchcaps.votes.products import Products, Sums


class LazyProducts(Products):
    """Sums and inner products only, without squares."""

    squares = False

    def __init__(self, poses: Tensor, weight: Tensor, parents: int, dim: int) -> None:
        self.shape = torch.Size((*poses.shape[:-1], parents, dim))
        self.dtype, self.device = poses.dtype, poses.device
        self.sources = (poses, weight)

    def sums(
        self, pairs: Tensor, place: Tensor | None, masses: bool = False, first: bool = False, second: bool = False
    ) -> Sums:
        assert not second
        mass = mass_of(pairs) if masses or place is not None else None
        total = self._sums(pairs) if first else None
        if total is not None and place is not None and mass is not None:
            total = torch.addcmul(total, place, mass.unsqueeze(-1), value=-1)
        return Sums(mass if masses else None, total)

    def inner(
        self, linear: Tensor | None, squared: Tensor | None, offset: Tensor | None, place: Tensor | None
    ) -> Tensor:
        assert linear is not None
        assert squared is None
        if place is not None:
            along = (linear * place).sum(-1)
            offset = -along if offset is None else offset - along
        found = self._inner(linear)
        return found if offset is None else found + offset.unsqueeze(-2)

    def _sums(self, pairs: Tensor) -> Tensor:
        raise NotImplementedError

    def _inner(self, centers: Tensor) -> Tensor:
        raise NotImplementedError


class SharedProducts(LazyProducts):
    """u_j|i = W_j u_i, weight [j e d]."""

    def __init__(self, poses: Tensor, weight: Tensor) -> None:
        super().__init__(poses, weight, weight.shape[0], weight.shape[2])
        self._poses, self._weight = poses.detach(), weight.detach()

    def _sums(self, pairs: Tensor) -> Tensor:
        if pairs.stride(-1) == 0:  # the same for all parents: one sum of poses
            once = pairs[..., :1].mT @ self._poses  # [*b 1 e]
            sums = once @ self._weight.transpose(0, 1).flatten(1)
            return sums.view(*self.shape[:-3], *self.shape[-2:])
        return _each_parent(pairs.mT @ self._poses, self._weight)

    def _inner(self, centers: Tensor) -> Tensor:
        return (_each_parent(centers, self._weight.mT) @ self._poses.mT).mT

    def gradients(self, given: MergedFactors) -> tuple[Tensor | None, ...]:
        zero = self._poses.new_zeros(*self.shape[:-3], *self.shape[-2:])
        factors = [sum(several, zero) for several in given.plain]
        pairs = torch.cat(given.pairs, -1)  # [*b i (t j)]
        pulled = torch.cat([_each_parent(each, self._weight.mT) for each in factors], -2)  # [*b (t j) e]
        for_poses = pairs @ pulled
        sums = (pairs.mT @ self._poses).unflatten(-2, (len(factors), -1))  # [*b t j e]
        rows = sums.movedim(-2, 0).reshape(len(self._weight), -1, sums.shape[-1])  # [j (b t) e]
        beside = torch.stack(factors, -3).movedim(-2, 0).reshape(len(self._weight), -1, self.shape[-1])
        return for_poses, torch.bmm(rows.mT, beside)


def _each_parent(vectors: Tensor, weight: Tensor) -> Tensor:
    """Vectors [*b j e] times a matrix for each parent [j e d], [*b j d]."""
    rows = vectors.flatten(0, -3) if vectors.ndim > 2 else vectors.unsqueeze(0)
    product = torch.bmm(rows.transpose(0, 1), weight).transpose(0, 1)
    return product.reshape(*vectors.shape[:-1], weight.shape[2])


class FullProducts(LazyProducts):
    """u_j|i = W_ij u_i, weight [j d e i]."""

    def __init__(self, poses: Tensor, weight: Tensor) -> None:
        super().__init__(poses, weight, weight.shape[0], weight.shape[1])
        self._weight = weight.detach()
        columns = poses.detach().mT
        self._columns = columns.reshape(-1, *columns.shape[-2:]).contiguous()  # [n e i]

    def _sums(self, pairs: Tensor) -> Tensor:
        if pairs.numel() and not any(pairs.stride()):  # one number for all: one product for all parents
            everything = self._columns.flatten(1) @ self._weight.flatten(2).flatten(0, 1).mT
            return pairs.flatten()[0] * everything.view(*self.shape[:-3], *self.shape[-2:])
        return self._outside(_by_parent(_rows(pairs.mT), self._columns, self._weight))

    def _inner(self, centers: Tensor) -> Tensor:
        return self._outside(_by_pair(self._columns, self._weight, _rows(centers))).mT

    def _outside(self, values: Tensor) -> Tensor:
        return values.reshape(*self.shape[:-3], *values.shape[-2:])

    def gradients(self, given: MergedFactors) -> tuple[Tensor | None, ...]:
        for_columns: Tensor | None = None
        for_weight: Tensor | None = None
        for pairs, several in zip(given.pairs, given.plain, strict=True):
            rows, centers = _rows(pairs.mT), _rows(sum(several[1:], several[0]))
            more = _by_pose(rows, self._weight, centers)
            for_columns = more if for_columns is None else for_columns.add_(more)
            more = _by_weight(rows, self._columns, centers)
            for_weight = more if for_weight is None else for_weight.add_(more)
        assert for_columns is not None
        return self._outside(for_columns).mT, for_weight


def _rows(values: Tensor) -> Tensor:
    return values.flatten(0, -3) if values.ndim > 2 else values.unsqueeze(0)


# Products and their gradients are the four derivatives of Sum x_nji u_nei W_jdei y_njd.


def _by_parent(pairs: Tensor, columns: Tensor, weight: Tensor) -> Tensor:
    """Sum_ei x_nji u_nei W_jdei, [n j d]."""
    with _weighed(pairs, columns) as weighed:
        return torch.bmm(weighed, weight.flatten(2).mT).transpose(0, 1)


def _by_pair(columns: Tensor, weight: Tensor, centers: Tensor) -> Tensor:
    """Sum_ed u_nei W_jdei y_njd, [n j i]."""
    result = scratch((len(columns), len(weight), columns.shape[2]), columns)
    parent_first = result.transpose(0, 1)
    with _pulled(weight, centers) as pulled:
        torch.mul(pulled[:, :, 0], columns[:, 0], out=parent_first)
        for row in range(1, columns.shape[1]):  # multiplying all before adding would write much more
            parent_first.addcmul_(pulled[:, :, row], columns[:, row])
    return result


def _by_pose(pairs: Tensor, weight: Tensor, centers: Tensor) -> Tensor:
    """Sum_jd x_nji W_jdei y_njd, [n e i]."""
    result = scratch((len(pairs), *weight.shape[2:]), pairs)
    with _pulled(weight, centers) as pulled:
        torch.mul(pulled[0], pairs[:, 0].unsqueeze(1), out=result)
        for parent in range(1, len(weight)):
            result.addcmul_(pulled[parent], pairs[:, parent].unsqueeze(1))
    return result


def _by_weight(pairs: Tensor, columns: Tensor, centers: Tensor) -> Tensor:
    """Sum_n x_nji u_nei y_njd, [j d e i]."""
    result = scratch((pairs.shape[1], centers.shape[2], *columns.shape[1:]), columns)
    with _weighed(pairs, columns) as weighed:
        torch.bmm(centers.permute(1, 2, 0), weighed, out=result.flatten(2))
    return result


@contextmanager
def _weighed(pairs: Tensor, columns: Tensor) -> Iterator[Tensor]:
    """x_nji u_nei, [j n (e i)]."""
    with borrowed((pairs.shape[1], *columns.shape), columns) as result:
        torch.mul(pairs.transpose(0, 1).unsqueeze(2), columns, out=result)
        yield result.flatten(2)


@contextmanager
def _pulled(weight: Tensor, centers: Tensor) -> Iterator[Tensor]:
    """Sum_d W_jdei y_njd, [j n e i]."""
    parents, _, *pose = weight.shape
    with borrowed((parents, len(centers), *pose), centers) as result:
        torch.bmm(centers.transpose(0, 1), weight.flatten(2), out=result.flatten(2))
        yield result


class Lazy:
    """Votes that are never computed. pairwise: for one matrix for each pair (True), or for each parent (False)."""

    def __init__(self, name: str, pairwise: bool) -> None:
        self.name = name
        self.pairwise = pairwise

    def plan(self, job: Job) -> Plan | Refusal:
        found = job.linear()
        if isinstance(found, str):
            return Refusal(found)
        if job.wants != "sums":
            return Refusal(f"the routing asks for {job.wants}")
        if job.gathered.offsets is not None:
            return Refusal("votes have coordinates")
        if found.pairwise != self.pairwise:
            return Refusal("there is a matrix for each " + ("parent" if self.pairwise else "pair"))
        if self.pairwise and (job.gathered.shared or job.transform.in_dim + found.bias != found.matrices.shape[2]):
            return Refusal("matrices are shared by places" if job.gathered.shared else "poses are matrices")
        if self.pairwise and job.learning and not job.last:
            return Refusal("with gradients through all iterations, dense votes are faster")
        products = FullProducts if self.pairwise else SharedProducts
        matrices = found.matrices.permute(1, 3, 2, 0).contiguous() if self.pairwise else found.matrices  # [j d e i]

        def make(part: Part, given: tuple[Tensor, ...]) -> Votes:
            poses = found.poses(part.poses, *given[1:])
            return Votes(products(pad(poses, (0, 1), value=1) if found.bias else poses, given[0]))

        weights = (matrices, *found.weights[1:])
        return plan_of_votes(self.name, job, weights, job.transform.in_dim if self.pairwise else 1, make)
