"""Segmentation of overlapping objects: each class capsule reconstructs its own, an absent class nothing.

Sabour, Frosst, Hinton 2017, section 6 and figure 5.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator

from torchcaps._core.errors import input_error
from torchcaps._core.progress import bar
from torchcaps.analysis.evaluate import in_eval_mode, shown_classes
from torchcaps.analysis.reconstruct import Cases, check_decoder, draw_cases, draw_from, first_answers
from torchcaps.data import Examples
from torchcaps.models import ImageModel


@dataclass(frozen=True)
class Presence:
    """Reconstructions of present and absent classes, over `count` images.

    error: the mean squared error of a reconstruction to the object alone; blank: that of a black image. present,
    absent: the mean pixel of reconstructions of present and of absent classes; parts: that of the objects themselves.
    """

    count: int
    error: float
    blank: float
    present: float
    absent: float
    parts: float


@torch.no_grad()
def take_apart(model: ImageModel, data: Examples, right: int = 4, wrong: int = 2, absent: int = 2) -> Cases:
    """Reconstruct the single objects of images of several.

    right: images whose classes were all found. wrong: mistakes, each reconstructed from its answer and from its labels.
    absent: further images, whose last object is reconstructed from a random class that is neither present nor in the
    answer.
    """
    _check_pairs("take_apart", model, data)
    good, bad = first_answers(model, data, right + absent, wrong)
    rows = good[:right] + [row for row in bad for _ in range(2)] + good[right:]
    cases = draw_cases(model, data, rows)
    sources = cases.labels.clone()
    mistakes = slice(len(good[:right]), len(good[:right]) + 2 * len(bad), 2)
    sources[mistakes] = cases.answers[mistakes]
    if good[right:]:
        last = slice(len(rows) - len(good[right:]), None)
        chances = torch.rand(len(good[right:]), model.classes, generator=Generator().manual_seed(0))
        sources[last, -1] = chances.masked_fill(shown_classes(cases.labels[last], model.classes), 0).argmax(-1)
    return draw_cases(model, data, rows, sources)


@in_eval_mode
@torch.no_grad()
def presence(model: ImageModel, data: Examples, count: int = 500) -> Presence:
    """Reconstruct the first images from every class, and compare present classes with absent ones."""
    _check_pairs("presence", model, data)
    device = next(model.parameters()).device
    count = min(count, len(data))
    sums = dict.fromkeys(("error", "blank", "present", "absent", "parts"), 0.0)
    for rows in bar(torch.arange(count).split(64), "drawing every class"):
        batch = data.batch(rows)
        assert batch.parts is not None
        everything = torch.arange(model.classes, device=device).expand(len(rows), -1)
        drawn = draw_from(model, model(batch.inputs.to(device)), everything).cpu()  # [b y c h w]
        shown = shown_classes(batch.labels, model.classes)
        theirs = drawn[torch.arange(len(rows))[:, None], batch.labels]  # [b m c h w]
        values = {
            "error": (theirs - batch.parts).square().mean(),
            "blank": batch.parts.square().mean(),
            "present": theirs.mean(),
            "absent": drawn[~shown].mean(),
            "parts": batch.parts.mean(),
        }
        for name, value in values.items():
            sums[name] += float(value) * len(rows) / count
    return Presence(count, **sums)


def _check_pairs(owner: str, model: ImageModel, data: Examples) -> None:
    check_decoder(owner, model)
    if data.batch(torch.arange(1)).parts is None:
        raise input_error(owner, "images of several objects, each known alone", "others", "Use a run on multimnist.")
