"""Losses: margin (Sabour 2017 eq. 4), spread (Hinton 2018 eq. 3) and reconstruction.

`reduction` is over examples, as in torch. The papers and their official code reduce classes differently; `convention`
selects one of the two.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps._core.errors import check_choice, check_positive, check_range, input_error, shape_text
from torchcaps._core.types import can_look_at, check_labels, truth_of

REDUCTIONS = ["mean", "sum", "none"]
CONVENTIONS = ["paper", "official"]


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


def _reduce(per_class: Tensor, reduction: str, convention: str, weights: Tensor | None = None) -> Tensor:
    """Reduce over classes by the convention, then over examples, which may have weights [*b]."""
    per_example = per_class.mean(-1) if convention == "official" else per_class.sum(-1)
    if weights is not None:
        per_example = per_example * weights
    if reduction == "none":
        return per_example
    if reduction == "sum" or weights is None:
        return per_example.sum() if reduction == "sum" else per_example.mean()
    return per_example.sum() / weights.sum()


def _weights(owner: str, weight: Tensor | None, present: Tensor) -> Tensor | None:
    """The weights of examples [*b] from those of classes [y], and which classes are present, [*b y]."""
    if weight is None:
        return None
    classes = present.shape[-1]
    if not isinstance(weight, Tensor) or weight.shape != (classes,):
        got = shape_text(weight.shape) if isinstance(weight, Tensor) else f"a {type(weight).__name__}"
        raise input_error(owner, f"weight [y] = ({classes}) as a tensor", got, "Give a factor for each class.")
    return (present * weight.to(present)).sum(-1)


def check_reduction(owner: str, reduction: str, convention: str) -> None:
    """Raise an `InputError` of owner for an unknown reduction or convention."""
    check_choice(owner, "reduction", reduction, REDUCTIONS)
    check_choice(owner, "convention", convention, CONVENTIONS)


def margin_loss(
    activations: Float[Tensor, "*b y"],
    labels: Tensor,
    *,
    positive_margin: float = 0.9,
    negative_margin: float = 0.1,
    down_weight: float = 0.5,
    weight: Tensor | None = None,
    noise_class: bool = False,
    reduction: str = "mean",
    convention: str = "paper",
) -> Tensor:
    """Sum_k T_k max(0, m+ - a_k)^2 + down_weight (1 - T_k) max(0, a_k - m-)^2.

    activations: one for each class, [*b y], with any axes before the last: in [b h w y] each pixel is an example.
    labels: class indices [*b], or truth values [*b y] if any number of classes may be true. positive_margin,
    negative_margin: m+ and m-, the activation above which a present class, and below which an absent class, costs
    nothing. down_weight: the weight of absent classes. weight: a factor [y] for the examples of each class, as in
    torch's `cross_entropy`: "mean" divides by the sum of the factors. noise_class: the last capsule stands for no class
    and is left out of the loss; labels do not include it. reduction: "mean" or "sum" over examples, or "none" for the
    loss of each, [*b]. convention: "paper" sums over classes; "official" (the code of the paper's authors) halves the
    terms and takes the mean over classes, which is a twentieth of the paper's loss for ten classes.
    """
    _check_activations("margin_loss", activations)
    check_reduction("margin_loss", reduction, convention)
    check_range("margin_loss", "positive_margin", positive_margin, negative_margin)
    check_range("margin_loss", "down_weight", down_weight, 0)
    if noise_class:
        activations = activations[..., :-1]
    present = _targets("margin_loss", activations, labels)
    too_short = (positive_margin - activations).clamp(min=0).square()
    too_long = (activations - negative_margin).clamp(min=0).square()
    per_class = present * too_short + down_weight * (1 - present) * too_long
    weights = _weights("margin_loss", weight, present)
    return _reduce(per_class / 2 if convention == "official" else per_class, reduction, convention, weights)


def spread_loss(
    activations: Float[Tensor, "*b y"],
    labels: Tensor,
    margin: float | Tensor = 0.9,
    *,
    weight: Tensor | None = None,
    noise_class: bool = False,
    reduction: str = "mean",
    convention: str = "paper",
) -> Tensor:
    """Sum over wrong classes k of max(0, margin - (a_t - a_k))^2, with t the right class.

    activations: one for each class, [*b y]. labels: class indices [*b]. margin: the difference above which a wrong
    class costs nothing; `spread_margin` gives its schedule. weight, noise_class, reduction and convention: as in
    `margin_loss`, but "official" does not halve the terms.
    """
    _check_activations("spread_loss", activations)
    check_reduction("spread_loss", reduction, convention)
    if noise_class:
        activations = activations[..., :-1]
    if not isinstance(labels, Tensor) or labels.ndim != activations.ndim - 1 or labels.is_floating_point():
        expected = f"class indices [*b] = {shape_text(activations.shape[:-1])}"
        got = f"{shape_text(labels.shape)} of {labels.dtype}" if isinstance(labels, Tensor) else type(labels).__name__
        raise input_error("spread_loss", expected, got, "Pass whole numbers; margin_loss takes several labels at once.")
    present = _targets("spread_loss", activations, labels)
    right = (activations * present).sum(-1, keepdim=True)
    per_class = (1 - present) * (margin - (right - activations)).clamp(min=0).square()
    return _reduce(per_class, reduction, convention, _weights("spread_loss", weight, present))


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
