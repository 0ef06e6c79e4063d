"""Figures of one child divided among its parents, one parent with its children, and votes that agree or do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Curve
from torch import Tensor

from torchcaps.analysis.sharing import Agreement, Sharing
from torchcaps.plots.style import GRAY, PALETTE, WRONG, plain, show_image

VOTE, POSE = PALETTE[1], "#6a3d9a"
THICK = 30.0  # points: the width of a whole


def sharing_figure(shown: Sharing, image: Float[Tensor, "c h w"], classes: Sequence[str], count: int = 10) -> Figure:
    """Left: one child's output, divided among its parents. Right: one parent's input, from its strongest children.

    The width of a ribbon is the coupling (left) or the part of the sum (right); negative parts are red.
    """
    figure = Figure(figsize=(12.5, 5.4), layout="constrained")
    picture, split, receive = figure.subplots(1, 3, width_ratios=[0.8, 1.5, 1.7])
    show_image(picture, image)
    picture.set_title("the image", fontsize=10, color=GRAY)
    parents = [f"{plain(classes[parent])}   {value:.2f}" for parent, value in enumerate(shown.couplings.tolist())]
    total = float(shown.couplings.sum())
    _fan(split, f"child {shown.child}", parents, shown.couplings, outward=True, colors=_colors(shown))
    split.set_title(f"child {shown.child} is split among its parents:\nits couplings sum to {total:.2f}", fontsize=10)
    order = shown.parts.abs().argsort(descending=True)
    strongest, rest = order[:count], order[count:]
    names = [f"child {child}   {float(shown.parts[child]):+.1%}" for child in strongest.tolist()]
    values = shown.parts[strongest]
    if len(rest):
        names.append(f"{len(rest):,} more   {float(shown.parts[rest].sum()):+.1%}")
        values = torch.cat([values, shown.parts[rest].sum(0, keepdim=True)])
    name = plain(classes[shown.parent])
    colors = [_tint(shown.parent)] * len(strongest) + ["#bbbbbb"] * bool(len(rest))
    _fan(receive, name, names, values, outward=False, colors=colors)
    length, active = float(shown.received.norm()), float(shown.activations[shown.parent])
    title = f"parent {name} receives s = Σ c u from all children:\nlength {length:.2f}, activation {active:.2f}"
    receive.set_title(title, fontsize=10, parse_math=False)
    if bool((shown.couplings < 0).any() or (values < 0).any()):
        figure.supxlabel("red: negative, against the parent", fontsize=9, color=WRONG)
    return figure


def agreement_figure(shown: Agreement, classes: Sequence[str]) -> Figure:
    """Two parents: the votes for each as thin arrows, its output bold in purple, the marked child's vote in orange."""
    figure = Figure(figsize=(10.5, 5.4), layout="constrained")
    for place, axes in enumerate(figure.subplots(1, 2)):
        votes, marked = shown.votes[place], shown.marked[place]
        reach = float(torch.cat([votes, marked[None]]).norm(dim=1).max()) or 1.0
        for vote in votes:
            _arrow(axes, vote, "#999999", 1.0)
        _arrow(axes, torch.tensor([reach, 0.0]), POSE, 4.0)
        _arrow(axes, marked, VOTE, 3.0)
        axes.plot(0, 0, "o", color="black", markersize=4)
        axes.set(xlim=(-1.15 * reach, 1.15 * reach), ylim=(-1.15 * reach, 1.15 * reach), aspect="equal")
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_color("#cccccc")
        name = plain(classes[shown.parents[place]])
        before, after = float(shown.before[place]), float(shown.after[place])
        cosine = float(shown.cosines[place])
        word = "agrees with" if cosine > 0 else "opposes"
        title = f"child {shown.child} {word} {name}: cosine {cosine:+.2f}, coupling {before:.3f} → {after:.3f}"
        axes.set_title(title, fontsize=10, parse_math=False)
        held = f"the plane holds {float(shown.held[place]):.0%} of the votes"
        axes.set_xlabel(f"to the right: agreement with {name}; {held}", fontsize=9, color=GRAY, parse_math=False)
    figure.suptitle(
        "purple: a parent's direction    orange: one child's votes    gray: strong votes of others", fontsize=9
    )
    return figure


def _tint(parent: int) -> str:
    return PALETTE[parent % len(PALETTE)]


def _colors(shown: Sharing) -> list[str]:
    return [_tint(parent) for parent in range(len(shown.couplings))]


def _fan(axes: Any, hub: str, names: list[str], widths: Tensor, *, outward: bool, colors: list[str]) -> None:
    """Ribbons between one capsule and many, from left to right; the hub is on the left if outward is true."""
    axes.set(xlim=(-0.35, 1.75) if outward else (-0.95, 1.35), ylim=(len(names) - 0.4, -0.6))
    axes.set_axis_off()
    middle = (len(names) - 1) / 2
    for row, (name, width, color) in enumerate(zip(names, widths.tolist(), colors, strict=True)):
        near, far = (
            (middle + 0.04 * (row - middle), float(row)) if outward else (float(row), middle + 0.04 * (row - middle))
        )
        _ribbon(axes, near, far, abs(width), color if width >= 0 else WRONG)
        place, side = (1.04, "left") if outward else (-0.04, "right")
        axes.text(place, row, name, ha=side, va="center", fontsize=9, parse_math=False)
    x = 0.0 if outward else 1.0
    axes.text(
        *(x, middle),
        hub.replace("child ", ""),
        ha="center",
        va="center",
        color="white",
        weight="bold",
        fontsize=9,
        parse_math=False,
        bbox={"boxstyle": "circle,pad=0.5", "facecolor": GRAY, "edgecolor": "none"},
        zorder=5,
    )


def _ribbon(axes: Any, left: float, right: float, share: float, color: str) -> None:
    curve = Curve([(0, left), (0.5, left), (0.5, right), (1, right)], [Curve.MOVETO, *([Curve.CURVE4] * 3)])
    axes.add_patch(PathPatch(curve, fill=False, edgecolor=color, linewidth=THICK * share, alpha=0.75, capstyle="butt"))


def _arrow(axes: Any, tip: Tensor, color: str, width: float) -> None:
    style = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 8 + 4 * width}
    axes.annotate("", tip.tolist(), (0, 0), arrowprops={**style, "color": color, "linewidth": width})
