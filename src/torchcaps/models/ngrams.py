"""N-gram capsules: one branch of a text network, and the mask of its n-grams."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchcaps._core.types import Capsules, Step
from torchcaps.layers import ClassCapsules, ConvCapsules1d, DenseCapsules, PrimaryCapsules, RoutedLayer


def ngram_starts(count: int, ngram: int, stride: int, padding: bool) -> Tensor:
    """The position of the first word of each of `count` n-grams; negative if it lies before the text."""
    return torch.arange(count) * stride - (ngram - 1) * padding


def real_ngrams(starts: Tensor, ngram: int, ends: Tensor, padding: bool) -> Tensor:
    """The mask of valid n-grams, [b t]: those within the text; with padding, those that contain a word of it."""
    return starts + (1 if padding else ngram) <= ends.unsqueeze(1)


class Branch(nn.Module):
    """N-grams of one length: convolution, primary capsules, optional convolutional capsules, and class capsules."""

    def __init__(
        self,
        dim: int,
        parents: int,
        ngram: int,
        *,
        filters: int,
        capsules: int,
        capsule_dim: int,
        window_capsules: int,
        window: int,
        stride: int,
        padding: bool,
        squash: str,
        votes: str,
        options: dict[str, Any],
    ) -> None:
        super().__init__()
        self.ngram = ngram
        self.stride = stride
        self.padding = padding
        self.convolution = nn.Conv1d(dim, filters, ngram, stride, padding=ngram - 1 if padding else 0)
        self.primary = PrimaryCapsules(filters, capsules, capsule_dim, squash=squash, dimensions=1)
        children = window_capsules if window else capsules
        layers: list[RoutedLayer] = []
        if window:
            sizes = (capsules, window_capsules, capsule_dim, capsule_dim, window)
            layers.append(ConvCapsules1d(*sizes, competition="window", votes=votes, **options))
        if votes == "shared":
            last = (None, parents, capsule_dim, capsule_dim)
            layers.append(DenseCapsules(*last, votes=votes, expected_children=20 * children, **options))
        else:  # one matrix for each type of child, the same at every position, for texts of any length
            options = {**options, "expected_children": 20 * children, "coordinates": None, "dimensions": 1}
            layers.append(ClassCapsules(children, parents, capsule_dim, capsule_dim, votes=votes, **options))
        self.layers = nn.ModuleList(layers)

    @property
    def routed_layers(self) -> list[RoutedLayer]:
        return [layer for layer in self.layers if isinstance(layer, RoutedLayer)]

    def starts(self, count: int) -> Tensor:
        """The first word of each of the first `count` n-grams."""
        return ngram_starts(count, self.ngram, self.stride, self.padding)

    def children_of(self, vectors: Tensor, ends: Tensor) -> Capsules:
        """The primary capsules of each n-gram, [b t i e]; those of padding are masked."""
        poses, activations, _ = self.primary(torch.relu(self.convolution(vectors)))
        real = real_ngrams(self.starts(poses.shape[1]).to(ends.device), self.ngram, ends, self.padding)
        return Capsules(poses, activations, real.unsqueeze(-1).expand(activations.shape))

    def forward(self, vectors: Tensor, ends: Tensor) -> Capsules:
        capsules = self.children_of(vectors, ends)
        for layer in self.routed_layers:
            capsules = layer(capsules.flatten() if isinstance(layer, DenseCapsules) else capsules)
        return capsules

    def trace(self, vectors: Tensor, ends: Tensor) -> list[list[Step]]:
        capsules = self.children_of(vectors, ends)
        traces = []
        for layer in self.routed_layers:
            capsules = capsules.flatten() if isinstance(layer, DenseCapsules) else capsules
            traces.append(layer.trace(capsules))
            capsules = layer(capsules)
        return traces
