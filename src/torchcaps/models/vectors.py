"""Capsules for plain vectors: a learned linear map makes the first capsules, and one routed layer the classes."""

from __future__ import annotations

from typing import Any

from torch import nn

from torchcaps._core.errors import check_count
from torchcaps.layers import DenseCapsules, PrimaryCapsules
from torchcaps.models.base import CapsuleModel


class VectorCapsules(CapsuleModel):
    """Vectors [b c 1 1], images of one pixel with a channel for each number, to class capsules of 16 numbers.

    capsules, capsule_dim: how many primary capsules there are, and of how many numbers. routing and further arguments
    are those of the class layer.
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
