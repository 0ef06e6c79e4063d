"""Figures of routing trees over their image, and of couplings by iteration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as Curve
from torch import Tensor

from torchcaps.analysis.trees import Box, CouplingMoves, Node, Tree
from torchcaps.plots.style import GRAY, PALETTE, plain, short

SHOWN = 12  # classes in a column, at most
FAINT = "#b8b8b8"
LETTER = 0.03  # the width of a letter of a class name, in heights of the image
Point = tuple[float, float]


def tree_figure(tree: Tree, classes: Sequence[str], maps: Mapping[int, Tensor] | None = None) -> Figure:
    """Left the image with its parts, right the classes; the widths of lines are couplings, relative to their layer.

    A layer on a grid is drawn over the image, each capsule at the center of its receptive field; a dashed frame shows
    the receptive field of the strongest one, and orange dots the fraction of the flow from each position. Capsules that
    see the whole image are in a column, beside maps of the pixels that influence them (maps: [h w] by numbers of
    capsules).
    """
    colors = {label: PALETTE[place % len(PALETTE)] for place, label in enumerate(tree.roots)}
    height, width = tree.image.shape[-2:]
    wide = width / height
    spots: dict[int, Point] = {}
    figure = Figure()
    axes = figure.add_axes((0, 0, 1, 1))
    left = 0.0
    if not any(node.box for node in tree.leaves):
        _panel(axes, tree.image, left, 1.0)
        left += wide + 0.22
    for layer in range(tree.layers - 1):
        nodes = {place: node for place, node in enumerate(tree.nodes) if node.layer == layer}
        if any(node.box for node in nodes.values()):
            _panel(axes, tree.image, left, 1.0 if layer == 0 else 0.4)
            if layer == 0:
                _dots(axes, tree, left)
            strongest = tree.nodes[tree.into(layer + 1)[0].child]
            if strongest.box is not None:
                _frame(axes, strongest.box, left, height)
            spots |= _spread_out(nodes, left, height, wide)
            left += wide + 0.3
        else:
            spots |= _column(axes, nodes, left, maps if layer == 0 else None, wide)
            left += 0.75
    spots |= _classes(axes, tree, classes, left, colors)
    for layer in range(1, tree.layers):
        _lines(axes, tree, layer, spots, colors)
    for place, node in enumerate(tree.nodes):
        if node.layer < tree.layers - 1:
            axes.scatter(*spots[place], s=6 + 30 * node.activation, c="white", edgecolors="black", lw=0.7, zorder=4)
    right = left + 0.42 + LETTER * max(len(_short(name)) for name in classes)
    axes.set(xlim=(-0.03, right), ylim=(1.03, -0.1), aspect="equal")
    axes.set_axis_off()
    figure.set_size_inches(3.6 * (right + 0.03), 3.6 * 1.13)
    names = ", ".join(f"{plain(classes[label])} ({tree.activations[label]:.2f})" for label in tree.roots)
    kept = sum(edge.flow for edge in tree.into(tree.layers - 1)) / len(tree.roots)
    them = "it" if len(tree.roots) == 1 else "them"
    title = f"the strongest parts given to {names}: {kept:.0%} of what reaches {them}; lines as wide as couplings"
    axes.text(0, -0.05, title, fontsize=9, color=GRAY, parse_math=False)
    return figure


def moves_figure(moves: CouplingMoves, classes: Sequence[str], columns: int = 4) -> Figure:
    """A panel for each of the strongest parts: its couplings to the classes, by iteration.

    The class is blue, the next three are in other colors, the rest is gray. A single iteration is shown as bars.
    """
    steps, parts, count = moves.couplings.shape
    columns = min(columns, parts)
    rows = -(-parts // columns)
    figure = Figure(figsize=(0.9 + 2.2 * columns, 1.1 + 1.75 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    order = moves.couplings[-1].mean(0).argsort(descending=True).tolist()
    others = [label for label in order if label != moves.label]
    colors = dict(zip([moves.label, *others[:3]], PALETTE, strict=False))
    low, high = min(0.0, 1.1 * float(moves.couplings.min())), 1.08 * float(moves.couplings.max())
    for axes in grid.flat[parts:]:
        axes.set_axis_off()
    for number, part in enumerate(moves.parts):
        axes = grid.flat[number]
        for label in reversed([moves.label, *others]):
            values = moves.couplings[:, number, label]
            shade = colors.get(label, FAINT)
            if steps == 1:
                axes.bar(label, float(values[0]), color=shade)
            else:
                width = 2.2 if label == moves.label else 1.2
                axes.plot(range(1, steps + 1), values.tolist(), color=shade, lw=width, marker="o", ms=3)
        axes.set_title(part_name(part), fontsize=8, pad=3)
        axes.set_ylim(low, high)
        axes.tick_params(labelsize=7)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("coupling", fontsize=8)
    for column in range(columns):
        axes = grid[(parts - 1 - column) // columns, column]
        axes.tick_params(labelbottom=True)
        if steps == 1:
            few = range(count) if count <= SHOWN else sorted(colors)
            axes.set_xticks(few, [short(plain(classes[label]), 8) for label in few], parse_math=False)
        else:
            axes.set_xticks(range(1, steps + 1))
            axes.set_xlabel("iteration", fontsize=8)
    handles = [Rectangle((0, 0), 1, 1, color=color) for color in colors.values()]
    labels = [plain(classes[label]) for label in colors]
    if len(others) > 3:
        handles.append(Rectangle((0, 0), 1, 1, color=FAINT))
        labels.append("others")
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), fontsize=8, frameon=False)
    when = "after the only iteration" if steps == 1 else "in each iteration"
    what = f"to which classes the strongest parts of {plain(classes[moves.label])} were given, {when}"
    figure.suptitle(what, fontsize=9, color=GRAY, parse_math=False)
    return figure


def part_name(part: Node) -> str:
    """A short name of a capsule: its type, and its row and column if it has a position."""
    return f"type {part.type}" + ("" if part.place is None else f" at {part.place[0]}, {part.place[-1]}")


def _short(name: str) -> str:
    """A class name shortened to 14 letters, with its end, which may distinguish it."""
    name = plain(name)
    return name if len(name) <= 14 else f"{name[:8]}…{name[-5:]}"


def _panel(axes: Any, image: Tensor, left: float, strength: float) -> None:
    shown = image.movedim(0, -1).clamp(0, 1) if len(image) == 3 else image[0]
    extent = (left, left + image.shape[-1] / image.shape[-2], 1.0, 0.0)
    axes.imshow(shown.numpy(), cmap="gray", vmin=0, vmax=1, extent=extent, alpha=strength, zorder=1)


def _frame(axes: Any, box: Box, left: float, height: int) -> None:
    top, start, bottom, end = (side / height for side in box)
    frame = Rectangle(
        (left + start, top), end - start, bottom - top, fill=False, ec=PALETTE[4], ls="--", lw=1, zorder=2
    )
    axes.add_patch(frame)


def _dots(axes: Any, tree: Tree, left: float) -> None:
    """The positions of the first layer, sized by their flow."""
    spots = [_middle(box, left, tree.image.shape[-2]) for box in tree.boxes.tolist()]
    sizes = 160 * tree.flows / tree.flows.max().clamp(min=torch.finfo(tree.flows.dtype).tiny)
    axes.scatter(*zip(*spots, strict=True), s=sizes.tolist(), c=PALETTE[4], alpha=0.45, lw=0, zorder=2)


def _middle(box: Sequence[int], left: float, height: int) -> Point:
    """The center of a box of pixels in the units of the figure, in which an image has height one."""
    top, start, bottom, end = box
    return left + (start + end) / 2 / height, (top + bottom) / 2 / height


def _spread_out(nodes: dict[int, Node], left: float, height: int, wide: float) -> dict[int, Point]:
    """The positions of the nodes of a layer over its image; nodes at one position form a ring around it."""
    by_place: dict[Any, list[int]] = {}
    for place, node in nodes.items():
        by_place.setdefault(node.place, []).append(place)
    spots: dict[int, Point] = {}
    for several in by_place.values():
        box = nodes[several[0]].box
        x, y = (left + wide / 2, 0.5) if box is None else _middle(box, left, height)
        radius = 0.0 if len(several) == 1 else 0.028
        for turn, place in enumerate(several):
            angle = 2 * math.pi * turn / len(several)
            spots[place] = (x + radius * math.cos(angle), y + radius * math.sin(angle))
    return spots


def _column(
    axes: Any, nodes: dict[int, Node], left: float, maps: Mapping[int, Tensor] | None, wide: float
) -> dict[int, Point]:
    """Nodes without a position in a column, each with its map and type."""
    spots: dict[int, Point] = {}
    step = 1 / max(len(nodes), 6)
    for row, (place, node) in enumerate(nodes.items()):
        y = 0.5 + (row - (len(nodes) - 1) / 2) * step
        spots[place] = (left + 0.05, y)
        axes.text(left - 0.13, y, str(node.type), ha="right", va="center", fontsize=7, color=GRAY)
        if maps is not None and node.number in maps:
            shown = maps[node.number] / maps[node.number].max().clamp(min=torch.finfo(torch.float32).tiny)
            half = 0.46 * step
            extent = (left - 0.05 - half * wide, left - 0.05 + half * wide, y + half, y - half)
            axes.imshow(shown.numpy(), cmap="magma", vmin=0, vmax=1, extent=extent, zorder=2)
    return spots


def _classes(axes: Any, tree: Tree, classes: Sequence[str], left: float, colors: Mapping[int, str]) -> dict[int, Point]:
    """The column of classes with their activations; returns the positions of the roots."""
    count = len(tree.activations)
    shown = list(range(count))
    if count > SHOWN:
        best = tree.activations.argsort(descending=True).tolist()
        shown = sorted([*tree.roots, *(label for label in best if label not in tree.roots)][:SHOWN])
    spots: dict[int, Point] = {}
    step = 1 / max(len(shown), 6)
    for row, label in enumerate(shown):
        y = 0.5 + (row - (len(shown) - 1) / 2) * step
        active = float(tree.activations[label])
        color = colors.get(label, FAINT)
        axes.scatter(left, y, s=26, c=color, zorder=4)
        axes.text(left + 0.05, y, _short(classes[label]), va="center", fontsize=8, parse_math=False)
        start = left + 0.07 + LETTER * max(len(_short(name)) for name in classes)
        axes.add_patch(Rectangle((start, y - 0.18 * step), 0.25 * active, 0.36 * step, color=color, lw=0))
        axes.text(start + 0.02 + 0.25 * active, y, f"{active:.2f}", va="center", fontsize=7, color=GRAY)
        if label in tree.roots:
            spots[tree.roots.index(label)] = (left, y)  # the roots are the first nodes
    return spots


def _lines(axes: Any, tree: Tree, layer: int, spots: Mapping[int, Point], colors: Mapping[int, str]) -> None:
    """The edges into a layer, curved so that they arrive horizontally."""
    edges = tree.into(layer)
    largest = max((edge.coupling for edge in edges), default=1.0)
    for edge in reversed(edges):
        (x, y), (to_x, to_y) = spots[edge.child], spots[edge.parent]
        half = (x + to_x) / 2
        curve = Curve([(x, y), (half, y), (half, to_y), (to_x, to_y)], [1, 4, 4, 4])
        width = 0.3 + 2.9 * edge.coupling / largest
        axes.add_patch(PathPatch(curve, fill=False, ec=colors[edge.label], lw=width, alpha=0.7, zorder=3))
