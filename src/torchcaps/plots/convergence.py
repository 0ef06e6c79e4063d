"""Histograms of the distances of votes from the mean of each class, in every iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.analysis.convergence import Convergence
from torchcaps.plots.style import GRAY, PALETTE, plain, short, show_image

BINS = 30


def convergence_figure(
    found: Convergence, image: Float[Tensor, "c h w"], classes: Sequence[str], labels: Sequence[int]
) -> Figure:
    """A row for each iteration, a column for each class; distances are weighted by couplings.

    The true classes of the image are orange; a dashed line is the mean distance, `a` the activation. As in the paper,
    only near votes are shown: up to the 90 % quantile of the first iteration.
    """
    iterations, _, parents = found.distances.shape
    wide = min(18.0, 1.9 * parents + 2.2)
    figure = Figure(figsize=(wide, 1.75 * iterations + 0.8), layout="constrained")
    parts: Any = figure.subfigures(1, 2, width_ratios=[2.2, wide - 2.2])
    picture, panels = parts
    show_image(picture.add_subplot(), image)
    grid = panels.subplots(iterations, parents, squeeze=False, sharex=True, sharey=True)
    high = _near(found)
    edges = torch.linspace(0, high, BINS + 1)
    counts = torch.stack([_weighed(found, step, edges) for step in range(iterations)])  # [n bins j]
    grid[0, 0].set(xlim=(0, high), ylim=(0, 1.35 * float(counts.max()) or 1.0))  # room for the activations
    for step, row in enumerate(grid):
        row[0].set_ylabel(f"iteration {step + 1}", fontsize=9)
        for parent, axes in enumerate(row):
            color = PALETTE[1] if parent in labels else PALETTE[0]
            axes.stairs(counts[step, :, parent], edges, fill=True, color=color, alpha=0.85)
            axes.axvline(
                float(found.mean_distances[step, parent]), ymax=0.75, color="black", linewidth=1, linestyle="--"
            )
            active = f"a = {float(found.activations[step, parent]):.2f}"
            axes.text(0.96, 0.95, active, transform=axes.transAxes, ha="right", va="top", fontsize=8)
            axes.tick_params(labelsize=7)
            for side in ("top", "right"):
                axes.spines[side].set_visible(False)
    for parent, axes in enumerate(grid[0]):
        look = {"color": PALETTE[1], "weight": "bold"} if parent in labels else {"color": PALETTE[0]}
        axes.set_title(short(plain(classes[parent]), 14), fontsize=9, parse_math=False, **look)
    panels.supxlabel("distance of votes from the mean of each class, weighted by couplings", fontsize=9, color=GRAY)
    return figure


def _near(found: Convergence) -> float:
    """The 90 % quantile of the distances in the first iteration, weighted by couplings."""
    distances, order = found.distances[0].flatten().sort()
    share = found.couplings[0].flatten()[order].cumsum(0)
    return float(distances[int((share < 0.9 * share[-1]).sum())]) or 1.0


def _weighed(found: Convergence, step: int, edges: Tensor) -> Tensor:
    """The couplings in each bin of distances, [bins j]; distances beyond the last edge are left out."""
    distances, couplings = found.distances[step], found.couplings[step].float()
    bins = len(edges) - 1
    places = torch.bucketize(distances.contiguous(), edges.to(distances.dtype), right=True) - 1
    return torch.zeros(bins + 1, distances.shape[1]).scatter_add_(0, places.clamp(max=bins), couplings)[:bins]
