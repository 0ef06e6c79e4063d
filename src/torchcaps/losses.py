"""Losses: margin (Sabour 2017 eq. 4), spread (Hinton 2018 eq. 3) and reconstruction, and the registry of losses.

`reduction` is over examples, as in torch. The papers and their official code reduce classes differently; `convention`
selects one of the two. `LOSSES` has the losses that `train --loss` accepts, `READOUTS` the default one for each kind of
activation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, nll_loss, one_hot

from torchcaps._core.errors import check_choice, check_positive, check_range, input_error, shape_text
from torchcaps._core.types import Capsules, can_look_at, check_labels, truth_of

REDUCTIONS = ["mean", "sum", "none"]
CONVENTIONS = ["paper", "official"]
# The kinds of activations and the default loss of each. length: of a squashed vector. logistic: of a cost. share: all
# sum to one. logit: the softmax of logits, which are the poses.
READOUTS = {"length": "margin", "logistic": "spread", "share": "nll", "logit": "cross-entropy"}


def _targets(owner: str, activations: Tensor, labels: Tensor) -> Tensor:
    """One truth value for each class, [*b y], from class indices [*b] or truth values [*b y]."""
    *batch, classes = activations.shape
    if not isinstance(labels, Tensor):
        raise input_error(owner, "labels as a tensor", f"a {type(labels).__name__}", "Pass torch.tensor(labels).")
    if labels.shape == activations.shape:
        _check_truth(owner, labels)
        return labels.to(activations.dtype)
    if list(labels.shape) != batch or labels.is_floating_point() or labels.dtype == torch.bool:
        expected = f"class indices [*b] = {shape_text(batch)} or truth values [*b y] = {shape_text(activations.shape)}"
        got = f"{shape_text(labels.shape)} of {labels.dtype}"
        raise input_error(
            owner, expected, got, "Give whole numbers (labels.long()), or one truth value for each class."
        )
    check_labels(owner, labels, classes)
    return truth_of(labels, classes, activations.dtype)


def _check_truth(owner: str, labels: Tensor) -> None:
    if can_look_at(labels):
        low, high = float(labels.min()), float(labels.max())
        if low < 0 or high > 1:
            got = low if low < 0 else high
            raise input_error(
                owner, "truth values [*b y] from 0 to 1", got, "Give 1 for classes that are present, 0 for others."
            )


def _check_activations(owner: str, activations: Tensor) -> None:
    if not isinstance(activations, Tensor):
        got = f"a {type(activations).__name__}"
        raise input_error(owner, "activations [*b y] as a tensor", got, "Pass capsules.activations.")
    if activations.ndim == 0:
        raise input_error(owner, "activations [*b y]", "a single number", "Give one activation for each class.")


def _reduce(per_class: Tensor, reduction: str, convention: str) -> Tensor:
    """Reduce over classes by the convention, then over examples."""
    per_example = per_class.mean(-1) if convention == "official" else per_class.sum(-1)
    if reduction == "none":
        return per_example
    return per_example.sum() if reduction == "sum" else per_example.mean()


def _check_reduction(owner: str, reduction: str, convention: str) -> None:
    check_choice(owner, "reduction", reduction, REDUCTIONS)
    check_choice(owner, "convention", convention, CONVENTIONS)


def margin_loss(
    activations: Float[Tensor, "*b y"],
    labels: Tensor,
    *,
    positive_margin: float = 0.9,
    negative_margin: float = 0.1,
    down_weight: float = 0.5,
    noise_class: bool = False,
    reduction: str = "mean",
    convention: str = "paper",
) -> Tensor:
    """Sum_k T_k max(0, m+ - a_k)^2 + down_weight (1 - T_k) max(0, a_k - m-)^2.

    activations: one for each class, [*b y], with any axes before the last: in [b h w y] each pixel is an example.
    labels: class indices [*b], or truth values [*b y] if any number of classes may be true. positive_margin,
    negative_margin: m+ and m-, the activation above which a present class, and below which an absent class, costs
    nothing. down_weight: the weight of absent classes. noise_class: the last capsule stands for no class and is left
    out of the loss; labels do not include it.
    reduction: "mean" or "sum" over examples, or "none" for the loss of each, [*b]. convention: "paper" sums over
    classes; "official" (the code of the paper's authors) halves the terms and takes the mean over classes, which is a
    twentieth of the paper's loss for ten classes.
    """
    _check_activations("margin_loss", activations)
    _check_reduction("margin_loss", reduction, convention)
    check_range("margin_loss", "positive_margin", positive_margin, negative_margin)
    check_range("margin_loss", "down_weight", down_weight, 0)
    if noise_class:
        activations = activations[..., :-1]
    present = _targets("margin_loss", activations, labels)
    too_short = (positive_margin - activations).clamp(min=0).square()
    too_long = (activations - negative_margin).clamp(min=0).square()
    per_class = present * too_short + down_weight * (1 - present) * too_long
    return _reduce(per_class / 2 if convention == "official" else per_class, reduction, convention)


def spread_loss(
    activations: Float[Tensor, "*b y"],
    labels: Tensor,
    margin: float | Tensor = 0.9,
    *,
    noise_class: bool = False,
    reduction: str = "mean",
    convention: str = "paper",
) -> Tensor:
    """Sum over wrong classes k of max(0, margin - (a_t - a_k))^2, with t the right class.

    activations: one for each class, [*b y]. labels: class indices [*b]. margin: the difference above which a wrong
    class costs nothing; `spread_margin` gives its schedule. noise_class, reduction and convention: as in `margin_loss`,
    but "official" does not halve the terms.
    """
    _check_activations("spread_loss", activations)
    _check_reduction("spread_loss", reduction, convention)
    if noise_class:
        activations = activations[..., :-1]
    if not isinstance(labels, Tensor) or labels.ndim != activations.ndim - 1 or labels.is_floating_point():
        expected = f"class indices [*b] = {shape_text(activations.shape[:-1])}"
        got = f"{shape_text(labels.shape)} of {labels.dtype}" if isinstance(labels, Tensor) else type(labels).__name__
        raise input_error("spread_loss", expected, got, "Pass whole numbers; margin_loss takes several labels at once.")
    present = _targets("spread_loss", activations, labels)
    right = (activations * present).sum(-1, keepdim=True)
    per_class = (1 - present) * (margin - (right - activations)).clamp(min=0).square()
    return _reduce(per_class, reduction, convention)


def spread_margin(step: int, *, schedule: str = "linear", steps: int = 50_000) -> float:
    """The margin of the spread loss after `step` training steps.

    schedule: "linear" goes from 0.2 to 0.9 in `steps` steps, as in the paper; "sigmoid" is 0.2 + 0.79 sigmoid(min(10,
    step/steps - 4)), as its authors wrote in reply to questions (steps = 50,000).
    """
    check_choice("spread_margin", "schedule", schedule, ["linear", "sigmoid"])
    check_range("spread_margin", "step", step, 0)
    check_positive("spread_margin", "steps", steps)
    if schedule == "linear":
        return 0.2 + 0.7 * min(1.0, step / steps)
    return 0.2 + 0.79 / (1 + math.exp(-min(10.0, step / steps - 4)))


def reconstruction_loss(
    reconstructions: Float[Tensor, "b *image"], images: Float[Tensor, "b *image"], weight: float = 0.0005
) -> Tensor:
    """The squared error summed over all pixels of an image, averaged over the batch, times `weight`.

    reconstructions, images: [b ...] of the same shape. The sum over pixels is that of Sabour 2017; implementations that
    average over pixels weaken the loss by their number, 784 for MNIST.
    """
    if reconstructions.shape != images.shape:
        expected = f"images {shape_text(reconstructions.shape)} like their reconstructions"
        raise input_error("reconstruction_loss", expected, shape_text(images.shape), "Compare images of one shape.")
    return weight * (reconstructions - images).square().flatten(1).sum(-1).mean()


class MarginLoss(nn.Module):
    """`margin_loss` as a module.

    positive_margin, negative_margin, down_weight, noise_class, reduction, convention: as in `margin_loss`.
    """

    def __init__(
        self,
        *,
        positive_margin: float = 0.9,
        negative_margin: float = 0.1,
        down_weight: float = 0.5,
        noise_class: bool = False,
        reduction: str = "mean",
        convention: str = "paper",
    ) -> None:
        super().__init__()
        _check_reduction("MarginLoss", reduction, convention)
        check_range("MarginLoss", "positive_margin", positive_margin, negative_margin)
        check_range("MarginLoss", "down_weight", down_weight, 0)
        self.positive_margin, self.negative_margin, self.down_weight = positive_margin, negative_margin, down_weight
        self.noise_class, self.reduction, self.convention = noise_class, reduction, convention

    def forward(self, activations: Float[Tensor, "*b y"], labels: Tensor) -> Tensor:
        return margin_loss(
            activations,
            labels,
            positive_margin=self.positive_margin,
            negative_margin=self.negative_margin,
            down_weight=self.down_weight,
            noise_class=self.noise_class,
            reduction=self.reduction,
            convention=self.convention,
        )

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}, convention={self.convention!r}, down_weight={self.down_weight}"


class SpreadLoss(nn.Module):
    """`spread_loss` as a module with its margin, noise_class, reduction and convention. `margin` may be reassigned."""

    def __init__(
        self, margin: float = 0.9, *, noise_class: bool = False, reduction: str = "mean", convention: str = "paper"
    ) -> None:
        super().__init__()
        _check_reduction("SpreadLoss", reduction, convention)
        self.margin, self.noise_class = margin, noise_class
        self.reduction, self.convention = reduction, convention

    def forward(self, activations: Float[Tensor, "*b y"], labels: Tensor) -> Tensor:
        return spread_loss(
            activations,
            labels,
            self.margin,
            noise_class=self.noise_class,
            reduction=self.reduction,
            convention=self.convention,
        )

    def extra_repr(self) -> str:
        return f"margin={self.margin}, reduction={self.reduction!r}, convention={self.convention!r}"


@dataclass(frozen=True)
class Answer:
    """The input of the losses in `LOSSES`.

    capsules: one for each class, poses [b y d] and activations [b y]. labels: class indices [b]; [b n] or truth values
    [b y] for several classes at once (see `class_loss`). readout: the kind of the activations, a key of `READOUTS`.
    margin: of the spread loss at this step. down_weight: of absent classes in the margin loss.
    """

    capsules: Capsules
    labels: Tensor
    readout: str
    margin: float = 0.9
    down_weight: float = 0.5

    @property
    def logits(self) -> Tensor:
        """Logits for a softmax over classes, [b y]."""
        if self.readout == "logit":
            return self.capsules.poses.squeeze(-1)
        return torch.logit(self.capsules.activations, eps=1e-6)


def _nll(answer: Answer) -> Tensor:
    return nll_loss(answer.capsules.activations.clamp(min=1e-12).log(), answer.labels)


# The losses of `train --loss`. Entries may be added.
LOSSES: dict[str, Callable[[Answer], Tensor]] = {
    "margin": lambda it: margin_loss(it.capsules.activations, it.labels, down_weight=it.down_weight),
    "spread": lambda it: spread_loss(it.capsules.activations, it.labels, it.margin),
    "nll": _nll,
    "cross-entropy": lambda it: cross_entropy(it.logits, it.labels),
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
        return binary_cross_entropy_with_logits(answer.logits, truth.to(answer.logits.dtype))
    check_several("train", answer.readout)
    return margin_loss(activations, truth, down_weight=answer.down_weight)


def loss_of_classes(kind: str | None, readout: str) -> Callable[[Capsules, Tensor], Tensor]:
    """The loss on the classes as a function of class capsules and labels.

    kind: a key of `LOSSES`; None for the default one of the readout. readout: a key of `READOUTS`.
    """
    name = kind or READOUTS[readout]
    return lambda capsules, labels: class_loss(name, Answer(capsules, labels, readout))


def check_several(owner: str, readout: str) -> None:
    """Raise an `InputError` of owner if the readout is "share": such activations sum to one over all classes."""
    if readout == "share":
        remedy = "Choose --routing dynamic, entropy, attention, inverted, em, heinsen or variational."
        raise input_error(owner, "independent class activations", "a routing whose activations sum to one", remedy)
