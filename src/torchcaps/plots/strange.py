"""Figures of detectors: the ROC curve of each for each kind of strange images, and an example image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from torchcaps.analysis.images import InMemoryImages
from torchcaps.analysis.strange import FALSE_ALARMS, Roc
from torchcaps.plots.style import GRAY, PALETTE, plain, show_image


def roc_figure(results: Mapping[str, Mapping[str, Roc]], strange: Mapping[str, InMemoryImages]) -> Figure:
    """A panel for each kind of strange examples, a line for each detector; the dotted line is at 5 % false alarms.

    An example and the legend are above each curve. strange: images; none for texts.
    """
    across = 2 if len(results) == 4 else min(3, len(results))
    down = -(-len(results) // across)
    figure = Figure(figsize=(3.6 * across + 0.4, 4.4 * down + 0.1))
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.08)
    grid = figure.add_gridspec(down, across)
    for place, (kind, found) in enumerate(results.items()):
        halves: Any = grid[divmod(place, across)].subgridspec(2, 1, height_ratios=(1, 4)).subplots()
        head, axes = halves
        for number, (word, curve) in enumerate(found.items()):
            label = f"{word}\narea {curve.area:.3f} ({curve.interval[0]:.3f} to {curve.interval[1]:.3f})"
            axes.plot(curve.alarms, curve.found, color=PALETTE[number], label=label, linewidth=2 - 0.4 * number)
        axes.plot([0, 1], [0, 1], color=GRAY, linewidth=0.8, linestyle="--")
        axes.axvline(FALSE_ALARMS, color=GRAY, linewidth=0.8, linestyle=":")
        head.set_title(plain(kind), fontsize=11, parse_math=False)
        axes.set_xlabel("known examples taken for strange")
        axes.set_ylabel("strange examples found")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(PercentFormatter(1))
        axes.set_aspect("equal")
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
        axes.spines[["top", "right"]].set_visible(False)
        if kind in strange:
            show_image(head.inset_axes((0, 0, 0.28, 1)), strange[kind].images[0])
        head.legend(*axes.get_legend_handles_labels(), frameon=False, fontsize=8, loc="center right")
        head.set_axis_off()
    return figure
