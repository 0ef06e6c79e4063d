"""The matrices of a linear vote transform, declared by the transform and used by backends."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.votes.layout import child_first


class Linear(NamedTuple):
    """Votes as products of poses with matrices, for backends that do not store votes.

    matrices: [i j k c], which map each row of k numbers of a pose to a row of c numbers of a vote, or [j e d], one for
    each parent. bias: the last row of each matrix is a bias. before: [i e d], matrices that are applied to poses first.
    """

    matrices: Tensor
    bias: bool = False
    before: Tensor | None = None

    @property
    def pairwise(self) -> bool:
        """True: one matrix for each pair; False: one for each parent."""
        return self.matrices.ndim == 4

    @property
    def weights(self) -> tuple[Tensor, ...]:
        return (self.matrices,) if self.before is None else (self.matrices, self.before)

    @staticmethod
    def poses(poses: Tensor, *before: Tensor) -> Tensor:
        """Poses [*b i e] after `before`, without the bias. Positions may share the matrices of children."""
        if not before:
            return poses
        each = before[0].repeat(poses.shape[-2] // len(before[0]), 1, 1)
        inner = torch.bmm(child_first(poses), each).transpose(0, 1)  # [n i d]
        return inner.reshape(*poses.shape[:-1], -1)
