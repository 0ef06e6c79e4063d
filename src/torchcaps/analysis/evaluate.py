"""Evaluation of a model: accuracy with its interval, precision and recall, confusion, reconstruction errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import ParamSpec, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from torchcaps._core.errors import input_error
from torchcaps._core.types import Capsules
from torchcaps.data import Batch, Examples
from torchcaps.models import draws
from torchcaps.runs.weights import first_not_finite


def top_classes(activations: Float[Tensor, "b y"], count: int = 1) -> Int[Tensor, "b n"]:
    """The most active classes of each image, the most active first."""
    return activations.topk(count, dim=-1).indices


P = ParamSpec("P")
Result = TypeVar("Result")
THRESHOLD = 0.5  # if any number of classes may be true, those with a higher activation are predicted


def shown_classes(labels: Tensor, classes: int) -> Bool[Tensor, "b y"]:
    """The true classes as truth values, from class indices [b] or [b n], or truth values [b y]."""
    if labels.dtype == torch.bool:
        return labels
    indices = labels.unsqueeze(-1) if labels.ndim == 1 else labels
    return torch.zeros(len(labels), classes, dtype=torch.bool, device=labels.device).scatter_(1, indices, True)


def said_classes(activations: Float[Tensor, "b y"], labels: Tensor) -> Bool[Tensor, "b y"]:
    """The predicted classes: as many as there are labels, or for truth values all above the threshold."""
    if labels.dtype == torch.bool:
        return activations > THRESHOLD
    count = 1 if labels.ndim == 1 else labels.shape[-1]
    return torch.zeros_like(activations, dtype=torch.bool).scatter_(1, top_classes(activations, count), True)


def named_classes(activations: Float[Tensor, " y"], many: bool) -> list[int]:
    """The predicted classes of one example, the most active first: one, or if `many` all above the threshold."""
    order = activations.argsort(descending=True).tolist()
    return [place for place in order if activations[place] > THRESHOLD] if many else order[:1]


def hits(activations: Float[Tensor, "b y"], labels: Tensor) -> Bool[Tensor, " b"]:
    """Whether the predicted classes are exactly the true ones: labels [b], [b n], or truth values [b y]."""
    return (said_classes(activations, labels) == shown_classes(labels, activations.shape[-1])).all(-1)


def scores(shown: Bool[Tensor, "n y"], said: Bool[Tensor, "n y"]) -> dict[str, float]:
    """Multi-label scores: exact-match ratio; precision, recall and F1, each averaged in three ways.

    shown: the true classes. said: the predicted ones. Averages are over examples ("samples"), over all decisions
    ("micro") and over classes ("macro"); 0 / 0 counts as 0.
    """
    result = {"exact_match": float((shown == said).all(-1).double().mean())}
    for name, axis in (("samples", -1), ("micro", None), ("macro", 0)):
        both, right, named = (
            values.double().sum() if axis is None else values.double().sum(axis)
            for values in (shown & said, shown, said)
        )
        parts = {
            "precision": both / named.clamp(min=1),
            "recall": both / right.clamp(min=1),
            "f1": 2 * both / (named + right).clamp(min=1),
        }
        result |= {f"{word}_{name}": float(values.mean()) for word, values in parts.items()}
    return result


def wilson_interval(successes: int, count: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % interval of a proportion of `successes` in `count` (Wilson 1927)."""
    if count == 0:
        return 0.0, 1.0
    rate = successes / count
    center = rate + z * z / (2 * count)
    half = z * math.sqrt(rate * (1 - rate) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    low, high = (center - half) / scale, (center + half) / scale
    return max(0.0, min(rate, low)), min(1.0, max(rate, high))  # rounding would leave a rate of 0 or 1 outside


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Predictions for every example: labels [n m] for m objects in each, or truth values [n y]; activations [n y].

    reconstruction_error: the mean squared error of the reconstruction from the prediction, [n]; None without a decoder.
    """

    classes: tuple[str, ...]
    labels: Tensor
    activations: Tensor
    reconstruction_error: Tensor | None

    def __repr__(self) -> str:
        low, high = self.error_interval
        error = f"{1 - self.accuracy:.2%} (95 % interval {low:.2%} to {high:.2%})"
        return f"Evaluation({self.count:,} examples, accuracy {self.accuracy:.2%}, error {error})"

    @property
    def many(self) -> bool:
        """Whether any number of classes may be true."""
        return self.labels.dtype == torch.bool

    @cached_property
    def predictions(self) -> Tensor:
        """[n m], for m objects in each."""
        return top_classes(self.activations, self.labels.shape[-1])

    @cached_property
    def shown(self) -> Tensor:
        return shown_classes(self.labels, len(self.classes))

    @cached_property
    def said(self) -> Tensor:
        return said_classes(self.activations, self.labels)

    @cached_property
    def right(self) -> Tensor:
        """[n], whether the predicted classes are exactly the true ones."""
        return (self.shown == self.said).all(-1)

    def scores(self) -> dict[str, float]:
        """Exact match, precision, recall and F1; see `scores`."""
        return scores(self.shown, self.said)

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
    def balanced_accuracy(self) -> float:
        """The mean recall of the classes that have examples: each counts the same, however rare it is."""
        return float(torch.tensor([recall for _, count, recall, _ in self.per_class() if count]).mean())

    @property
    def macro_f1(self) -> float:
        """The mean F1 score of the classes that have examples; 0 for a class that is never answered rightly."""
        both, shown, said = ((self.shown & self.said).sum(0), self.shown.sum(0), self.said.sum(0))
        return float((2 * both.double() / (shown + said).clamp(min=1))[shown > 0].mean())

    @property
    def only_answer(self) -> str | None:
        """The class that was answered for every example, if there is one and it is not right for all of them."""
        everywhere = self.said.all(0) & ~self.shown.all(0)
        one = int(self.said.any(0).sum()) == 1 and bool(everywhere.any())
        return self.classes[int(everywhere.int().argmax())] if one else None

    @property
    def error_interval(self) -> tuple[float, float]:
        return wilson_interval(self.errors, self.count)

    @cached_property
    def confusion(self) -> Tensor:
        """The confusion matrix [y y]: true classes are rows, predicted ones columns; for one object in each image."""
        size = len(self.classes)
        pairs = self.labels[:, 0] * size + self.predictions[:, 0]
        return torch.bincount(pairs, minlength=size * size).view(size, size)

    def per_class(self) -> list[tuple[str, int, float, float]]:
        """For each class its name, number of examples, recall and precision (NaN if undefined)."""
        shown, said = self.shown.sum(0), self.said.sum(0)
        both = (self.shown & self.said).sum(0).double()
        recall, precision = both / shown, both / said
        rows = zip(self.classes, shown.tolist(), recall.tolist(), precision.tolist(), strict=True)
        return list(rows)


def reconstruction_errors(model: nn.Module, batch: Batch, capsules: Capsules) -> Tensor | None:
    """The mean squared error of each image's reconstruction from the predicted classes, [b]."""
    if not draws(model):
        return None
    count = 1 if batch.labels.ndim == 1 else batch.labels.shape[-1]
    drawn = model.reconstruct(capsules, top=count)
    return (drawn.sum(1).clamp(max=1) - batch.inputs).square().flatten(1).mean(-1)


def batches(data: Examples, size: int) -> Iterator[Batch]:
    """Iterate over the data in order, in batches of this size."""
    for rows in torch.arange(len(data)).split(size):
        yield data.batch(rows)


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[torch.device]:
    """A context with the model in evaluation mode, which is reset afterwards; yields the device of its weights."""
    broken = first_not_finite(model.state_dict())
    if broken is not None:
        raise input_error("model", "weights that are finite numbers", f"others in {broken}", "Train or load it anew.")
    modes = {module: module.training for module in model.modules()}
    try:
        yield next(model.eval().parameters(), torch.empty(0)).device
    finally:
        for module, training in modes.items():
            module.training = training


def in_eval_mode(function: Callable[P, Result]) -> Callable[P, Result]:
    """A decorator: the first argument, a model, is in evaluation mode during the call, and as before after it."""

    @wraps(function)
    def wrapped(*arguments: P.args, **options: P.kwargs) -> Result:
        with eval_mode(arguments[0]):  # type: ignore[arg-type]
            return function(*arguments, **options)

    return wrapped


@torch.no_grad()
def evaluate(model: nn.Module, data: Examples, *, batch_size: int = 64) -> Evaluation:
    """Evaluate the model on every example, in evaluation mode, on the device of its weights."""
    labels, activations, reconstruction_error = [], [], []
    with eval_mode(model) as device:
        for batch in batches(data, batch_size):
            moved = batch._replace(inputs=batch.inputs.to(device))
            capsules = model(moved.inputs)
            labels.append(batch.labels.view(len(batch.labels), -1))
            activations.append(capsules.activations.float().cpu())
            errors = reconstruction_errors(model, moved, capsules)
            if errors is not None:
                reconstruction_error.append(errors.float().cpu())
    check_answers("evaluate", torch.cat(activations))
    return Evaluation(
        data.classes,
        torch.cat(labels),
        torch.cat(activations),
        torch.cat(reconstruction_error) if reconstruction_error else None,
    )


def check_answers(owner: str, activations: Tensor) -> None:
    """Raise an `InputError` if activations are not finite, because weights are too large."""
    if not bool(activations.isfinite().all()):
        remedy = "Its weights are too large: train anew, with a lower --lr."
        raise input_error(owner, "finite activations", "NaN or infinity", remedy)
