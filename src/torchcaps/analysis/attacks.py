"""Adversarial attacks: small changes of all pixels, found by gradients, that cause wrong predictions.

fgsm: one step along the sign of the gradient (Goodfellow, Shlens, Szegedy 2015). bim: several smaller steps (Kurakin,
Goodfellow, Bengio 2017). pgd: the same from a random start (Madry et al. 2018). No pixel changes by more than epsilon,
and all stay between 0 and 1. The gradient is that of `gradients.wrong_odds`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from typing_extensions import TypedDict, Unpack

from torchcaps._core.errors import check_choice, check_count, check_positive, check_range, input_error
from torchcaps._core.progress import bar
from torchcaps._core.types import check_labels
from torchcaps.analysis.evaluate import evaluate, hits, shown_classes, top_classes, wilson_interval
from torchcaps.analysis.gradients import answer, image_gradients
from torchcaps.analysis.images import InMemoryImages, check_images
from torchcaps.models import ImageModel

METHODS = ["fgsm", "bim", "pgd"]
STEPS = 10
Images = Float[Tensor, "b c h w"]
Labels = Int[Tensor, "b *n"]
Targets = Int[Tensor, " b"] | None


class Steps(TypedDict, total=False):
    """The options of attacks by several steps: their number, `STEPS` unless given, and the length of each."""

    steps: int
    step_size: float | None


def fgsm(model: ImageModel, images: Images, labels: Labels, epsilon: float, targets: Targets = None) -> Images:
    """Change each pixel by epsilon along the sign of its gradient: away from the labels, or towards the targets."""
    return bim(model, images, labels, epsilon, targets, steps=1)


def bim(
    model: ImageModel, images: Images, labels: Labels, epsilon: float, targets: Targets = None, **options: Unpack[Steps]
) -> Images:
    """Several steps along the sign of the gradient, clipped to epsilon; step_size: by default epsilon / steps."""
    return _climb(model, images, images, labels, epsilon, targets, 1.0, **options)


def pgd(
    model: ImageModel,
    images: Images,
    labels: Labels,
    epsilon: float,
    targets: Targets = None,
    *,
    generator: Generator | None = None,
    **options: Unpack[Steps],
) -> Images:
    """Like `bim`, from a random start within epsilon; step_size: by default 2.5 epsilon / steps."""
    device = images.device if generator is None else generator.device
    noise = torch.rand(images.shape, generator=generator, device=device, dtype=images.dtype).to(images.device)
    start = (images + epsilon * (2 * noise - 1)).clamp(0, 1)
    return _climb(model, images, start, labels, epsilon, targets, 2.5, **options)


def _climb(
    model: ImageModel,
    images: Tensor,
    start: Tensor,
    labels: Tensor,
    epsilon: float,
    targets: Tensor | None,
    way: float,
    steps: int = STEPS,
    step_size: float | None = None,
) -> Tensor:
    """Steps from the start along the sign of the gradient; way: by default the length of all together, in epsilons."""
    check_images("attack", model, images)
    check_range("attack", "epsilon", epsilon, 0, 1)
    check_count("attack", "steps", steps)
    for classes in (labels, targets):
        if classes is not None:
            check_labels("attack", classes, model.classes)
    size = way * epsilon / steps if step_size is None else step_size
    low, high = (images - epsilon).clamp(min=0), (images + epsilon).clamp(max=1)
    for _ in range(steps if epsilon > 0 else 0):
        start = start + size * image_gradients(model, start, labels, targets).sign()
        start = start.clamp(low, high)
    return start


def attack(
    method: str,
    model: ImageModel,
    images: Images,
    labels: Labels,
    epsilon: float,
    targets: Targets = None,
    *,
    steps: int = STEPS,
    generator: Generator | None = None,
) -> Images:
    """An attack by name; `METHODS` lists them."""
    check_choice("attack", "method", method, METHODS)
    if method == "fgsm":
        return fgsm(model, images, labels, epsilon, targets)
    if method == "bim":
        return bim(model, images, labels, epsilon, targets, steps=steps)
    return pgd(model, images, labels, epsilon, targets, steps=steps, generator=generator)


def wrong_targets(labels: Labels, classes: int, seed: int = 0) -> Int[Tensor, " b"]:
    """For each example a random class other than its labels."""
    shown = shown_classes(labels, classes)
    if bool(shown.all(-1).any()):
        raise input_error("wrong_targets", "a class that an image does not show", "none", "Attack without targets.")
    draws = torch.rand(shown.shape, generator=Generator().manual_seed(seed)).to(labels.device)
    return draws.masked_fill(shown, -1).argmax(-1)


@dataclass(frozen=True)
class AttackPoint:
    """Results at one epsilon: how many of `count` predictions are right, and how many are the target (or None)."""

    epsilon: float
    count: int
    right: int
    driven: int | None = None

    @property
    def accuracy(self) -> float:
        return self.right / self.count

    @property
    def interval(self) -> tuple[float, float]:
        return wilson_interval(self.right, self.count)

    @property
    def success(self) -> float | None:
        """The fraction of examples that are classified as their target."""
        return None if self.driven is None else self.driven / self.count

    @property
    def success_interval(self) -> tuple[float, float] | None:
        return None if self.driven is None else wilson_interval(self.driven, self.count)


@dataclass(frozen=True)
class AttackCurve:
    """Accuracy as a function of epsilon; the first point is that of the unchanged images.

    silent: the fraction of images whose gradient is zero everywhere, for which an attack shows nothing.
    """

    method: str
    points: tuple[AttackPoint, ...]
    silent: float


def attack_curves(
    model: ImageModel,
    data: InMemoryImages,
    epsilons: Sequence[float],
    methods: Sequence[str] = ("fgsm",),
    *,
    steps: int = STEPS,
    targeted: bool = False,
    source: ImageModel | None = None,
    seed: int = 0,
    batch_size: int = 50,
) -> list[AttackCurve]:
    """For each method the accuracy at each epsilon.

    targeted: attack towards a random wrong class of each example. source: the network that the changes are computed on,
    if it is another one (a black-box attack).
    """
    for method in methods:
        check_choice("attack_curves", "method", method, METHODS)
    for epsilon in epsilons:
        check_positive("attack_curves", "epsilon", epsilon)
    device = next(model.parameters()).device
    maker = model if source is None else brought(source, device)
    images, labels = data.images.to(device), data.labels.to(device)
    check_images("attack_curves", maker, images[:1])
    targets = wrong_targets(labels, model.classes, seed) if targeted else None
    parts = torch.arange(len(data), device=device).split(batch_size)
    chosen = [(images[rows], labels[rows], None if targets is None else targets[rows]) for rows in parts]
    silent = sum(int((image_gradients(maker, *part).flatten(1) == 0).all(-1).sum()) for part in chosen)
    clean = _point(0.0, evaluate(model, data, batch_size=batch_size).activations, data.labels, targets)
    curves = []
    for method in methods:
        points = [clean]
        for epsilon in epsilons:
            answers = []
            for number, part in enumerate(bar(chosen, f"{method} {epsilon:g}")):
                draws = Generator().manual_seed(seed + number)
                changed = attack(method, maker, part[0], part[1], epsilon, part[2], steps=steps, generator=draws)
                answers.append(answer(model, changed))
            points.append(_point(epsilon, torch.cat(answers), data.labels, targets))
        curves.append(AttackCurve(method, tuple(points), silent / len(data)))
    return curves


def brought(source: ImageModel, device: torch.device) -> ImageModel:
    """The network on this device; a copy if it is on another one."""
    return source if next(source.parameters()).device == device else copy.deepcopy(source).to(device)


def _point(epsilon: float, activations: Tensor, labels: Tensor, targets: Tensor | None) -> AttackPoint:
    right = int(hits(activations, labels).sum())
    driven = None
    if targets is not None:
        driven = int((top_classes(activations).squeeze(-1) == targets.cpu()).sum())
    return AttackPoint(epsilon, len(labels), right, driven)


@dataclass(frozen=True)
class AttackExamples:
    """A few images at each epsilon [e n c h w], the first unchanged, and their activations [e n y]."""

    epsilons: tuple[float, ...]
    images: Tensor
    activations: Tensor
    labels: Tensor
    targets: Tensor | None
    classes: tuple[str, ...]


def attack_examples(
    model: ImageModel,
    data: InMemoryImages,
    epsilons: Sequence[float],
    method: str = "fgsm",
    *,
    steps: int = STEPS,
    targeted: bool = False,
    source: ImageModel | None = None,
    seed: int = 0,
) -> AttackExamples:
    """The images that `attack_curves` would produce and their predictions, for a figure."""
    device = next(model.parameters()).device
    maker = model if source is None else brought(source, device)
    images, labels = data.images.to(device), data.labels.to(device)
    targets = wrong_targets(labels, model.classes, seed) if targeted else None
    changed = [images]
    for epsilon in epsilons:
        draws = Generator().manual_seed(seed)
        changed.append(attack(method, maker, images, labels, epsilon, targets, steps=steps, generator=draws))
    activations = torch.stack([answer(model, some) for some in changed])
    found = None if targets is None else targets.cpu()
    return AttackExamples((0.0, *epsilons), torch.stack(changed).cpu(), activations, data.labels, found, data.classes)
