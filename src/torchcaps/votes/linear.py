"""Votes that are products with matrices: what a transform says, and a backend takes it at its word."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.votes.layout import child_first


class Linear(NamedTuple):
    """Votes as products of poses with matrices, for backends that need not make them.

    matrices [i j k c], by which each row of k numbers of a pose becomes one of c of a vote, or [j e d], one for each
    parent. bias: is their last row added as it is? before [i e d]: what a child's pose is multiplied with before.
    """

    matrices: Tensor
    bias: bool = False
    before: Tensor | None = None

    @property
    def pairwise(self) -> bool:
        """Is there a matrix for each pair, or one for each parent?"""
        return self.matrices.ndim == 4

    @property
    def weights(self) -> tuple[Tensor, ...]:
        return (self.matrices,) if self.before is None else (self.matrices, self.before)

    @staticmethod
    def poses(poses: Tensor, *before: Tensor) -> Tensor:
        """Poses [*b i e] as the matrices want them, but for the bias. Places may share the matrices of children."""
        if not before:
            return poses
        each = before[0].repeat(poses.shape[-2] // len(before[0]), 1, 1)
        inner = torch.bmm(child_first(poses), each).transpose(0, 1)  # [n i d]
        return inner.reshape(*poses.shape[:-1], -1)
