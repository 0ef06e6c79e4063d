"""Out-of-distribution detection: does a network recognize images that are unlike its training data?

Two detectors: the reconstruction error (the reconstruction from the winning capsule does not match the input), and the
confidence (no class is active). Each gives a score for each image, higher for stranger images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from sklearn.metrics import roc_curve
from torch import Generator, Tensor
from torch.nn.functional import interpolate

from torchcaps._core.errors import check_choice, check_range, input_error
from torchcaps._core.progress import bar
from torchcaps.analysis.attacks import bim
from torchcaps.analysis.evaluate import Evaluation, evaluate
from torchcaps.analysis.images import InMemoryImages, check_images
from torchcaps.analysis.jumble import jumble
from torchcaps.models import ImageModel

MADE = ["noise", "jumbled", "attacked", "scattered"]
FALSE_ALARMS = 0.05
EPSILON = 0.2  # of attacked images
BATCH = 50


@dataclass(frozen=True)
class Roc:
    """The ROC curve of a detector.

    alarms: the false positive rates, the fractions of known images above a threshold; found: the true positive rates,
    the fractions of strange ones; both [m], from 0 to 1. known, strange: the number of images of each.
    """

    alarms: Tensor
    found: Tensor
    known: int
    strange: int

    @property
    def area(self) -> float:
        """The area under the curve: the probability that a strange image has a higher score than a known one."""
        return float(torch.trapezoid(self.found, self.alarms))

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the area; see `area_interval`."""
        return area_interval(self.area, self.known, self.strange)

    def found_at(self, alarms: float = FALSE_ALARMS) -> float:
        """The fraction of strange images found at the lowest threshold with at most this false positive rate."""
        check_range("Roc", "alarms", alarms, 0, 1)
        return float(self.found[self.alarms <= alarms].max())


def roc(known: Float[Tensor, " n"], strange: Float[Tensor, " m"]) -> Roc:
    """The curve of a detector with these scores. Equal scores pass a threshold together."""
    if not len(known) or not len(strange):
        raise input_error("roc", "known and strange images", f"{len(known)} and {len(strange)}", "Give some of each.")
    truth = torch.cat([torch.zeros(len(known)), torch.ones(len(strange))])
    alarms, found, _ = roc_curve(truth.numpy(), torch.cat([known, strange]).double().numpy(), drop_intermediate=False)
    return Roc(torch.from_numpy(alarms), torch.from_numpy(found), len(known), len(strange))


def area_interval(area: float, known: int, strange: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % interval of an area under the curve: all areas within z standard errors of the observed one.

    The standard error is that of Hanley and McNeil (1982), evaluated at the end of the interval, as in Newcombe (2006,
    method 5): the interval stays within 0 to 1, and is not empty if the area is 1.
    """
    more = (known + strange) / 2 - 1

    def apart(other: float) -> float:
        spread = 1 + more * ((1 - other) / (2 - other) + other / (1 + other))
        return (area - other) ** 2 - z * z * other * (1 - other) / (known * strange) * spread

    return _root(apart, 0.0, area), _root(apart, 1.0, area)


def _root(function: Callable[[float], float], outside: float, inside: float) -> float:
    """The root of a function that is positive outside and negative inside, by bisection."""
    for _ in range(50):
        middle = (outside + inside) / 2
        outside, inside = (middle, inside) if function(middle) > 0 else (outside, middle)
    return inside


def strangeness(result: Evaluation) -> dict[str, Tensor]:
    """The scores of each detector, [n]; a network without a decoder only has its confidence."""
    numbers = {"confidence": 1 - result.activations.gather(1, result.predictions).amin(-1)}
    return (
        numbers if result.reconstruction_error is None else {"reconstruction": result.reconstruction_error, **numbers}
    )


def detect(known: Evaluation, strange: Evaluation) -> dict[str, Roc]:
    """How well each detector separates strange images from known ones."""
    ordinary, odd = strangeness(known), strangeness(strange)
    return {word: roc(ordinary[word], odd[word]) for word in ordinary}


def strange_images(model: ImageModel, data: InMemoryImages, kind: str, seed: int = 0) -> InMemoryImages:
    """As many strange images as there are known ones.

    noise: random pixels. jumbled: nine parts shuffled. attacked: changed by `bim` with epsilon 0.2, so that predictions
    are wrong. scattered: the same changes at other, random pixels, with the sign reversed where they would leave 0 to
    1; a detector that finds these as well detects changes of that size, not the attack.
    """
    check_choice("strange_images", "kind", kind, MADE)
    check_images("strange_images", model, data.images)
    draws = Generator().manual_seed(seed)
    if kind == "noise":
        images = torch.rand(data.images.shape, generator=draws)
    elif kind == "jumbled":
        images = jumble(data.images, "3x3", seed)
    else:
        device = next(model.parameters()).device
        pairs = zip(data.images.to(device).split(BATCH), data.labels.to(device).split(BATCH), strict=True)
        images = torch.cat([bim(model, few, labels, EPSILON).cpu() for few, labels in bar(list(pairs), kind)])
        if kind == "scattered":
            changes = (images - data.images).flatten(1)
            places = torch.rand(changes.shape, generator=draws).argsort(-1)
            moved = changes.gather(1, places).view_as(images)
            there = data.images + moved
            images = there.where((there >= 0) & (there <= 1), data.images - moved)
    return InMemoryImages(images, data.labels, data.classes)


def as_shown(images: Float[Tensor, "n c h w"], data: InMemoryImages) -> InMemoryImages:
    """Other images in the shape of these data: resized, gray or in color. Their labels are meaningless zeros."""
    channels, height, width = data.images.shape[1:]
    if images.shape[1] != channels:
        images = images.mean(1, keepdim=True).expand(-1, channels, -1, -1)
    if images.shape[-2:] != (height, width):
        images = interpolate(images, (height, width), mode="bilinear", antialias=True).clamp(0, 1)
    labels = torch.zeros(len(images), *data.labels.shape[1:], dtype=torch.long)
    return InMemoryImages(images, labels, data.classes)


def strange_test(
    model: ImageModel, data: InMemoryImages, strange: dict[str, InMemoryImages]
) -> dict[str, dict[str, Roc]]:
    """For each kind of strange images, the curve of each detector."""
    check_images("strange", model, data.images)
    known = evaluate(model, data)
    return {kind: detect(known, evaluate(model, images)) for kind, images in strange.items()}
