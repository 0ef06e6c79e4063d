"""Figures of attacks: accuracy as a function of epsilon, and changed images with their predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from torchcaps.analysis.attacks import AttackCurve, AttackExamples, AttackPoint
from torchcaps.analysis.evaluate import hits, top_classes
from torchcaps.plots.style import GRAY, PALETTE, RIGHT, WRONG, plain, short, show_image

LINES = {"fgsm": "-", "bim": "--", "pgd": ":"}
MARKS = {"fgsm": "o", "bim": "s", "pgd": "^"}


def attack_figure(curves: Mapping[str, Sequence[AttackCurve]], source: str | None = None) -> Figure:
    """A line for each run (color) and method (dashes) with its 95 % interval; also the fractions that reach targets.

    source: the run that the changes were computed on, if another.
    """
    targeted = next(iter(curves.values()))[0].points[0].driven is not None
    figure = Figure(figsize=(10.4 if targeted else 6.4, 4.2), layout="constrained")
    panels = figure.subplots(1, 2 if targeted else 1, squeeze=False)[0]
    for place, (name, found) in enumerate(curves.items()):
        for curve in found:
            look = {"color": PALETTE[place % len(PALETTE)], "ls": LINES[curve.method], "marker": MARKS[curve.method]}
            label = f"{plain(name)}, {curve.method}"
            _line(panels[0], curve.points, [(p.accuracy, *p.interval) for p in curve.points], label, look)
            if targeted:
                rates = [(p.success or 0.0, *(p.success_interval or (0.0, 0.0))) for p in curve.points]
                _line(panels[1], curve.points, rates, label, look)
    what = "towards a random class" if targeted else "away from the truth"
    made = "" if source is None else f"\n(changes made on {plain(source)})"
    panels[0].set_title(f"accuracy when pixels move {what}{made}", fontsize=11, parse_math=False)
    if targeted:
        panels[1].set_title("share answered with the target", fontsize=11)
    for axes in panels:
        axes.set_xlabel("epsilon, the most that a pixel changes (0 to 1)")
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.set_ylim(-0.03, 1.03)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False, fontsize=9)
    return figure


def _line(axes: Any, points: Sequence[AttackPoint], rates: Sequence[tuple[float, ...]], label: str, look: Any) -> None:
    epsilons = [point.epsilon for point in points]
    middle, low, high = zip(*rates, strict=True)
    axes.plot(epsilons, middle, label=label, markersize=5, **look)
    axes.fill_between(epsilons, low, high, color=look["color"], alpha=0.12, linewidth=0)


def attack_examples_figure(examples: AttackExamples, method: str) -> Figure:
    """Rows are examples, columns epsilons; above each image the prediction and its activation, green if it is right."""
    columns, rows = examples.images.shape[:2]
    figure = Figure(figsize=(1.35 * columns + 0.9, 1.5 * rows + 0.75))
    grid = figure.subplots(rows, columns, squeeze=False)
    figure.subplots_adjust(left=0.9 / (1.35 * columns + 0.9), right=0.99, bottom=0.01, wspace=0.06, hspace=0.26)
    figure.subplots_adjust(top=1 - 0.85 / (1.5 * rows + 0.75))
    for column, epsilon in enumerate(examples.epsilons):
        active = examples.activations[column]
        right = hits(active, examples.labels)
        best = top_classes(active, 1 if examples.labels.ndim == 1 else examples.labels.shape[-1])
        for row in range(rows):
            axes = grid[row, column]
            show_image(axes, examples.images[column, row])
            caption = f"{_names(examples, best[row])} ({active[row, best[row]].min():.2f})"
            color = RIGHT if right[row] else WRONG
            axes.set_title(caption, fontsize=8, pad=2, color=color, parse_math=False)
            if column == 0:
                truth = _names(examples, examples.labels[row].view(-1))
                if examples.targets is not None:
                    truth += f"\n→ {_names(examples, examples.targets[row].view(-1))}"
                axes.text(-0.1, 0.5, truth, transform=axes.transAxes, ha="right", va="center", parse_math=False)
        top = "as it is" if epsilon == 0 else f"ε = {epsilon:g}"
        grid[0, column].text(0.5, 1.25, top, transform=grid[0, column].transAxes, ha="center", fontsize=10)
    figure.suptitle(f"{method}: answer (activation) as pixels change by up to ε", fontsize=10, color=GRAY, y=0.995)
    return figure


def _names(examples: AttackExamples, places: Any) -> str:
    return "+".join(sorted(short(plain(examples.classes[place]), 10) for place in places.tolist()))
