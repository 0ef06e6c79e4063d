"""Losses, and the registry of those on classes.

`LOSSES` has the losses that `train --loss` accepts, `READOUTS` the default one for each kind of activation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, nll_loss, one_hot

from torchcaps._core.errors import input_error
from torchcaps._core.types import Capsules
from torchcaps.losses.functions import margin_loss, reconstruction_loss, spread_loss, spread_margin
from torchcaps.losses.modules import MarginLoss, SpreadLoss

__all__ = [
    "LOSSES",
    "READOUTS",
    "Answer",
    "MarginLoss",
    "SpreadLoss",
    "check_several",
    "class_loss",
    "loss_of_classes",
    "margin_loss",
    "reconstruction_loss",
    "spread_loss",
    "spread_margin",
    "weighs_absent",
]

# The kinds of activations and the default loss of each. length: of a squashed vector. logistic: of a cost. share: all
# sum to one. logit: the softmax of logits, which are the poses.
READOUTS = {"length": "margin", "logistic": "spread", "share": "nll", "logit": "cross-entropy"}


@dataclass(frozen=True)
class Answer:
    """The input of the losses in `LOSSES`.

    capsules: one for each class, poses [b y d] and activations [b y]. labels: class indices [b]; [b n] or truth values
    [b y] for several classes at once (see `class_loss`). readout: the kind of the activations, a key of `READOUTS`.
    margin: of the spread loss at this step. down_weight: of absent classes in the margin loss. weights: of the examples
    [b], one on average; None for equal ones.
    """

    capsules: Capsules
    labels: Tensor
    readout: str
    margin: float = 0.9
    down_weight: float = 0.5
    weights: Tensor | None = None

    def mean(self, losses: Tensor) -> Tensor:
        """The mean of the losses [b] of examples, with their weights."""
        return losses.mean() if self.weights is None else (losses * self.weights).mean()

    @property
    def logits(self) -> Tensor:
        """Logits for a softmax over classes, [b y]."""
        if self.readout == "logit":
            return self.capsules.poses.squeeze(-1)
        return torch.logit(self.capsules.activations, eps=1e-6)


def _margin(answer: Answer, labels: Tensor, convention: str = "paper") -> Tensor:
    down = answer.down_weight
    active = answer.capsules.activations
    return answer.mean(margin_loss(active, labels, down_weight=down, reduction="none", convention=convention))


def _spread(answer: Answer) -> Tensor:
    return answer.mean(spread_loss(answer.capsules.activations, answer.labels, answer.margin, reduction="none"))


def _nll(answer: Answer) -> Tensor:
    shares = answer.capsules.activations.clamp(min=1e-12)
    return answer.mean(nll_loss(shares.log(), answer.labels, reduction="none"))


def _cross_entropy(answer: Answer) -> Tensor:
    return answer.mean(cross_entropy(answer.logits, answer.labels, reduction="none"))


# The losses of `train --loss`. Entries may be added; `answer.mean` weighs the losses of examples.
LOSSES: dict[str, Callable[[Answer], Tensor]] = {
    "margin": lambda it: _margin(it, it.labels),
    "official-margin": lambda it: _margin(it, it.labels, "official"),
    "spread": _spread,
    "nll": _nll,
    "cross-entropy": _cross_entropy,
}


def class_loss(kind: str, answer: Answer) -> Tensor:
    """The loss on the classes.

    kind: a key of `LOSSES`, for answers with one label for each example. An answer with several labels, [b n] or truth
    values [b y], uses the margin loss, or binary cross-entropy if the readout is "logit", whatever the kind; it is an
    `InputError` if activations are shares that sum to one.
    """
    labels, activations = answer.labels, answer.capsules.activations
    if labels.ndim == 1:
        return LOSSES[kind](answer)
    truth = labels if labels.dtype == torch.bool else one_hot(labels, activations.shape[-1]).sum(1)
    if answer.readout == "logit":
        wanted = truth.to(answer.logits.dtype)
        return answer.mean(binary_cross_entropy_with_logits(answer.logits, wanted, reduction="none").mean(-1))
    check_several("train", answer.readout)
    return _margin(answer, truth)


def loss_of_classes(kind: str | None, readout: str) -> Callable[[Capsules, Tensor], Tensor]:
    """The loss on the classes as a function of class capsules and labels.

    kind: a key of `LOSSES`; None for the default one of the readout. readout: a key of `READOUTS`.
    """
    name = kind or READOUTS[readout]
    return lambda capsules, labels: class_loss(name, Answer(capsules, labels, readout))


def weighs_absent(kind: str) -> bool:
    """Whether a loss of this name depends on the weight of absent classes. kind: a key of `LOSSES`."""
    capsules, labels = Capsules(torch.full((1, 2, 1), 0.5), torch.full((1, 2), 0.5)), torch.zeros(1, dtype=torch.long)
    none, full = (LOSSES[kind](Answer(capsules, labels, "length", down_weight=weight)) for weight in (0.0, 1.0))
    return bool(none != full)


def check_several(owner: str, readout: str) -> None:
    """Raise an `InputError` of owner if the readout is "share": such activations sum to one over all classes."""
    if readout == "share":
        remedy = "Choose --routing dynamic, entropy, attention, inverted, em, heinsen or variational."
        raise input_error(owner, "independent class activations", "a routing whose activations sum to one", remedy)
