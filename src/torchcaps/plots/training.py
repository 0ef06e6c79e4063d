"""Figures of training, by epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from torchcaps.plots.style import PALETTE


def training_figure(rows: Sequence[Mapping[str, str]]) -> Figure:
    """Loss and accuracy on the training and the validation part, from the rows of metrics.csv."""
    figure = Figure(figsize=(8.5, 3.2), layout="constrained")
    panels = figure.subplots(1, 2)
    epochs = [int(row["epoch"]) for row in rows]
    for axes, what in zip(panels, ("loss", "accuracy"), strict=True):
        for part, color in (("train", PALETTE[0]), ("validation", PALETTE[1])):
            values = [float(row[f"{part}_{what}"]) for row in rows]
            if not all(map(math.isnan, values)):
                axes.plot(epochs, values, "o-", color=color, ms=3.5, lw=1.6, label=part)
        axes.set_title(what, loc="left", fontsize=10)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(color="#dddddd", lw=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    panels[1].yaxis.set_major_formatter(PercentFormatter(1))
    panels[0].legend(frameon=False)
    return figure
