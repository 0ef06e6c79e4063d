"""Pictures of what a model does, drawn with matplotlib."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.data import Examples
from torchcaps.evaluate import Evaluation
from torchcaps.models import ImageModel, Model

RIGHT, WRONG, GREY = "#1b7837", "#b2182b", "#555555"


def evaluation_pictures(model: Model, data: Examples, result: Evaluation, folder: Path) -> list[Path]:
    """The confusion of classes, and examples: images that were answered rightly and wrongly, with reconstructions."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = {"examples.png": examples_figure(model, data, result)} if isinstance(model, ImageModel) else {}
    if result.labels.shape[-1] == 1:
        figures["confusion.png"] = confusion_figure(result)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # drawn as a box
        for name, figure in figures.items():
            figure.savefig(folder / name, dpi=130)
    return [folder / name for name in figures]


def confusion_figure(result: Evaluation) -> Figure:
    """Rows are the true classes, columns the answers; shades are shares of a row, so that mistakes stand out."""
    counts = result.confusion
    size = len(result.classes)
    shares = counts / counts.sum(1, keepdim=True).clamp(min=1)
    side = min(14.0, 2.6 + 0.42 * size)
    figure = Figure(figsize=(side, side), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(shares.sqrt(), cmap="Blues", vmin=0, vmax=1)  # the root lifts rare mistakes out of the white
    long = max(len(name) for name in result.classes) > 3
    names = [_plain(name) for name in result.classes]
    axes.set_xticks(range(size), names, rotation=90 if long else 0, parse_math=False)
    axes.set_yticks(range(size), names, parse_math=False)
    axes.set_xlabel("answer")
    axes.set_ylabel("truth")
    axes.set_title(f"{result.errors:,} mistakes in {result.count:,} ({result.accuracy:.2%} right)", fontsize=10)
    if size <= 30:
        for row in range(size):
            for column in range(size):
                if counts[row, column]:
                    colour = "white" if shares[row, column] > 0.4 else "black"
                    text = str(int(counts[row, column]))
                    axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=8)
    return figure


@torch.no_grad()
def examples_figure(model: ImageModel, data: Examples, result: Evaluation, columns: int = 10) -> Figure:
    """One row of images answered rightly, from all classes in turn, then the mistakes, the most confident first.

    Below each image stands its reconstruction, drawn from the predicted capsule; where an image shows two things, each
    is drawn in a colour of its own. Labels read truth -> answer (activation).
    """
    rows = torch.cat([_spread(result, columns), _worst_mistakes(result, 2 * columns)])
    batch = data.batch(rows)
    drawn = None
    if model.decoder is not None:
        device = next(model.parameters()).device
        capsules = model.eval()(batch.inputs.to(device))
        drawn = model.reconstruct(capsules, top=result.labels.shape[-1]).cpu()  # [n m c h w]
    lines = -(-len(rows) // columns)
    high = 2 if drawn is not None else 1
    figure = Figure(figsize=(1.05 * columns, lines * (0.3 + 1.05 * high) + 0.4))
    grid = figure.add_gridspec(lines, columns, hspace=0.14, wspace=0.06, left=0.01, right=0.99, bottom=0.01, top=0.93)
    for place, row in enumerate(rows.tolist()):
        cell = grid[divmod(place, columns)].subgridspec(high, 1, hspace=0.03).subplots(squeeze=False)
        show_image(cell[0, 0], batch.inputs[place])
        cell[0, 0].set_title(_caption(result, row), fontsize=7, pad=2, parse_math=False, color=_mark(result, row))
        if drawn is not None:
            show_image(cell[1, 0], _overlay(drawn[place]))
    what = "images, and below each its reconstruction" if drawn is not None else "images"
    figure.suptitle(f"{what}: right answers first, then mistakes (truth → answer, activation)", fontsize=9, color=GREY)
    return figure


def show_image(axes: Any, image: Tensor) -> None:
    """An image [c h w] from 0 to 1: colour if it has three channels, else the first one in grey."""
    if image.shape[0] == 3:
        axes.imshow(image.movedim(0, -1).clamp(0, 1))
    else:
        axes.imshow(image[0], cmap="gray", vmin=0, vmax=1)
    axes.set_axis_off()


def _overlay(drawn: Tensor) -> Tensor:
    """One thing [1 c h w] as it is; two grey things in red and green, yellow where they overlap."""
    if len(drawn) == 1 or drawn.shape[1] != 1:
        return drawn.sum(0).clamp(max=1)
    return torch.stack([drawn[0, 0], drawn[1, 0], torch.zeros_like(drawn[0, 0])])


def _mark(result: Evaluation, row: int) -> str:
    return RIGHT if result.right[row] else WRONG


def _plain(name: str) -> str:
    """A class name that can be drawn, whatever bytes a folder was named with."""
    return name.encode("utf-8", "replace").decode("utf-8")


def _caption(result: Evaluation, row: int) -> str:
    def names(places: Tensor) -> str:
        return "+".join(sorted(_plain(result.classes[place][:10]) for place in places.tolist()))

    truth, answer = names(result.labels[row]), names(result.predictions[row])
    active = result.activations[row, result.predictions[row]].min()
    words = truth if result.right[row] else f"{truth} → {answer}"
    return f"{words} ({active:.2f})"


def _spread(result: Evaluation, count: int) -> Tensor:
    """Examples answered rightly, taking the classes in turn."""
    right = result.right.nonzero().squeeze(-1)
    labels = result.labels[right, 0]
    turns = torch.zeros(len(right))
    for label in labels.unique():
        mine = labels == label
        turns[mine] = torch.arange(int(mine.sum()), dtype=torch.float32)
    return right[(turns * len(result.classes) + labels).argsort()[:count]]


def _worst_mistakes(result: Evaluation, count: int) -> Tensor:
    wrong = (~result.right).nonzero().squeeze(-1)
    active = result.activations[wrong].max(-1).values
    return wrong[active.argsort(descending=True)[:count]]
