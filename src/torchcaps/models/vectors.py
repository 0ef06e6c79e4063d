"""Capsules for feature vectors: a learned linear map to primary capsules, and one routed layer to the classes."""

from __future__ import annotations

from typing import Any

from torch import nn

from torchcaps._core.errors import check_count
from torchcaps.layers import DenseCapsules, PrimaryCapsules
from torchcaps.models.base import CapsuleModel


class VectorCapsules(CapsuleModel):
    """Feature vectors, as images of one pixel [b c 1 1], to class capsules with poses of size 16.

    features: the size of the vectors. classes: the number of classes. capsules, capsule_dim: the number of primary
    capsules and their pose size. routing and further arguments: those of the class layer (`DenseCapsules`).
    """

    def __init__(
        self,
        features: int,
        classes: int,
        *,
        capsules: int = 16,
        capsule_dim: int = 8,
        routing: str = "attention",
        **options: Any,
    ) -> None:
        for word, size in (("features", features), ("capsules", capsules), ("capsule_dim", capsule_dim)):
            check_count("VectorCapsules", word, size)
        super().__init__(
            (features, 1, 1),
            classes,
            nn.Identity(),
            PrimaryCapsules(features, capsules, capsule_dim, squash="exponential"),
            [DenseCapsules(capsules, classes, capsule_dim, 16, routing=routing, **options)],
        )
