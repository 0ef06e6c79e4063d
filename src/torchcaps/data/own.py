"""Data in Python: arrays and tensors with labels, or any torch Dataset."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, default_collate

from torchcaps._core.errors import input_error, shape_text
from torchcaps.data.base import Batch, Examples, ImageSet, Labeled, in_classes, split
from torchcaps.data.disk_store import Names, pick


@dataclass(frozen=True)
class ArraySet(Labeled):
    """Labeled inputs in memory, which are passed to networks unchanged.

    inputs: [n ...]. labels: class indices [n], or truth values [n y]. classes: their names. names: a name for each
    example; default: its row.
    """

    inputs: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    names: Names = ()
    kind = "arrays"

    def __post_init__(self) -> None:
        if not self.names:
            object.__setattr__(self, "names", tuple(map(str, range(len(self.inputs)))))

    def content_sum(self) -> int:
        result = 0
        for chunk in self.inputs.split(1024):
            result = zlib.crc32(chunk.contiguous().numpy().tobytes(), result)
        return result

    def batch(self, indices: Tensor) -> Batch:
        """The inputs with these indices [b], and their labels."""
        return Batch(self.inputs[indices], self.labels[indices])

    def take(self, indices: Tensor) -> ArraySet:
        if indices.dtype == torch.bool:
            indices = indices.nonzero().squeeze(-1)
        return ArraySet(self.inputs[indices], self.labels[indices], self.classes, pick(self.names, indices))


class DatasetExamples:
    """A torch Dataset as `Examples`, whose items are fetched when a batch is requested.

    dataset: of pairs (input, label). classes: the names of the classes. places: if the Dataset numbers its classes
    otherwise, the index of each in `classes`.
    """

    kind = "arrays"
    labels_per_image = 1

    def __init__(self, dataset: Any, classes: tuple[str, ...], places: tuple[int, ...] | None = None) -> None:
        self.dataset, self.classes, self.places = dataset, classes, places

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(self, indices: Tensor, draw: int = 0) -> Batch:
        """The examples with these indices, stacked by torch's default_collate.

        What the Dataset draws from the generators of torch, numpy and Python follows from the indices and `draw`.
        """
        owner, rows = _owner(self.dataset), indices.tolist()
        fetch = getattr(self.dataset, "__getitems__", None)
        with _drawn_from(zlib.crc32(repr((rows, draw)).encode())):
            found = fetch(rows) if callable(fetch) else [self.dataset[row] for row in rows]
        first = found[0]
        if not isinstance(first, tuple | list) or len(first) != 2:
            got = f"{len(first)} things" if isinstance(first, tuple | list) else f"a {type(first).__name__}"
            raise input_error(owner, "pairs (input, label)", got, "Return both, and no more.")
        try:
            inputs, labels = default_collate([tuple(each) for each in found])
        except (TypeError, RuntimeError) as error:
            remedy = "Make them tensors of one shape in the Dataset."
            raise input_error(owner, "inputs that can be stacked", error, remedy) from None
        return Batch(as_inputs(owner, inputs), self._numbers(owner, labels))

    def _numbers(self, owner: str, labels: Any) -> Tensor:
        """Labels as they are numbered in `classes`; names are looked up."""
        if isinstance(labels, list | tuple) and all(isinstance(each, str) for each in labels):
            strange = next((each for each in labels if each not in self.classes), None)
            if strange is not None:
                known = ", ".join(self.classes) or "classes of the Dataset, of which there are none"
                raise input_error(owner, f"labels among {known}", strange, "Name every class.")
            return torch.tensor([self.classes.index(each) for each in labels])
        if not isinstance(labels, Tensor):
            raise input_error(owner, "labels as numbers or names", f"a {type(labels).__name__}", "Convert them.")
        if self.places is None:
            return labels
        places = torch.tensor(self.places)
        if labels.dtype == torch.bool:
            return labels.new_zeros(len(labels), len(self.classes)).index_copy(1, places, labels)
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= len(places):
            raise input_error(owner, f"labels from 0 to {len(places) - 1}", f"{low} to {high}", "Name every class.")
        return places[labels.long()]


def _owner(dataset: Any) -> str:
    return _owner(dataset.dataset) if isinstance(dataset, Subset) else type(dataset).__name__


@contextmanager
def _drawn_from(seed: int) -> Iterator[None]:
    """What is drawn from the generators of torch, numpy and Python follows from a seed; they are left as they were."""
    states = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=[]):
        try:
            torch.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
            yield
        finally:
            np.random.set_state(states[0])
            random.setstate(states[1])


def as_examples(
    owner: str, data: Any, classes: Sequence[str] | None = None, known: Sequence[str] | None = None
) -> Examples:
    """Convert data to `Examples`, for training and evaluation.

    owner: named in error messages. data: (inputs, labels) as arrays or tensors, a torch Dataset of pairs (input,
    label), or a set of `torchcaps.data`, which is returned unchanged. Bytes [n h w] or [n c h w] are images, which
    networks receive from 0 to 1; other inputs are not changed, except that floats become float32. classes: the names of
    the classes; default: those of the data, or `known`, or their numbers. known: the names in other data.
    """
    if callable(getattr(data, "batch", None)) and hasattr(data, "classes"):
        found: Examples = data
        return found
    if isinstance(data, tuple | list) and len(data) == 2:
        return _from_arrays(owner, data[0], data[1], classes or known)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, np.ndarray | Tensor):
        if not len(data):
            raise input_error(owner, "a Dataset with examples", "an empty one", "Add some.")
        return DatasetExamples(data, tuple(map(str, classes or classes_of(data) or known or ())))
    expected = "(inputs, labels), a torch Dataset of such pairs, or a set of torchcaps.data"
    got = f"a {type(data).__name__}"
    raise input_error(owner, expected, got, "Give inputs and labels: (X, y).")


def hold_out_share(owner: str, data: Any, share: float, seed: int) -> tuple[Any, Any]:
    """Split off a share of the data; stratified if labels are known. Returns the rest and the share."""
    count = max(1, round(share * len(data))) if share else 0
    if count >= len(data) > 0:
        raise input_error(owner, "examples to train on beside those for validation", len(data), "Add some.")
    if isinstance(data, Labeled):
        rest, held = split(data, [len(data) - count, count], seed)
        return rest, held
    if not isinstance(data, DatasetExamples):
        if count:
            got = f"a {type(data).__name__}, which cannot be divided"
            raise input_error(owner, "validation_data, or data to hold a part out of", got, "Give validation_data.")
        return data, ArraySet(torch.zeros(0, 1), torch.zeros(0, dtype=torch.long), data.classes)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed)).tolist()
    parts = (sorted(order[count:]), sorted(order[:count]))
    rest_rows, held_rows = (DatasetExamples(Subset(data.dataset, rows), data.classes, data.places) for rows in parts)
    return rest_rows, held_rows


def with_classes(owner: str, data: Any, classes: tuple[str, ...]) -> Any:
    """The data with these names of classes, of which they may know the first only, or some in another order."""
    if isinstance(data, DatasetExamples):
        return _dataset_in(owner, data, classes)
    if not isinstance(data, Labeled) or data.classes == classes:
        return data
    if data.labels.ndim == 1 and data.classes == classes[: len(data.classes)]:
        return replace(data, classes=classes)  # type: ignore[type-var]
    return in_classes(owner, data, classes)


def _dataset_in(owner: str, data: DatasetExamples, classes: tuple[str, ...]) -> DatasetExamples:
    """A Dataset whose labels are numbered as these classes are: by its own names for them, if it has any."""
    strange = next((name for name in data.classes if name not in classes), None)
    if strange is not None:
        remedy = "Give classes=, their names in the order of its labels."
        raise input_error(owner, f"classes among {', '.join(classes)}", strange, remedy)
    if data.classes == classes[: len(data.classes)]:
        return DatasetExamples(data.dataset, classes, data.places)
    places = tuple(classes.index(name) for name in data.classes)
    if data.places is not None:
        places = tuple(places[place] for place in data.places)
    return DatasetExamples(data.dataset, classes, places)


def classes_of(dataset: Any) -> Sequence[str] | None:
    """The attribute `classes` of a Dataset, as in torchvision; for a Subset, that of its Dataset."""
    found = getattr(dataset, "classes", None)
    if found is None and isinstance(dataset, Subset):
        return classes_of(dataset.dataset)
    return found if isinstance(found, Sequence) and not isinstance(found, str) else None


def _from_arrays(owner: str, inputs: Any, labels: Any, classes: Sequence[str] | None) -> ArraySet | ImageSet:
    given = as_inputs(owner, inputs)
    numbers, names = _as_labels(owner, labels, classes)
    if len(given) != len(numbers):
        raise input_error(owner, f"{len(given)} labels, one for each input", len(numbers), "Give as many.")
    if not len(given):
        raise input_error(owner, "examples", "none", "Give some.")
    if given.dtype != torch.uint8:
        return ArraySet(given, numbers, names)
    if given.ndim == 4 and given.shape[1] > 4 >= given.shape[3]:
        got = f"{shape_text(given.shape)}, channels last"
        raise input_error(owner, "images [n c h w]", got, "Move the channels: X.transpose(0, 3, 1, 2).")
    if given.ndim not in (3, 4) or numbers.ndim != 1:
        got = f"bytes {shape_text(given.shape)} with labels {shape_text(numbers.shape)}"
        raise input_error(owner, "bytes [n h w] or [n c h w] with labels [n]", got, "Convert them to float32.")
    return ImageSet(given.unsqueeze(1) if given.ndim == 3 else given, numbers, names)


def as_inputs(owner: str, inputs: Any) -> Tensor:
    """Convert inputs to a tensor: floats, which must be finite, to float32, integers unchanged."""
    if isinstance(inputs, Tensor):
        given = inputs.detach().cpu()
    else:
        array = np.asarray(inputs)
        if array.dtype.kind not in "fiub":
            texts = array.dtype.kind in "US"
            remedy = "Give texts as a data.TextSet with its vocabulary." if texts else "Give numbers."
            raise input_error(owner, "inputs as an array of numbers", f"one of {array.dtype}", remedy)
        given = torch.from_numpy(np.ascontiguousarray(array))
    if not given.is_floating_point():
        return given
    if not bool(given.isfinite().all()):
        raise input_error(
            owner, "inputs that are finite numbers", "NaN or infinity", "Fill them in, or leave them out."
        )
    return given.float()


def _as_labels(owner: str, labels: Any, classes: Sequence[str] | None) -> tuple[Tensor, tuple[str, ...]]:
    """Labels as class indices [n] or truth values [n y], and the names of the classes."""
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.dtype.kind == "O" and any(each is None or each != each for each in array.flat):
        raise input_error(owner, "a label for each input", "none for some", "Leave out examples without a label.")
    if array.dtype.kind in "USO" and array.ndim == 1:
        names, places = np.unique(array.astype(str), return_inverse=True)
        known = tuple(names.tolist()) if classes is None else tuple(map(str, classes))
        strange = sorted(set(names.tolist()) - set(known))
        if strange:
            raise input_error(owner, f"labels among {', '.join(known)}", strange[0], "Name every class.")
        order = np.array([known.index(name) for name in names.tolist()])
        return torch.from_numpy(order[places]).long(), known
    if array.dtype.kind == "b" and array.ndim == 2:
        named = tuple(map(str, range(array.shape[1]))) if classes is None else tuple(map(str, classes))
        if len(named) != array.shape[1]:
            expected = f"truth values [n y] = {shape_text((len(array), len(named)))}"
            raise input_error(owner, expected, shape_text(array.shape), "Give a column for each class.")
        return torch.from_numpy(np.ascontiguousarray(array)), named
    if array.dtype.kind not in "iu" or array.ndim != 1:
        got = f"{shape_text(array.shape)} of {array.dtype}"
        remedy = "Convert them: y.astype(int), or y.astype(bool) for truth values."
        if array.ndim == 2:
            remedy = (
                "Convert them: y.ravel()." if array.shape[1] == 1 else "Convert them: y.argmax(1), or y.astype(bool)."
            )
        raise input_error(owner, "labels [n]: class indices or names, or truth values [n y]", got, remedy)
    low, high = (int(array.min()), int(array.max())) if len(array) else (0, 0)
    named = tuple(map(str, range(high + 1))) if classes is None else tuple(map(str, classes))
    if low < 0 or high >= len(named):
        raise input_error(owner, f"labels from 0 to {len(named) - 1}", f"{low} to {high}", "Name every class.")
    return torch.from_numpy(array.astype(np.int64)), named
