"""Strange inputs: does a network notice that it is shown something it does not know?

Two detectors: the error of the reconstruction (what is drawn from the winning capsule does not look like the input),
and the confidence (no class is active). Each gives a number for each image, the larger the stranger.
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
    """What a detector finds as its threshold falls.

    alarms: the share of known images taken for strange, found: that of strange ones, both [m], from 0 to 1. known,
    strange: how many images there are of each.
    """

    alarms: Tensor
    found: Tensor
    known: int
    strange: int

    @property
    def area(self) -> float:
        """The chance that a strange image gets a larger number than a known one: 0.5 is a guess, 1 is perfect."""
        return float(torch.trapezoid(self.found, self.alarms))

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the area; see `area_interval`."""
        return area_interval(self.area, self.known, self.strange)

    def found_at(self, alarms: float = FALSE_ALARMS) -> float:
        """The share of strange images found by the lowest threshold with no more false alarms than this."""
        check_range("Roc", "alarms", alarms, 0, 1)
        return float(self.found[self.alarms <= alarms].max())


def roc(known: Float[Tensor, " n"], strange: Float[Tensor, " m"]) -> Roc:
    """The curve of a detector that gave these numbers. Equal numbers pass a threshold together."""
    if not len(known) or not len(strange):
        raise input_error("roc", "known and strange images", f"{len(known)} and {len(strange)}", "Give some of each.")
    truth = torch.cat([torch.zeros(len(known)), torch.ones(len(strange))])
    alarms, found, _ = roc_curve(truth.numpy(), torch.cat([known, strange]).double().numpy(), drop_intermediate=False)
    return Roc(torch.from_numpy(alarms), torch.from_numpy(found), len(known), len(strange))


def area_interval(area: float, known: int, strange: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % interval of an area under the curve: all areas that would be within z deviations of the one seen.

    The deviation is that of Hanley and McNeil (1982), taken at the end of the interval, as in Newcombe (2006, method
    5): the interval stays from 0 to 1, and has a width where the area is 1.
    """
    more = (known + strange) / 2 - 1

    def apart(other: float) -> float:
        spread = 1 + more * ((1 - other) / (2 - other) + other / (1 + other))
        return (area - other) ** 2 - z * z * other * (1 - other) / (known * strange) * spread

    return _root(apart, 0.0, area), _root(apart, 1.0, area)


def _root(function: Callable[[float], float], outside: float, inside: float) -> float:
    """Where a function changes its sign, from above zero outside to below inside, by halving."""
    for _ in range(50):
        middle = (outside + inside) / 2
        outside, inside = (middle, inside) if function(middle) > 0 else (outside, middle)
    return inside


def strangeness(result: Evaluation) -> dict[str, Tensor]:
    """The numbers of each detector, [n]; a network without a decoder has its confidence alone."""
    numbers = {"confidence": 1 - result.activations.gather(1, result.predictions).amin(-1)}
    return (
        numbers if result.reconstruction_error is None else {"reconstruction": result.reconstruction_error, **numbers}
    )


def detect(known: Evaluation, strange: Evaluation) -> dict[str, Roc]:
    """How well each detector tells strange images from known ones."""
    ordinary, odd = strangeness(known), strangeness(strange)
    return {word: roc(ordinary[word], odd[word]) for word in ordinary}


def strange_images(model: ImageModel, data: InMemoryImages, kind: str, seed: int = 0) -> InMemoryImages:
    """As many strange images as there are known ones.

    noise: each pixel at random. jumbled: nine parts shuffled. attacked: changed by `bim` with epsilon 0.2, so that the
    network answers wrongly. scattered: the same changes at other pixels, at random, turned round where they would leave
    0 to 1, so that none is cut off; a detector that finds these as well notices changes of that size, not the attack.
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
    """Other images in the shape of these data: resized, gray or in color. Their labels are zeros and mean nothing."""
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
