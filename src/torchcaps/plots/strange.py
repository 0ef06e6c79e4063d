"""Pictures of detectors: the curve of each against each kind of strange images, and one of these images."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from torchcaps.analysis.shown import Shown
from torchcaps.analysis.strange import FALSE_ALARMS, Roc
from torchcaps.plots.style import GREY, PALETTE, plain, show_image


def roc_figure(results: Mapping[str, Mapping[str, Roc]], strange: Mapping[str, Shown]) -> Figure:
    """A panel for each kind of strange images, a line for each detector; the dotted line is at 5 % false alarms."""
    across = min(3, len(results))
    down = -(-len(results) // across)
    figure = Figure(figsize=(3.5 * across + 0.4, 3.6 * down + 0.3), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).flatten()
    for axes, (kind, found) in zip(panels, results.items(), strict=False):
        for place, (word, curve) in enumerate(found.items()):
            label = f"{word}, area {curve.area:.3f}"
            axes.plot(curve.alarms, curve.found, color=PALETTE[place], label=label, linewidth=2 - 0.4 * place)
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle="--")
        axes.axvline(FALSE_ALARMS, color=GREY, linewidth=0.8, linestyle=":")
        axes.set_title(plain(kind), fontsize=11, parse_math=False)
        axes.set_xlabel("known images taken for strange")
        axes.set_ylabel("strange images found")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(PercentFormatter(1))
        axes.set_aspect("equal")
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8.5, loc="lower right")
        show_image(axes.inset_axes((0.62, 0.24, 0.34, 0.34)), strange[kind].images[0])
    for axes in panels[len(results) :]:
        axes.set_axis_off()
    return figure
