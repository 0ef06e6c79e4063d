"""Figures of jumbled images: the images with their predictions, and the confidence of a network."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.analysis.images import InMemoryImages
from torchcaps.analysis.jumble import JumbleResult
from torchcaps.plots.style import GRAY, PALETTE, RIGHT, WRONG, plain, short, show_image

TITLES = {"2x2": "2 x 2 shuffled", "3x3": "3 x 3 shuffled", "rows": "rows shuffled", "mirrored": "parts mirrored"}


def jumble_figure(sets: Mapping[str, InMemoryImages], results: Mapping[str, JumbleResult], chosen: Tensor) -> Figure:
    """Examples in rows, methods in columns; above each the prediction and its activation, green if right."""
    rows, columns = len(chosen), len(sets)
    long = max(map(len, sets["whole"].classes)) > 2  # the names of two objects are on two lines
    width, height = 1.5 * columns + 0.1, (1.86 if long else 1.72) * rows + 0.75
    figure = Figure(figsize=(width, height))
    grid = figure.subplots(rows, columns, squeeze=False)
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.01, top=1 - (1 if long else 0.85) / height, wspace=0.06)
    figure.subplots_adjust(hspace=0.32 if long else 0.2)
    for column, (kind, shown) in enumerate(sets.items()):
        result = results[kind].evaluation
        for place, row in enumerate(chosen.tolist()):
            axes = grid[place, column]
            show_image(axes, shown.images[row])
            answers = [
                f"{short(plain(shown.classes[label]), 10)} ({result.activations[row, label]:.2f})"
                for label in result.predictions[row].tolist()
            ]
            color = RIGHT if result.right[row] else WRONG
            axes.set_title(("\n" if long else " ").join(answers), fontsize=8.5, pad=2, color=color, parse_math=False)
        top = grid[0, column]
        top.text(0.5, 1.34 if long else 1.22, TITLES.get(kind, kind), transform=top.transAxes, ha="center", fontsize=10)
    figure.suptitle("answer (activation) to whole and jumbled images", fontsize=10, color=GRAY, y=0.995)
    return figure


def confidence_figure(results: Mapping[str, Mapping[str, JumbleResult]]) -> Figure:
    """For each run a row: histograms of the confidence on whole images (gray) and on jumbled ones (color)."""
    kinds = [kind for kind in next(iter(results.values())) if kind != "whole"]
    figure = Figure(figsize=(2.3 * len(kinds) + 0.6, 1.9 * len(results) + 0.9), layout="constrained")
    grid = figure.subplots(len(results), len(kinds), squeeze=False, sharex=True, sharey=True)
    edges = [place / 20 for place in range(21)]
    for row, (name, found) in enumerate(results.items()):
        for column, kind in enumerate(kinds):
            axes = grid[row, column]
            for which, color, filled in (("whole", GRAY, "stepfilled"), (kind, PALETTE[row % len(PALETTE)], "step")):
                values = found[which].confidence.clamp(0, 1).numpy()
                share = [1 / len(values)] * len(values)
                alpha, line = (0.35, 0) if filled == "stepfilled" else (1, 1.8)
                axes.hist(values, edges, weights=share, color=color, histtype=filled, alpha=alpha, linewidth=line)
            mean = float(found[kind].confidence.mean())
            axes.axvline(mean, color=PALETTE[row % len(PALETTE)], linestyle=":", linewidth=1)
            behind = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            axes.text(0.04, 0.88, f"mean {mean:.2f}", transform=axes.transAxes, fontsize=8.5, bbox=behind)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_xlim(0, 1)
            if row == 0:
                axes.set_title(TITLES.get(kind, kind), fontsize=10)
        grid[row, 0].set_ylabel(plain(name), parse_math=False)
    figure.supxlabel("confidence: activation of the predicted class (of the second, side by side)", fontsize=9)
    figure.suptitle("share of images by confidence: whole (gray) and jumbled (line)", fontsize=10, color=GRAY)
    return figure
