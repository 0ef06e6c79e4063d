"""Diagrams: full and shared weights, a text model layer by layer, one object from all viewpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from torchcaps.analysis.textshapes import LayerShape, TextShapes
from torchcaps.analysis.views import ViewGrid
from torchcaps.analysis.weights import WeightCount
from torchcaps.plots.style import GRAY, PALETTE, plain, show_image

NODES = {"ha": "center", "va": "center", "fontsize": 9, "zorder": 4, "color": "white", "weight": "bold"}
# The content of a box: words, numbers without capsules, capsules, classes.
FILLS = {"word vectors": "#e8e8e8", "class capsules": "#f6d5bd", "mean of poses": "#f6d5bd"}


def weights_figure(counts: Sequence[WeightCount], sizes: tuple[int, int, int, int]) -> Figure:
    """Lines are matrices; lines of one color share a matrix."""
    children, parents, in_dim, out_dim = sizes
    figure = Figure(figsize=(10.5, 4.8), layout="constrained")
    for axes, count in zip(figure.subplots(1, len(counts)), counts, strict=True):
        left, right = _few(children, 5), _few(parents, 4)
        colors = colormaps["turbo"]
        lines = [(y, z) for y, i in left if i is not None for z, j in right if j is not None]
        for number, (y, z) in enumerate(lines):
            parent = next(place for place, (height, _) in enumerate(right) if height == z)
            color = colors(0.05 + 0.9 * number / len(lines)) if count.votes == "full" else PALETTE[parent]
            axes.plot([0, 1], [y, z], color=color, linewidth=1.6)
        for x, nodes, letter in ((0, left, "u"), (1, right, "v")):
            for height, index in nodes:
                _node(axes, x, height, "⋮" if index is None else f"{letter}{index + 1}")
        each = "one for each pair" if count.votes == "full" else "one for each parent"
        size = f"{count.matrices:,} matrices of {in_dim} x {out_dim}, {each}:\n{count.parameters:,} numbers"
        axes.set_title(f"{count.votes} weights\n{size}", fontsize=10)
        axes.set(xlim=(-0.35, 1.35), ylim=(-0.2, 1.1))
        axes.text(0, -0.17, f"{children:,} children", ha="center", fontsize=9, color=GRAY)
        axes.text(1, -0.17, f"{parents:,} parents", ha="center", fontsize=9, color=GRAY)
        axes.set_axis_off()
    return figure


def text_figure(shapes: TextShapes, title: str) -> Figure:
    """From words (left) to classes (right), a row for each branch, with the shapes of one text."""
    rows, longest = len(shapes.branches), max(map(len, shapes.branches))
    many = rows > 1
    words = shapes.words if len(shapes.words) <= 16 else (*shapes.words[:14], "⋮", shapes.words[-1])
    columns = longest + 2 + many  # words, vectors, layers, and the mean
    high = max(1.25 * rows + 0.6, 0.17 * len(words) + 0.4)
    figure = Figure(figsize=(2.0 * columns - 0.6, high + 0.4), layout="constrained")
    axes = figure.add_subplot()
    middle, half = (rows - 1) / 2, high / 1.25 / 2
    axes.set(xlim=(-0.45, columns - 0.5), ylim=(middle + half, middle - half))
    axes.set_axis_off()
    axes.text(0, middle, "\n".join(map(plain, words)), ha="center", va="center", fontsize=9, parse_math=False)
    _box(axes, 1, middle, shapes.vectors)
    _line(axes, (0.3, middle), (0.57, middle))
    for row, branch in enumerate(shapes.branches):
        _line(axes, (1.43, middle), (1.57, row))
        for place, layer in enumerate(branch):
            _box(axes, 2 + place, row, layer)
            if place:
                _line(axes, (1.43 + place, row), (1.57 + place, row))
        if many:
            _line(axes, (1.43 + longest, row), (1.57 + longest, middle))
    if many:
        _box(axes, columns - 1, middle, LayerShape("mean of poses", shapes.answer.shape))
    noise = ", the last class of each branch is for noise" if shapes.noise else ""
    axes.set_title(f"{title}: shapes end in capsules x pose{noise}", fontsize=10, color=GRAY, parse_math=False)
    return figure


def views_figure(grid: ViewGrid) -> Figure:
    """Elevations as rows, azimuths as columns; a split by viewpoint trains on the framed views."""
    rows, columns = grid.seen.shape
    cell = min(0.8, 15 / columns)
    figure = Figure(figsize=(cell * columns + 0.7, cell * rows + 0.7))
    left, top = 0.65 / (cell * columns + 0.7), 1 - 0.62 / (cell * rows + 0.7)
    space = {"left": left, "right": 0.995, "top": top, "bottom": 0.01, "wspace": 0.06, "hspace": 0.06}
    axes = figure.subplots(rows, columns, squeeze=False, gridspec_kw=space)
    for row in range(rows):
        axes[row, 0].text(
            -0.12, 0.5, f"{grid.elevations[row]:g}°", transform=axes[row, 0].transAxes, ha="right", va="center"
        )
        for column in range(columns):
            each = axes[row, column]
            each.set_axis_off()
            if grid.seen[row, column]:
                show_image(each, grid.images[row, column])
            if grid.familiar[row, column]:
                frame = {"fill": False, "edgecolor": PALETTE[4], "linewidth": 3, "transform": each.transAxes}
                each.add_patch(Rectangle((0, 0), 1, 1, **frame))
    for column, angle in enumerate(grid.azimuths):
        axes[0, column].set_title(f"{angle:g}°", fontsize=9, pad=3)
    title = f"{plain(grid.name)}: elevations in rows, azimuths in columns; framed: training viewpoints"
    figure.suptitle(title, fontsize=10, color=GRAY, y=0.99, parse_math=False)
    return figure


def _few(count: int, most: int) -> list[tuple[float, int | None]]:
    """Vertical positions from 1 to 0 and numbers of at most `most` nodes; None stands for omitted ones."""
    numbers: list[int | None] = list(range(count))
    if count > most:
        numbers = [*range(most - 2), None, count - 1]
    step = 1 / max(1, len(numbers) - 1)
    return [(1 - place * step if len(numbers) > 1 else 0.5, number) for place, number in enumerate(numbers)]


def _node(axes: Any, x: float, y: float, name: str) -> None:
    if name == "⋮":
        axes.text(x, y, name, **{**NODES, "color": GRAY, "fontsize": 14})
        return
    axes.scatter([x], [y], s=620, color=GRAY, zorder=3)
    axes.text(x, y, name, **{**NODES, "fontsize": 8 if len(name) < 5 else 6.5})


def _box(axes: Any, x: float, y: float, layer: LayerShape) -> None:
    fill = FILLS.get(layer.name, "#cfe3f1" if "capsules" in layer.name else "#e8e8e8")
    style: Any = {
        "boxstyle": "round,pad=0.02,rounding_size=0.06",
        "facecolor": fill,
        "edgecolor": GRAY,
        "linewidth": 0.8,
    }
    axes.add_patch(FancyBboxPatch((x - 0.4, y - 0.25), 0.8, 0.5, **style, zorder=3))
    name = layer.name.replace(" capsules", "\ncapsules")
    axes.text(x, y - 0.06, name, ha="center", va="center", fontsize=9, zorder=4)
    axes.text(
        x, y + 0.17, " x ".join(map(str, layer.shape)), ha="center", va="center", fontsize=9, color=GRAY, zorder=4
    )


def _line(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    style = {"arrowstyle": "-|>", "color": GRAY, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=style, zorder=2)
