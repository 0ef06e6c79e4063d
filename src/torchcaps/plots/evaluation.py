"""Figures of an evaluation: the confusion matrix, and examples with their reconstructions."""

from __future__ import annotations

from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from torchcaps.analysis.calibration import calibration_error, probabilities
from torchcaps.analysis.evaluate import Evaluation
from torchcaps.data import Examples
from torchcaps.models import ImageModel, Model, draws, readout_of
from torchcaps.plots.style import GRAY, PALETTE, RIGHT, WRONG, plain, save_figures, short, show_image


def evaluation_pictures(
    model: Model, data: Examples, result: Evaluation, folder: Path, temperature: float | None = None
) -> list[Path]:
    """The confusion matrix, and examples: right and wrong predictions, with reconstructions.

    temperature: of the run; given, the reliability of its probabilities too.
    """
    figures = {"examples.png": examples_figure(model, data, result)} if isinstance(model, ImageModel) else {}
    if result.labels.shape[-1] == 1:
        figures["confusion.png"] = confusion_figure(result)
    if temperature is not None:
        likely = probabilities(result.activations, readout_of(model), temperature)
        figures["reliability.png"] = reliability_figure(likely, result.labels[:, 0])
    return save_figures(figures, folder)


def confusion_figure(result: Evaluation) -> Figure:
    """Rows are the true classes, columns the predictions; shades are fractions of a row."""
    counts = result.confusion
    size = len(result.classes)
    shares = counts / counts.sum(1, keepdim=True).clamp(min=1)
    side = min(14.0, 2.6 + 0.42 * size)
    figure = Figure(figsize=(side, side), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(shares.sqrt().numpy(), cmap="Blues", vmin=0, vmax=1)  # the square root makes rare mistakes visible
    long = max(len(name) for name in result.classes) > 3
    names = [plain(name) for name in result.classes]
    axes.set_xticks(range(size), names, rotation=90 if long else 0, parse_math=False)
    axes.set_yticks(range(size), names, parse_math=False)
    axes.set_xlabel("answer")
    axes.set_ylabel("truth")
    axes.set_title(f"{result.errors:,} mistakes in {result.count:,} ({result.accuracy:.2%} right)", fontsize=10)
    if size <= 30:
        for row in range(size):
            for column in range(size):
                if counts[row, column]:
                    color = "white" if shares[row, column] > 0.4 else "black"
                    text = str(int(counts[row, column]))
                    axes.text(column, row, text, ha="center", va="center", color=color, fontsize=8)
    return figure


def reliability_figure(likely: Tensor, labels: Tensor, bins: int = 10) -> Figure:
    """How often answers of each probability are right, with how many there are; on the diagonal both agree.

    likely: the probability of every class, [n y]. labels: [n].
    """
    confidence, said = likely.max(-1)
    right = (said == labels).double()
    place = (confidence * bins).long().clamp(max=bins - 1)
    figure = Figure(figsize=(4.4, 4.8), layout="constrained")
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    axes.plot([0, 1], [0, 1], color=GRAY, linestyle=":", linewidth=1)
    for number in range(bins):
        mine = place == number
        if mine.any():
            share, count = float(right[mine].mean()), int(mine.sum())
            error = (share * (1 - share) / count) ** 0.5
            axes.errorbar(float(confidence[mine].mean()), share, error, color=PALETTE[0], marker="o", capsize=2)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlim(0, 1.02)
    axes.set_ylabel("share of right answers")
    error = calibration_error(likely, labels)
    axes.set_title(f"reliability of probabilities: calibration error {error:.3f}", fontsize=10)
    below.hist(confidence.numpy(), [number / bins for number in range(bins + 1)], color=PALETTE[5])
    below.set_ylabel("answers")
    below.set_xlabel("probability of the answer")
    for each in (axes, below):
        each.spines[["top", "right"]].set_visible(False)
    return figure


@torch.no_grad()
def examples_figure(model: nn.Module, data: Examples, result: Evaluation, columns: int = 10) -> Figure:
    """One row of correctly predicted images, from all classes in turn, then mistakes, the most confident first.

    Below each image is its reconstruction from the predicted capsule; if an image shows two objects, each has its own
    color. Labels are truth -> prediction (activation).
    """
    rows = torch.cat([spread(result, columns), worst_mistakes(result, 2 * columns)])
    batch = data.batch(rows)
    drawn = None
    if draws(model):
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
    figure.suptitle(f"{what}: right answers first, then mistakes (truth → answer, activation)", fontsize=9, color=GRAY)
    return figure


def _overlay(drawn: Tensor) -> Tensor:
    """One object [1 c h w] unchanged; two gray objects in red and green, yellow where they overlap."""
    if len(drawn) == 1 or drawn.shape[1] != 1:
        return drawn.sum(0).clamp(max=1)
    return torch.stack([drawn[0, 0], drawn[1, 0], torch.zeros_like(drawn[0, 0])])


def _mark(result: Evaluation, row: int) -> str:
    return RIGHT if result.right[row] else WRONG


def _caption(result: Evaluation, row: int) -> str:
    def names(places: Tensor) -> str:
        return "+".join(sorted(short(plain(result.classes[place]), 10) for place in places.tolist()))

    truth, answer = names(result.labels[row]), names(result.predictions[row])
    active = result.activations[row, result.predictions[row]].min()
    words = truth if result.right[row] else f"{truth} → {answer}"
    return f"{words} ({active:.2f})"


def spread(result: Evaluation, count: int) -> Tensor:
    """Correctly predicted examples, taking the classes in turn."""
    right = result.right.nonzero().squeeze(-1)
    labels = result.labels[right, 0]
    turns = torch.zeros(len(right))
    for label in labels.unique():
        mine = labels == label
        turns[mine] = torch.arange(int(mine.sum()), dtype=torch.float32)
    return right[(turns * len(result.classes) + labels).argsort()[:count]]


def worst_mistakes(result: Evaluation, count: int) -> Tensor:
    """The rows of at most `count` mistakes, those with the highest activation first."""
    wrong = (~result.right).nonzero().squeeze(-1)
    active = result.activations[wrong].max(-1).values
    return wrong[active.argsort(descending=True)[:count]]
