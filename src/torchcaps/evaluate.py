"""How well a model does: accuracy with its interval, the confusion of classes, and how well reconstructions fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from torchcaps.data import Batch, Images
from torchcaps.models import ImageModel
from torchcaps.types import Capsules


def top_classes(activations: Float[Tensor, "b y"], count: int = 1) -> Int[Tensor, "b n"]:
    """The most active classes of each image, the most active first."""
    return activations.topk(count, dim=-1).indices


def hits(activations: Float[Tensor, "b y"], labels: Tensor) -> Bool[Tensor, " b"]:
    """Whether the most active classes are exactly the labels: [b], or [b n] in any order for n things in one image."""
    labels = labels.unsqueeze(-1) if labels.ndim == 1 else labels
    predicted = top_classes(activations, labels.shape[-1])
    return (predicted.sort().values == labels.sort().values).all(-1)


def wilson_interval(successes: int, count: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % interval of a rate of which `successes` in `count` were seen (Wilson 1927)."""
    if count == 0:
        return 0.0, 1.0
    rate = successes / count
    centre = rate + z * z / (2 * count)
    half = z * math.sqrt(rate * (1 - rate) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


@dataclass(frozen=True)
class Evaluation:
    """Answers to every image of a part: labels and predictions [n m] for m things in each, and activations [n y].

    misfit: the mean squared error of the reconstruction drawn from the prediction, [n]; None without a decoder.
    """

    classes: tuple[str, ...]
    labels: Tensor
    activations: Tensor
    misfit: Tensor | None

    @cached_property
    def predictions(self) -> Tensor:
        return top_classes(self.activations, self.labels.shape[-1])

    @cached_property
    def right(self) -> Tensor:
        """[n], whether all the classes were found and no other."""
        return hits(self.activations, self.labels)

    @property
    def count(self) -> int:
        return len(self.labels)

    @property
    def errors(self) -> int:
        return self.count - int(self.right.sum())

    @property
    def accuracy(self) -> float:
        return 1 - self.errors / self.count

    @property
    def error_interval(self) -> tuple[float, float]:
        return wilson_interval(self.errors, self.count)

    @cached_property
    def confusion(self) -> Tensor:
        """[y y], how often a label (row) was answered with a class (column); for one thing in each image."""
        size = len(self.classes)
        pairs = self.labels[:, 0] * size + self.predictions[:, 0]
        return torch.bincount(pairs, minlength=size * size).view(size, size)

    def per_class(self) -> list[tuple[str, int, float, float]]:
        """For each class its name, number of images, recall and precision (not a number where there are none)."""
        size = len(self.classes)
        shown = torch.zeros(self.count, size, dtype=torch.bool).scatter_(1, self.labels, True)
        said = torch.zeros(self.count, size, dtype=torch.bool).scatter_(1, self.predictions, True)
        both = (shown & said).sum(0).double()
        recall, precision = both / shown.sum(0), both / said.sum(0)
        rows = zip(self.classes, shown.sum(0).tolist(), recall.tolist(), precision.tolist(), strict=True)
        return list(rows)


def misfits(model: ImageModel, batch: Batch, capsules: Capsules) -> Tensor | None:
    """The mean squared error of each image's reconstruction from the predicted classes, [b]."""
    if model.decoder is None:
        return None
    count = 1 if batch.labels.ndim == 1 else batch.labels.shape[-1]
    drawn = model.reconstruct(capsules, top=count)
    return (drawn.sum(1).clamp(max=1) - batch.images).square().flatten(1).mean(-1)


def batches(data: Images, size: int) -> Iterator[Batch]:
    for rows in torch.arange(len(data)).split(size):
        yield data.batch(rows)


@torch.no_grad()
def evaluate(model: ImageModel, data: Images, *, batch_size: int = 64) -> Evaluation:
    """The model's answers to every image, in evaluation mode, on the device where its weights are."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    labels, activations, misfit = [], [], []
    for batch in batches(data, batch_size):
        moved = batch._replace(images=batch.images.to(device))
        capsules = model(moved.images)
        labels.append(batch.labels.view(len(batch.labels), -1))
        activations.append(capsules.activations.float().cpu())
        errors = misfits(model, moved, capsules)
        if errors is not None:
            misfit.append(errors.float().cpu())
    model.train(was_training)
    return Evaluation(data.classes, torch.cat(labels), torch.cat(activations), torch.cat(misfit) if misfit else None)
