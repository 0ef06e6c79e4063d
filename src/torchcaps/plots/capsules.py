"""Figures of reconstructions: of an image, of right and wrong predictions, of overlapping objects, of changed poses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import pad

from torchcaps.analysis.perturb import Meanings, Sheet
from torchcaps.analysis.reconstruct import Cases, Drawing
from torchcaps.plots.style import GRAY, PALETTE, RIGHT, WRONG, plain, short, show_image

PAIR = (PALETTE[1], PALETTE[5])  # orange and sky blue: white where they overlap
SHOWN = 10  # classes with a map of their own, at most


def drawing_figure(drawing: Drawing, classes: Sequence[str], things: int = 1) -> Figure:
    """The image, and beside it its reconstructions from classes.

    If an image shows several objects, the first reconstructions are also shown together, each in its own color.
    """
    count = len(drawing.labels)
    together = int(things > 1)
    wide = 1.6 * (count + 1 + together) + 0.1
    high = 1.6 * drawing.image.shape[-2] / drawing.image.shape[-1] + 0.75
    figure = Figure(figsize=(wide, high), layout="constrained")
    axes = figure.subplots(1, count + 1 + together, squeeze=False)[0]
    show_image(axes[0], drawing.image)
    axes[0].set_title("image", fontsize=9)
    if together:
        show_image(axes[1], two_colors(drawing.drawn[:things]))
        names = " + ".join(short(plain(classes[label]), 8) for label in drawing.labels[:things])
        axes[1].set_title(names, fontsize=9, parse_math=False)
    rows = zip(drawing.labels, drawing.activations, drawing.reconstruction_errors, strict=True)
    for place, (label, activation, reconstruction_error) in enumerate(rows):
        own = axes[place + 1 + together]
        show_image(own, drawing.drawn[place])
        caption = f"{short(plain(classes[label]), 12)} ({activation:.2f})" + (
            "" if together else f"\nerror {reconstruction_error:.3f}"
        )
        own.set_title(caption, fontsize=9, parse_math=False)
    title = "the image, and reconstructions from class capsules (activation)"
    figure.suptitle(title, fontsize=9, color=GRAY)
    return figure


def triples_figure(cases: Cases, classes: Sequence[str], columns: int = 8) -> Figure:
    """Images above, reconstructions below, with (label, prediction, reconstructed class); mistakes are red."""
    count = len(cases.images)
    columns = min(columns, count)
    lines = -(-count // columns)
    brief = max(len(name) for name in classes) <= 3
    head = 0.3 if brief else 0.55
    high = lines * (2.04 + head) + 0.3
    figure = Figure(figsize=(1.05 * columns + 0.1, high))
    for place in range(count):
        line, column = divmod(place, columns)
        entries = [
            short(plain(classes[int(part[place, 0])]), 10) for part in (cases.labels, cases.answers, cases.sources)
        ]
        caption = f"({', '.join(entries)})" if brief else "\n".join(entries)
        right = bool(cases.labels[place, 0] == cases.answers[place, 0])
        top = high - 0.3 - line * (2.04 + head) - head
        for row, image in enumerate((cases.images[place], cases.drawn[place, 0])):
            place_of = ((0.05 + 1.05 * column) / (1.05 * columns + 0.1), (top - (row + 1) * 1.01) / high)
            axes = figure.add_axes((*place_of, 1.0 / (1.05 * columns + 0.1), 1.0 / high))
            show_image(axes, image)
            if row == 0:
                axes.set_title(caption, fontsize=8, pad=2, color=RIGHT if right else WRONG, parse_math=False)
    title = "images and reconstructions: (label, prediction, reconstructed class)"
    figure.text(0.5, 1 - 0.17 / high, title, ha="center", va="center", fontsize=9, color=GRAY)
    return figure


def apart_figure(cases: Cases, classes: Sequence[str]) -> Figure:
    """Images of two objects; the objects alone, and the reconstructions of their capsules, in two colors.

    An absent class is marked with a star; its object is black, and its reconstruction should be too.
    """
    count = len(cases.images)
    wide, high = 1.2 * count + 0.6, 4.55
    figure = Figure(figsize=(wide, high))
    sides = {"left": 0.6 / wide, "right": 0.995, "bottom": 0.02, "top": 1 - 0.95 / high}
    grid = figure.add_gridspec(3, count, hspace=0.04, wspace=0.04, **sides)
    for place in range(count):
        shown = set(cases.labels[place].tolist())
        sources = [name + ("" if number in shown else "*") for number, name in _named(cases.sources[place], classes)]
        labels, answers = (
            [name for _, name in _named(part[place].sort().values, classes)] for part in (cases.labels, cases.answers)
        )
        axes = [figure.add_subplot(grid[row, place]) for row in range(3)]
        show_image(axes[0], cases.images[place])
        show_image(axes[1], two_colors(cases.parts[place]))
        show_image(axes[2], two_colors(cases.drawn[place]))
        color = RIGHT if labels == answers else WRONG
        caption = f"labels {' + '.join(labels)}\nanswer {' + '.join(answers)}"
        axes[0].set_title(caption, fontsize=8, color=color, parse_math=False, pad=16)
        for side, name in enumerate(sources[:2]):
            x, align = ((0.47, "right"), (0.53, "left"))[side]
            axes[0].text(
                x, 1.03, name, color=_dark(side), fontsize=9, weight="bold", ha=align, transform=axes[0].transAxes
            )
        if place == 0:
            for row, name in enumerate(("image", "parts", "drawn")):
                axes[row].text(-0.08, 0.5, name, ha="right", va="center", fontsize=9, transform=axes[row].transAxes)
    title = "overlapping objects, each reconstructed from its capsule (* an absent class)"
    figure.text(0.5, 1 - 0.17 / high, title, ha="center", va="center", fontsize=9, color=GRAY)
    return figure


def sheet_figure(sheet: Sheet, classes: Sequence[str]) -> Figure:
    """A row for each pose dimension, changed from left to right; bars show the size of its effect."""
    dims, steps, _, height, width = sheet.drawn.shape
    cell = 0.52
    wide, high = 1.6 + cell * steps * width / height, 0.65 + cell * dims
    figure = Figure(figsize=(wide, high))
    bottom, top = 0.05 / high, 1 - 0.6 / high
    axes = figure.add_axes((0.6 / wide, bottom, 1 - 1.6 / wide, top - bottom))
    axes.imshow(tiles(sheet.drawn).movedim(0, -1).squeeze(-1).numpy(), cmap="gray", vmin=0, vmax=1, aspect="auto")
    for spine in axes.spines.values():
        spine.set_visible(False)
    rows = [(height + 1) * (row + 0.5) - 1 for row in range(dims)]
    columns = [(width + 1) * (column + 0.5) - 1 for column in range(steps)]
    offsets = [f"{round(float(offset), 4) + 0.0:+.2f}" for offset in sheet.offsets]
    axes.set_xticks(columns, offsets, fontsize=7)
    axes.set_yticks(rows, [str(row) for row in range(dims)], fontsize=9)
    axes.tick_params(length=0, top=True, bottom=False, labeltop=True, labelbottom=False, pad=2)
    axes.set_ylabel("dimension of the pose", fontsize=9)
    bars = figure.add_axes((1 - 0.92 / wide, bottom, 0.85 / wide, top - bottom))
    bars.barh(rows, sheet.effects.tolist(), height=0.4 * (height + 1), color=PALETTE[0])
    bars.set_ylim(axes.get_ylim())
    bars.set_axis_off()
    bars.set_title("change", fontsize=8, color=GRAY, pad=3, loc="left")
    what = f"the capsule of {plain(classes[sheet.label])} ({sheet.activation:.2f}), one dimension of its pose changed"
    figure.text(0.5, 1 - 0.2 / high, what, ha="center", va="center", fontsize=10, color=GRAY, parse_math=False)
    return figure


def tiles(images: Tensor) -> Tensor:
    """Images in rows and columns [d s c h w] as one [c H W], separated by white lines: gray, or in color."""
    if images.shape[2] == 2:
        images = images[:, :, :1]
    lined = pad(images.clamp(0, 1), (0, 1, 0, 1), value=1.0)
    return lined.permute(2, 0, 3, 1, 4).flatten(3).flatten(1, 2)[:, :-1, :-1]


def meanings_figure(meanings: Meanings) -> Figure:
    """Left: how strongly each dimension follows each factor, averaged over classes; right: each class, with signs."""
    classes = [label for label in range(len(meanings.classes)) if meanings.correlations[label].isfinite().any()][:SHOWN]
    rows = 1 if len(classes) <= 5 else 2
    columns = -(-len(classes) // rows)
    dims = meanings.correlations.shape[1]
    figure = Figure(figsize=(3.6 + 1.35 * columns, 1.6 + 0.27 * dims), layout="constrained")
    halves: Any = figure.subfigures(1, 2, width_ratios=(3.4, 1.35 * columns + 0.4))
    left, right = halves
    axes = left.add_subplot()
    strength = meanings.strength
    axes.imshow(strength.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for row in range(dims):
        for column in range(len(meanings.factors)):
            value = float(strength[row, column])
            shade = "white" if value > 0.55 else "black"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=shade)
    axes.set_yticks(range(dims))
    axes.set_ylabel("dimension of the pose")
    axes.set_title("mean |r| over classes", fontsize=9)
    _factor_ticks(axes, meanings)
    panels = right.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes in panels.flat[len(classes) :]:
        axes.set_axis_off()
    shown: Any = None
    for axes, label in zip(panels.flat, classes, strict=False):
        shown = axes.imshow(meanings.correlations[label].numpy(), cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
        axes.set_title(short(plain(meanings.classes[label]), 12), fontsize=9, pad=3, parse_math=False)
        _factor_ticks(axes, meanings)
    right.colorbar(shown, ax=panels, label="correlation r", shrink=0.6)
    figure.suptitle("which dimension of the pose follows which change of the image", fontsize=10, color=GRAY)
    return figure


def two_colors(things: Tensor) -> Tensor:
    """Objects [m c h w] as one color image, the first two in orange and blue, and a third one in gray."""
    colors = torch.tensor([to_rgb(color) for color in (*PAIR, "#808080")])[: len(things)]
    return torch.einsum("mhw,mc->chw", things[: len(colors)].mean(1), colors).clamp(max=1)


def _dark(side: int) -> str:
    """The color of an object, readable on white."""
    return (PALETTE[1], PALETTE[0])[side]


def _named(labels: Tensor, classes: Sequence[str]) -> list[tuple[int, str]]:
    return [(label, short(plain(classes[label]), 8)) for label in labels.tolist()]


def _factor_ticks(axes: Any, meanings: Meanings) -> None:
    axes.set_xticks(range(len(meanings.factors)), meanings.factors, rotation=90, fontsize=7)
    axes.tick_params(axis="y", labelsize=7)
