"""Figures of variants: a point for each seed and their mean, or curves over a numerical option."""

from __future__ import annotations

import math
from itertools import groupby

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, PercentFormatter

from torchcaps.analysis.comparison import Comparison, Variant
from torchcaps.plots.style import GRAY, PALETTE, plain


def comparison_figure(found: Comparison, title: str) -> Figure:
    """Curves if one of the options has at least three numerical values, otherwise a line for each variant."""
    axis = _number_axis(found)
    return _rows_figure(found, title) if axis is None else _curves_figure(found, axis, title)


def _number_axis(found: Comparison) -> int | None:
    """The option for the horizontal axis: the last one with at least three numerical values."""
    for place in reversed(range(len(found.names))):
        values = {variant.values[place] for variant in found.variants}
        if len(values) > 2 and all(_is_number(value) for value in values):
            return place
    return None


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _rows_figure(found: Comparison, title: str) -> Figure:
    figure = Figure(figsize=(7.5, 1.3 + 0.42 * len(found.variants)), layout="constrained")
    axes = figure.add_subplot()
    for row, variant in enumerate(found.variants):
        axes.plot(variant.scores, [row] * len(variant.scores), "o", color=PALETTE[0], alpha=0.45, ms=6, mew=0)
        axes.plot([variant.mean], [row], "|", color=PALETTE[1], ms=18, mew=2.5)
        axes.annotate(
            f"{variant.mean:.2%}", (variant.mean, row), xytext=(0, 11), textcoords="offset points",
            ha="center", fontsize=8, color=PALETTE[1],
        )  # fmt: skip
    names = [plain(", ".join(variant.values)) for variant in found.variants]
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_ylim(len(names) - 0.4, -0.75)
    axes.margins(x=0.08)
    axes.set_xlabel(f"{found.measure} on the test part: a point for each seed, a bar for their mean")
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=1))
    axes.grid(axis="x", color="#dddddd", lw=0.7)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_title(title, fontsize=10, color=GRAY, loc="left")
    return figure


def _curves_figure(found: Comparison, axis: int, title: str) -> Figure:
    figure = Figure(figsize=(7, 4.4), layout="constrained")
    axes = figure.add_subplot()

    def others(variant: Variant) -> tuple[str, ...]:
        return variant.values[:axis] + variant.values[axis + 1 :]

    lines = {key: list(group) for key, group in groupby(sorted(found.variants, key=others), key=others)}
    order = list(dict.fromkeys(others(variant) for variant in found.variants))
    for place, key in enumerate(order):
        line = sorted(lines[key], key=lambda variant: float(variant.values[axis]))
        color = PALETTE[place % len(PALETTE)]
        numbers = [float(variant.values[axis]) for variant in line]
        means, spread = [variant.mean for variant in line], [variant.deviation or 0 for variant in line]
        axes.errorbar(numbers, means, spread, color=color, marker="o", ms=5, capsize=3, lw=1.8, label=", ".join(key))
        for number, variant in zip(numbers, line, strict=True):
            axes.plot([number] * len(variant.scores), variant.scores, "o", color=color, alpha=0.3, ms=3, mew=0)
    numbers = sorted({float(variant.values[axis]) for variant in found.variants})
    if numbers[0] > 0 and numbers[-1] / numbers[0] > 20:
        axes.set_xscale("log")
    axes.set_xticks(numbers, [f"{number:,g}" for number in numbers])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel({"limit": "training examples"}.get(found.names[axis], found.names[axis]))
    axes.set_ylabel(f"{found.measure} on the test part")
    axes.grid(color="#dddddd", lw=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    if any(order[0]):
        axes.legend(frameon=False)
    axes.set_title(title, fontsize=10, color=GRAY, loc="left")
    return figure
