"""Colors, images and saving, shared by all figures."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, fontManager, get_font
from matplotlib.text import Text
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
            _use_fonts(figure)
            content = io.BytesIO()
            figure.savefig(content, dpi=130, format=Path(name).suffix[1:])
            atomic_write(folder / name, content.getvalue())
    return [folder / name for name in figures]


def _use_fonts(figure: Figure) -> None:
    """Let texts with letters that the usual font lacks, such as Chinese, use an installed font that has them."""
    for text in figure.findobj(Text):
        lacking = "".join(sorted(set(text.get_text()) - _letters(findfont("DejaVu Sans")) - {"\n"}))
        font = _font_with(lacking) if lacking else None
        if font is not None:
            text.set_fontfamily([*text.get_fontfamily(), font])


@cache
def _letters(path: str) -> frozenset[str]:
    """The characters that a font file has."""
    try:
        return frozenset(map(chr, get_font(path).get_charmap()))
    except (OSError, RuntimeError):  # a font that FreeType does not read
        return frozenset()


@cache
def _font_with(letters: str) -> str | None:
    """The name of an installed font that has all of these letters; None if there is none."""
    return next((font.name for font in fontManager.ttflist if set(letters) <= _letters(font.fname)), None)


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


def short(name: str, most: int) -> str:
    """A name of at most so many characters; a longer one ends with an ellipsis."""
    return name if len(name) <= most else name[: most - 1].rstrip() + "\u2026"


def plain(name: str) -> str:
    """A class name that can be drawn, whatever bytes are in the name of a folder."""
    return shown(name)
