"""A figure of where the evidence for a class is: the picture, and the picture under a heat map."""

from __future__ import annotations

import textwrap

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import interpolate

from torchcaps.analysis.regions import Evidence
from torchcaps.plots.style import GRAY, plain, short, show_image


def evidence_figure(picture: Tensor, found: Evidence, name: str) -> Figure:
    """The picture [c h w] at full size, and the same under the heat map, with the hottest part outlined.

    name: of the class.
    """
    height, width = picture.shape[-2:]
    side = 3.4
    wide = side * min(2.0, max(0.5, width / height))
    figure = Figure(figsize=(2 * wide + 0.9, side + 1.25))
    left, right = figure.subplots(1, 2)
    show_image(left, picture)
    show_image(right, picture.mean(0, keepdim=True))
    heat = interpolate(found.heat[None, None], (height, width), mode="bilinear", align_corners=False)[0, 0]
    top = float(heat.abs().max()) or 1.0
    drawn = right.imshow(heat.numpy(), cmap="RdBu_r", vmin=-top, vmax=top, alpha=0.55)
    outline = interpolate(found.hottest[None, None].to(heat.dtype), (height, width), mode="bilinear")[0, 0]
    if 0 < float(outline.mean()) < 1:
        right.contour(outline.numpy(), levels=[0.5], colors="black", linewidths=1.2)
    bar = figure.colorbar(drawn, ax=right, fraction=0.046, pad=0.03)
    bar.set_label("red: evidence for, blue: against", fontsize=8, color=GRAY)
    bar.ax.tick_params(labelsize=7, colors=GRAY)
    title = f"{short(plain(name), 40)} ({found.activation:.2f})"
    figure.suptitle(title, fontsize=11, y=0.98, parse_math=False)
    share = float(found.hottest.to(torch.float32).mean())
    said = (
        f"With the outlined {share:.0%} covered, the activation falls to {found.covered:.2f}; with as much covered "
        f"elsewhere, to {found.elsewhere:.2f} on average."
    )
    figure.text(0.5, 0.02, textwrap.fill(said, 70), ha="center", va="bottom", fontsize=8.5, color=GRAY)
    figure.subplots_adjust(left=0.02, right=0.9, top=0.88, bottom=0.16, wspace=0.08)
    return figure
