"""Where in an image the evidence for a class is: how far its activation falls when a region is covered.

Windows that slide over the image are covered with its mean color, one after another. The heat of a pixel is the mean
fall of the logit of the class over the windows that cover it (Zeiler and Fergus 2014). A deletion check tells whether
the map can be trusted: the hottest part is covered at once, and, to compare, parts of the same shape elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchcaps.analysis.evaluate import eval_mode

WINDOWS = 13  # to each side
SIDE = 4  # a window is a fourth of the image high and wide
PART = 0.1  # of the pixels, the hottest ones, that the check covers
ELSEWHERE = 24  # random places of a region of the same shape
BATCH = 64


@dataclass(frozen=True)
class Evidence:
    """Where the evidence for a class is.

    label: the class. heat: [h w], the fall of its logit; below zero where covering helps. hottest: truth values [h w]
    of the hottest part. activation: of the class. covered: the same with the hottest part covered. elsewhere: the mean
    with parts of the same shape covered in other places.
    """

    label: int
    heat: Tensor
    hottest: Tensor
    activation: float
    covered: float
    elsewhere: float


@torch.no_grad()
def evidence(model: nn.Module, image: Tensor, label: int, seed: int = 0) -> Evidence:
    """Where in an image [c h w] the evidence for a class is. seed: of the places that the check compares with."""
    color = image.mean((1, 2), keepdim=True)
    windows = _windows(*image.shape[1:])

    def activation(masks: Tensor) -> Tensor:
        """Activations [n] of the class with masks [n h w] covered."""
        found = [model(torch.where(few.unsqueeze(1), color, image)).activations[:, label] for few in masks.split(BATCH)]
        return torch.cat(found)

    with eval_mode(model):
        whole = activation(torch.zeros_like(windows[:1]))
        falls = log_odds(whole) - log_odds(activation(windows))
        covers = windows.to(image.dtype)
        heat = (falls[:, None, None] * covers).sum(0) / covers.sum(0)
        hottest = heat >= heat.flatten().quantile(1 - PART)
        covered = activation(hottest[None])
        others = activation(_elsewhere(hottest, seed))
    return Evidence(label, heat, hottest, float(whole), float(covered), float(others.mean()))


def log_odds(activations: Tensor) -> Tensor:
    """The logits of activations from 0 to 1, log a / (1 - a)."""
    return torch.logit(activations, eps=1e-6)


def _windows(height: int, width: int) -> Tensor:
    """Truth values [n h w]: windows in rows and columns that together cover every pixel."""
    rows, columns = (_spans(size) for size in (height, width))
    return (rows[:, None, :, None] & columns[None, :, None, :]).flatten(0, 1)


def _spans(size: int) -> Tensor:
    length = max(1, round(size / SIDE))
    starts = torch.linspace(0, size - length, min(WINDOWS, size - length + 1)).round().unsqueeze(1)
    places = torch.arange(size)
    return (places >= starts) & (places < starts + length)


def _elsewhere(region: Tensor, seed: int) -> Tensor:
    """The region [h w] rolled to random other places, [n h w]."""
    generator = torch.Generator().manual_seed(seed)
    height, width = region.shape
    down = torch.randint(height, (ELSEWHERE,), generator=generator).tolist()
    right = torch.randint(width, (ELSEWHERE,), generator=generator).tolist()
    return torch.stack([region.roll(shift, (0, 1)) for shift in zip(down, right, strict=True)])
