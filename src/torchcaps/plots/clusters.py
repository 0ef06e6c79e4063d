"""Figures of routing on points in the plane: every iteration, degrees of membership, and animations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from torch import Tensor

from torchcaps.analysis.clusters import ClusterTrace
from torchcaps.functional import unit
from torchcaps.plots.style import GRAY, PALETTE, save_frames

NOBODY = "#dddddd"  # for the share of a point that belongs to no parent


def color_of(parent: int) -> str:
    """The color of a parent."""
    return PALETTE[parent % len(PALETTE)]


def blended(couplings: Float[Tensor, "i j"]) -> Float[Tensor, "i 3"]:
    """The colors of the parents, mixed by the couplings of each point; the share of no parent is light gray."""
    colors = torch.tensor([to_rgb(color_of(parent)) for parent in range(couplings.shape[1])], dtype=couplings.dtype)
    left = (1 - couplings.sum(1, keepdim=True)).clamp(min=0)
    return (couplings @ colors + left * torch.tensor(to_rgb(NOBODY), dtype=couplings.dtype)).clamp(0, 1)


def title_of(trace: ClusterTrace) -> str:
    """The routing with its options."""
    return ", ".join([trace.routing, *(f"{word}={value}" for word, value in trace.options.items())])


def clusters_figure(traces: Sequence[ClusterTrace], columns: int = 5) -> Figure:
    """A row for each routing: iterations from left to right (at most `columns`, evenly spaced), then its objective.

    Points have the colors of their parents, mixed by couplings; a cross is a center, with its path so far; an arrow is
    a direction, its length the activation; ellipses are one and two standard deviations.
    """
    shown = [_evenly(len(trace.steps), columns) for trace in traces]
    wide = max(map(len, shown))
    known = any(step.objective is not None for trace in traces for step in trace.steps)
    high = 2.45 if wide > 2 else 3.2
    figure = Figure(figsize=(high * (wide + 1.1 * known), (high + 0.3) * len(traces) + 0.35), layout="constrained")
    grid = figure.subplots(len(traces), wide + known, squeeze=False)
    for row, trace, numbers in zip(grid, traces, shown, strict=True):
        for axes in row[len(numbers) : wide]:
            axes.set_axis_off()
        for axes, number in zip(row, numbers, strict=False):
            draw_step(axes, trace, number)
            axes.set_title(f"iteration {number + 1}", fontsize=9, color=GRAY)
        row[0].set_ylabel(title_of(trace), fontsize=10)
        if known:
            _draw_objective(row[-1], trace, len(trace.steps))
    figure.suptitle("each point has the colors of its parents, mixed by its couplings", fontsize=9, color=GRAY)
    return figure


def membership_figure(trace: ClusterTrace) -> Figure:
    """The last iteration, and beside it every point as a stacked bar of its couplings."""
    couplings = trace.steps[-1].couplings
    figure = Figure(figsize=(9.4, 3.9), layout="constrained")
    plane, bars = figure.subplots(1, 2, width_ratios=[1, 1.35])
    draw_step(plane, trace, len(trace.steps) - 1, size=30)
    plane.set_title(f"{title_of(trace)}: iteration {len(trace.steps)}", fontsize=10)
    order = _by_membership(couplings)
    below = torch.zeros(len(order))
    for parent in range(couplings.shape[1]):
        share = couplings[order, parent].float()
        bars.bar(
            range(len(order)), share, width=1.0, bottom=below, color=color_of(parent), label=f"parent {parent + 1}"
        )
        below = below + share
    bars.set_xlim(-0.5, len(order) - 0.5)
    bars.set_ylim(0, 1)
    bars.set_xlabel("points, in the order of their membership")
    bars.set_ylabel("couplings")
    bars.set_title("each point is a bar: its couplings to the parents", fontsize=10)
    bars.legend(loc="upper right", fontsize=8, framealpha=1)
    return figure


def cluster_frames(traces: Sequence[ClusterTrace]) -> list[Figure]:
    """One frame for each iteration, the routings side by side, without interpolation."""
    last = max(len(trace.steps) for trace in traces)
    return [_frame(traces, number) for number in range(last)]


def save_clusters_gif(traces: Sequence[ClusterTrace], path: Path) -> Path:
    """The iterations as an animation; each is shown for a second, the last for three."""
    frames = cluster_frames(traces)
    return save_frames(frames, path, [1.0] * (len(frames) - 1) + [3.0])


def draw_step(axes: Any, trace: ClusterTrace, number: int, size: float = 14) -> None:
    """The points, centers, paths and ellipses of one iteration."""
    step = trace.steps[number]
    colors = blended(step.couplings)
    axes.scatter(*trace.points.T, s=size, color=colors.numpy(), linewidths=0.3, edgecolors="white", zorder=2)
    for parent in range(step.couplings.shape[1]):
        color = color_of(parent)
        way = torch.stack([earlier.centers[parent] for earlier in trace.steps[: number + 1]])
        if trace.directional:
            for index in range(number + 1):
                _arrow(axes, _tips(trace, index)[parent], color, faint=index < number)
        else:
            axes.plot(*way.T, color="black", linewidth=2.4, zorder=3)
            axes.plot(*way.T, color=color, linewidth=1.2, marker=".", markersize=3, zorder=4)
            axes.plot(*way[-1], "X", color=color, markersize=9, markeredgecolor="black", zorder=5)
        if step.covariances is not None:
            _ellipses(axes, step.centers[parent], step.covariances[parent], color)
    room = torch.cat([trace.points, *(_tips(trace, index) for index in range(len(trace.steps)) if trace.directional)])
    low, high = room.min(0).values, room.max(0).values
    (x, y), half = ((low + high) / 2).tolist(), 0.56 * float((high - low).max()) or 1.0
    axes.set(xlim=(x - half, x + half), ylim=(y - half, y + half), aspect="equal")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color("#cccccc")


def _frame(traces: Sequence[ClusterTrace], number: int) -> Figure:
    figure = Figure(figsize=(4.4 * len(traces), 5.4), layout="constrained")
    grid = figure.subplots(2, len(traces), squeeze=False, height_ratios=[4, 1])
    for axes, below, trace in zip(*grid, traces, strict=True):
        now = min(number, len(trace.steps) - 1)
        draw_step(axes, trace, now, size=24)
        axes.set_title(f"{title_of(trace)}: iteration {now + 1} of {len(trace.steps)}", fontsize=11)
        _draw_objective(below, trace, now + 1)
    return figure


def _draw_objective(axes: Any, trace: ClusterTrace, count: int) -> None:
    """The objective after the first `count` iterations."""
    values = [step.objective for step in trace.steps]
    if None in values:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no objective known", ha="center", va="center", color=GRAY, fontsize=9)
        return
    places = range(1, count + 1)
    axes.plot(places, values[:count], color=GRAY, marker="o", markersize=3.5)
    axes.set_xlim(0.7, len(values) + 0.3)
    known = [value for value in values if value is not None]
    room = 0.08 * (max(known) - min(known)) or 1.0
    axes.set_ylim(min(known) - room, max(known) + room)
    axes.set_title("objective", fontsize=9, color=GRAY)
    axes.tick_params(labelsize=7)
    axes.set_xticks(range(1, len(values) + 1, -(-len(values) // 8)))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _tips(trace: ClusterTrace, number: int) -> Tensor:
    """The ends of the arrows [j 2]: directions of parents, scaled by activation relative to the farthest point."""
    step = trace.steps[number]
    return float(trace.points.norm(dim=1).max()) * step.activations.unsqueeze(1) * unit(step.centers)


def _arrow(axes: Any, tip: Tensor, color: str, *, faint: bool) -> None:
    look = {"color": color, "alpha": 0.3, "linewidth": 1.0} if faint else {"color": color, "linewidth": 2.2}
    style = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 8 if faint else 14, **look}
    axes.annotate("", tip.tolist(), (0, 0), arrowprops=style, zorder=3 if faint else 4)


def _ellipses(axes: Any, center: Tensor, covariance: Tensor, color: str) -> None:
    """One and two standard deviations."""
    variances, turned = torch.linalg.eigh(covariance)
    angle = float(torch.rad2deg(torch.atan2(turned[1, 1], turned[0, 1])))
    for times, alpha in ((1, 0.9), (2, 0.45)):
        height, width = (2 * times * variances.clamp(min=0).sqrt()).tolist()
        look = {"fill": False, "color": color, "alpha": alpha, "linewidth": 1.3, "zorder": 3}
        axes.add_patch(Ellipse((float(center[0]), float(center[1])), width, height, angle=angle, **look))


def _evenly(count: int, most: int) -> list[int]:
    """At most `most` of the first `count` numbers, evenly spaced, with the first and the last."""
    if count <= most:
        return list(range(count))
    return [round(place * (count - 1) / (most - 1)) for place in range(most)]


def _by_membership(couplings: Tensor) -> list[int]:
    """The order of points from the largest membership in the first parent to that in the last."""
    parents = torch.arange(couplings.shape[1], dtype=couplings.dtype)
    place = couplings @ parents
    return [int(index) for index in place.argsort()]
