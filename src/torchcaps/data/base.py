"""Labeled images (texts are in `texts`), and stratified splits of labeled data."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from torchcaps._core.errors import input_error, shape_text
from torchcaps.data.disk_store import Names, Records, Stack, pick
from torchcaps.data.pictures import Fit, Size, resize_images, sides

Data = TypeVar("Data", bound="Labeled")


class Batch(NamedTuple):
    """Inputs of a network and their labels.

    inputs: images [b c h w] from 0 to 1, or token indices [b t]. labels: class indices [b], [b n] if each image shows n
    objects, or truth values [b y] if any number of classes may be true. parts: for images of several objects, each
    object alone, [b n c h w], in the order of the labels.
    """

    inputs: Tensor
    labels: Tensor
    parts: Tensor | None = None


class Examples(Protocol):
    """The protocol of data sets for training and evaluation, such as `ImageSet`, or sets generated on the fly."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        ...

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor) -> Batch:
        """The examples with these indices [b]."""
        ...


class Labeled:
    """Base class of labeled data: labels [n] or truth values [n y], class names, and a name for each example.

    kind: "images", "texts", or "arrays" for any other inputs.
    """

    labels: Tensor
    classes: tuple[str, ...]
    names: Names
    labels_per_image = 1
    kind = "images"

    def take(self: Data, indices: Tensor) -> Data:
        """The examples with these indices, in this order; indices may be a boolean mask."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """A checksum of the content, the labels and their order."""
        return f"{zlib.crc32(self.labels.numpy().tobytes(), self.content_sum()):08x}"

    def content_sum(self) -> int:
        """A checksum of the content and its order."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.labels)

    def counts(self) -> dict[str, int]:
        """The number of examples of each class."""
        many = self.labels.ndim == 2
        counts = self.labels.sum(0) if many else torch.bincount(self.labels, minlength=len(self.classes))
        return dict(zip(self.classes, counts.tolist(), strict=True))


@dataclass(frozen=True)
class ImageSet(Labeled):
    """Labeled images.

    images: [n c h w] of torch.uint8; a `Stack` if they are on disk. labels: class indices [n]. classes: their names.
    views: further attributes of each image, [n] each: instance, elevation and azimuth (in degrees), lighting. names: a
    name for each image, such as its file; default: its row.
    """

    images: Tensor | Stack
    labels: Tensor
    classes: tuple[str, ...]
    views: dict[str, Tensor] = field(default_factory=dict)
    names: Names = ()

    def __post_init__(self) -> None:
        if not self.names:
            object.__setattr__(self, "names", tuple(map(str, range(len(self.images)))))
        if self.images.ndim != 4 or self.images.dtype != torch.uint8:
            got = f"{shape_text(self.images.shape)} of {self.images.dtype}"
            raise input_error("ImageSet", "images [n c h w] of bytes", got, "Convert them to torch.uint8.")
        for name, values in {"labels": self.labels, **self.views}.items():
            if values.shape != self.images.shape[:1]:
                expected = f"{name} [n] = ({len(self.images)})"
                raise input_error("ImageSet", expected, shape_text(values.shape), "Give one for each image.")
        if len(self.names) != len(self.images):
            raise input_error("ImageSet", f"{len(self.images)} names", len(self.names), "Give one for each image.")
        if len(self.labels) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.classes):
            got = f"{int(self.labels.min())} to {int(self.labels.max())}"
            raise input_error("ImageSet", f"labels from 0 to {len(self.classes) - 1}", got, "Name every class.")

    def content_sum(self) -> int:
        result = 0
        for chunk in self.images.split(32):
            result = zlib.crc32(chunk.numpy().tobytes(), result)
        return result

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def batch(self, indices: Tensor) -> Batch:
        """The images with these indices [b], from 0 to 1, and their labels."""
        return Batch(self.images[indices].float() / 255, self.labels[indices])

    def take(self, indices: Tensor) -> ImageSet:
        if indices.dtype == torch.bool:
            indices = indices.nonzero().squeeze(-1)
        views = {name: values[indices] for name, values in self.views.items()}
        images = self.images.pick(indices) if isinstance(self.images, Stack) else self.images[indices]
        return ImageSet(images, self.labels[indices], self.classes, views, pick(self.names, indices))

    def resize(self, size: Size, fit: Fit = "stretch") -> ImageSet:
        """Resize the images to this side, or (height, width), with antialiasing. fit: see `read_picture`."""
        size = sides(size)
        if size == self.image_shape[1:]:
            return self
        records = Records("resize")
        for chunk in self.images.split(32):
            for image in resize_images(chunk, size, fit):
                records.append(image.numpy().tobytes())
        return replace(self, images=Stack(records, (self.image_shape[0], *size)).held())


class Splits(NamedTuple):
    """Disjoint parts of a data set, each an `ImageSet`, a `TextSet`, or another set of `Examples`.

    train: to learn from. validation: to choose the best epoch and options. test: for the final evaluation. novel: for
    data split by viewpoint, test images from viewpoints that the other parts do not have; otherwise None.
    """

    train: Any
    validation: Any
    test: Any
    novel: Any = None


def stratified_order(labels: Tensor, seed: int = 0) -> Tensor:
    """A random permutation in which every contiguous range has the classes in proportion, up to one example.

    labels: class indices [n], or truth values [n y], of which every combination counts as a class. seed: of the order.
    """
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    if labels.ndim == 2:  # truth values: every combination is a class
        labels = labels.unique(dim=0, return_inverse=True)[1]
    places = torch.empty(len(labels), dtype=torch.float64)
    for label in labels.unique():
        members = shuffled[labels[shuffled] == label]
        places[members] = (torch.arange(len(members), dtype=torch.float64) + 0.5) / len(members)
    return shuffled[places[shuffled].argsort(stable=True)]


def split(data: Data, sizes: Sequence[int], seed: int = 0) -> list[Data]:
    """Split data into disjoint stratified parts of these sizes, the same for the same seed.

    data: an `ImageSet`, a `TextSet` or an `ArraySet`. sizes: the number of examples of each part; together at most all.
    """
    if min(sizes) < 0 or sum(sizes) > len(data):
        got = f"{list(sizes)}, {sum(sizes)} together"
        raise input_error("split", f"sizes that sum to at most {len(data)}", got, "Ask for fewer.")
    order = stratified_order(data.labels, seed)
    ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
    return [data.take(order[start:end]) for start, end in pairwise(ends)]


def hold_out(data: Data, size: int, test: Data, seed: int = 0) -> Splits:
    """The parts of data that come with a test set: hold `size` examples out for validation, stratified.

    data: the training data. test: the test set. seed: of the split.
    """
    train, validation = split(data, [len(data) - size, size], seed)
    return Splits(train, validation, test)


def in_classes(owner: str, data: Data, classes: tuple[str, ...]) -> Data:
    """The same data with labels for these classes.

    owner: named in error messages. data: its classes that have examples must be among `classes`.
    """
    if data.classes == classes:
        return data
    unknown = [name for name, count in data.counts().items() if count and name not in classes]
    if unknown:
        expected = f"classes among {', '.join(classes)}"
        raise input_error(owner, expected, ", ".join(unknown), "Rename them, or leave them out.")
    places = torch.tensor([classes.index(name) if name in classes else -1 for name in data.classes])
    if data.labels.ndim == 2:
        labels = torch.zeros(len(data), len(classes), dtype=torch.bool)
        labels[:, places[places >= 0]] = data.labels[:, places >= 0]
    else:
        labels = places[data.labels]
    return replace(data, labels=labels, classes=classes)  # type: ignore[type-var]


def three_way(data: Labeled, validation: float = 0.1, test: float = 0.2, seed: int = 0) -> Splits:
    """Split data that come in one piece into training, validation and test parts, stratified.

    validation, test: the fractions of these parts. seed: of the split. There must be at least two classes, each with
    examples in the training part.
    """
    present = [name for name, count in data.counts().items() if count]
    if len(present) < 2:
        got = ", ".join(present) or "none"
        raise input_error("data", "at least two classes with examples", got, "Add another class.")
    held_out = [max(1, round(share * len(data))) if share else 0 for share in (validation, test)]
    if len(data) - sum(held_out) < len(present):
        got = f"{len(data)} of {len(present)} classes"
        raise input_error("data", "enough examples to train, validate and test", got, "Add some, or hold out fewer.")
    parts = Splits(*split(data, [len(data) - sum(held_out), *held_out], seed))
    missing = [name for name in present if parts.train.counts()[name] == 0]
    if missing:
        raise input_error(
            "data", "every class in the training part", f"none of {', '.join(missing)}", "Add examples of it."
        )
    return parts
