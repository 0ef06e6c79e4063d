"""Colors, images and saving, shared by all figures."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps._core.files import atomic_write
from torchcaps._core.neutral import shown

RIGHT, WRONG, GRAY = "#1b7837", "#b2182b", "#555555"
# A palette for color-blind readers (Okabe and Ito 2008), for classes, clusters and curves.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#000000")


def save_figures(figures: Mapping[str, Figure], folder: Path) -> list[Path]:
    """Write figures to files of these names."""
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # drawn as a box
        for name, figure in figures.items():
            content = io.BytesIO()
            figure.savefig(content, dpi=130, format=Path(name).suffix[1:])
            atomic_write(folder / name, content.getvalue())
    return [folder / name for name in figures]


def save_frames(figures: Sequence[Figure], path: Path, seconds: Sequence[float]) -> Path:
    """Write figures as an animated GIF that shows each for so many seconds, in a loop."""
    from PIL import Image

    frames = []
    for figure in figures:
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
        frames.append(Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB"))
    path.parent.mkdir(parents=True, exist_ok=True)
    held = [round(1000 * each) for each in seconds]
    content = io.BytesIO()
    frames[0].save(content, format="GIF", save_all=True, append_images=frames[1:], duration=held, loop=0)
    atomic_write(path, content.getvalue())
    return path


def show_image(axes: Any, image: Tensor) -> None:
    """An image [c h w] from 0 to 1: color if it has three channels, else the first one in gray."""
    if image.shape[0] == 3:
        axes.imshow(image.movedim(0, -1).clamp(0, 1).numpy())
    else:
        axes.imshow(image[0].numpy(), cmap="gray", vmin=0, vmax=1)
    axes.set_axis_off()


def plain(name: str) -> str:
    """A class name that can be drawn, whatever bytes are in the name of a folder."""
    return shown(name)
