"""Votes of matrices that children share, in blocks of examples: never made, as in `lazy`, and read by `shared.h`."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from torchcaps.votes.gradients import MergedFactors
from torchcaps.votes.lazy import LazyProducts
from torchcaps.votes.native.blocks import call, innermost, outermost
from torchcaps.votes.native.products import BlockProducts


class SharedInBlocks(BlockProducts, LazyProducts):
    """u_j|i = W_j u_i, for poses [block lane i e] and weight [j e d]."""

    def __init__(self, library: ctypes.CDLL, poses: Tensor, weight: Tensor) -> None:
        super().__init__(poses, weight, weight.shape[0], weight.shape[2])
        self.library = library
        self._poses = innermost(poses.detach())  # [block i e lane]
        self._weight = weight.detach()

    def _sums(self, pairs: Tensor) -> Tensor:
        return outermost(torch.matmul(self._weight.mT, self._gathered(self._once(pairs))))

    def _inner(self, centers: Tensor) -> Tensor:
        pulled = torch.matmul(self._weight, self._laid(centers))  # [block j e lane]
        return outermost(self._product(self._poses, pulled.transpose(1, 2)))

    def gradients(self, given: MergedFactors) -> tuple[Tensor | None, ...]:
        for_poses: Tensor | None = None
        for_weight: Tensor | None = None
        for each, several in zip(given.pairs, given.plain, strict=True):
            pairs, factors = (
                self._once(each),
                self._laid(sum(several[1:], several[0])),
            )  # [block i j lane], [block j d lane]
            pulled = torch.matmul(self._weight, factors)
            if pairs.shape[2] == 1:  # the same for all parents
                pulled = pulled.sum(1, keepdim=True)
            for_poses = self._product(pairs, pulled, for_poses)
            sums = self._gathered(pairs).expand(-1, len(self._weight), -1, -1)  # [block j e lane]
            more = torch.bmm(_rows(sums), _rows(factors).mT)
            for_weight = more if for_weight is None else for_weight.add_(more)
        assert for_poses is not None
        return outermost(for_poses), for_weight

    def _once(self, pairs: Tensor) -> Tensor:
        """A number for each pair [block i j lane], or [block i 1 lane] where it is the same for all parents."""
        return self._laid(pairs[..., :1] if pairs.stride(-1) == 0 else pairs)

    def _gathered(self, pairs: Tensor) -> Tensor:
        """Sum_i x_ij u_i, [block j e lane]."""
        return self._product(pairs.transpose(1, 2), self._poses)

    def _product(self, left: Tensor, right: Tensor, onto: Tensor | None = None) -> Tensor:
        """Products [block m n lane] of matrices [block m k lane] and [block k n lane]; onto: added to these."""
        blocks, rows, length, lanes = left.shape
        columns = right.shape[2]
        result = left.new_empty(blocks, rows, columns, lanes) if onto is None else onto
        given = (left, *left.stride()[:3], right, *right.stride()[:3])
        call(self.library.product, blocks, rows, columns, length, *given, onto is not None, result)
        return result


def _rows(values: Tensor) -> Tensor:
    """Values [block j e lane] of all examples, [j e (block lane)]."""
    return values.permute(1, 2, 0, 3).flatten(2)
