"""Images in memory as a data set, so that changed images can be evaluated like the original ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from torchcaps._core.errors import check_count, input_error
from torchcaps.data import Batch, Examples
from torchcaps.models import ImageModel


@dataclass(frozen=True)
class InMemoryImages:
    """Images [n c h w] from 0 to 1, labels [n], or [n m] for m objects in each image, and class names."""

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor) -> Batch:
        return Batch(self.images[indices], self.labels[indices])

    def take(self, rows: Tensor) -> InMemoryImages:
        return InMemoryImages(self.images[rows], self.labels[rows], self.classes)


def some(data: Examples, count: int, seed: int = 0) -> InMemoryImages:
    """So many random examples of a data set; all of them if it has no more."""
    check_count("some", "count", count)
    rows = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))[:count]
    batch = data.batch(rows)
    return InMemoryImages(batch.inputs, batch.labels, data.classes)


def varied(data: InMemoryImages, count: int) -> Tensor:
    """The rows of so many examples, taking the classes (of the first object in each) in turn."""
    labels = data.labels.view(len(data), -1)[:, :1]
    turns = one_hot(labels[:, 0], len(data.classes)).cumsum(0).gather(1, labels)[:, 0]
    return turns.argsort(stable=True)[:count]


def check_images(owner: str, model: object, images: Tensor) -> None:
    """Raise an `InputError` for networks that read texts, and for images with values outside 0 to 1."""
    if not isinstance(model, ImageModel):
        got = f"a {type(model).__name__}"
        raise input_error(owner, "a network that reads images", got, "Texts have no pixels to change.")
    model.check_images(images)
    if images.numel() and not (float(images.min()) >= 0 and float(images.max()) <= 1):
        got = f"{float(images.min()):g} to {float(images.max()):g}"
        raise input_error(owner, "images from 0 to 1", got, "Scale them, bytes as images / 255.")
