"""The stages of a network, from an image to its classes and its reconstruction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.analysis.stages import Stage
from torchcaps.plots.style import GRAY, plain, short, show_image

TILES = 16  # channels, or types of capsules, that a stage shows


def stages_figure(stages: Sequence[Stage], classes: Sequence[str], title: str) -> Figure:
    """A panel for each stage, and between them what is computed.

    Channels are the 16 strongest of a map; capsules are shown by their activations, class capsules by their poses.
    """
    widths = [width for stage in stages for width in (1.15, 0.95)][1:]
    figure = Figure(figsize=(1.3 * sum(widths), 2.6), layout="constrained")
    panels = figure.subplots(1, len(widths), width_ratios=widths)
    for number, stage in enumerate(stages):
        axes = panels[2 * number]
        if stage.poses is not None:
            _classes(axes, stage, classes)
        elif stage.name in ("image", "reconstruction"):
            show_image(axes, stage.maps)
        else:
            axes.imshow(mosaic(stage.maps).numpy(), cmap="viridis", interpolation="nearest")
            axes.set(xticks=[], yticks=[])
        axes.set_title(stage.name.replace(" ", "\n"), fontsize=9)
        axes.text(0.5, -0.06, _size(stage), transform=axes.transAxes, ha="center", va="top", fontsize=8, color=GRAY)
        if number:
            _arrow(panels[2 * number - 1], stage.how)
    figure.suptitle(title, fontsize=10, color=GRAY, parse_math=False)
    return figure


def mosaic(maps: Tensor) -> Tensor:
    """The strongest maps [n h w] as tiles of a square, divided by thin lines; a vector [1 1 n] as rows."""
    if maps.shape[:2] == (1, 1):
        wide = math.ceil(math.sqrt(maps.shape[2]))
        filled = torch.nn.functional.pad(maps.flatten(), (0, -maps.shape[2] % wide), value=math.nan)
        return filled.view(-1, wide)
    best = maps.flatten(1).square().sum(1).topk(min(TILES, len(maps))).indices.sort().values
    side = math.ceil(math.sqrt(len(best)))
    _, height, width = maps.shape
    gap = max(1, height // 12)
    canvas = torch.full((side * (height + gap) - gap, side * (width + gap) - gap), math.nan)
    for place, index in enumerate(best.tolist()):
        top, left = place // side * (height + gap), place % side * (width + gap)
        canvas[top : top + height, left : left + width] = maps[index]
    return canvas


def _classes(axes: Any, stage: Stage, classes: Sequence[str]) -> None:
    assert stage.poses is not None
    assert stage.activations is not None
    most = float(stage.poses.abs().max())
    axes.imshow(stage.poses.numpy(), cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
    best = int(stage.activations.argmax())
    active = stage.activations.tolist()
    names = [f"{short(plain(name), 10)}  {value:.2f}" for name, value in zip(classes, active, strict=True)]
    if len(names) <= 16:
        axes.set_yticks(range(len(names)), names, fontsize=7)
        axes.get_yticklabels()[best].set_weight("bold")
        axes.tick_params(length=0)
    axes.set_xticks([])
    axes.set_box_aspect(1)


def _size(stage: Stage) -> str:
    if "capsules" not in stage.name:
        return " x ".join(map(str, stage.shape))
    *grid, pose = stage.shape
    return f"{' x '.join(map(str, grid))}\nposes of {pose}"


def _arrow(axes: Any, how: str) -> None:
    axes.set_axis_off()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.annotate("", (0.95, 0.5), (0.05, 0.5), arrowprops={"arrowstyle": "-|>", "color": GRAY, "linewidth": 1.2})
    axes.text(0.5, 0.56, how, ha="center", va="bottom", fontsize=8, color=GRAY)
