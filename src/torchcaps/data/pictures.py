"""Picture files: found in folders, decoded with Pillow, and resized to what a network takes."""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor
from torch.nn.functional import interpolate

from torchcaps._core.errors import input_error
from torchcaps._core.files import open_regular

# Pillow reads .avif in version 11.3 and later; where it cannot, the file is named as unreadable.
PICTURES = {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".avif", ".pgm", ".ppm"}
SYSTEM_FILES = {"thumbs.db", "desktop.ini"}
Size = int | tuple[int, int]  # the side, or (height, width)
Fit = Literal["stretch", "pad", "crop"]
FITS = ("stretch", "pad", "crop")
BARS = 128  # gray of the bars that pad a picture


def sides(size: Size) -> tuple[int, int]:
    """(height, width) of a size."""
    return (size, size) if isinstance(size, int) else size


def parse_size(owner: str, text: int | str | None) -> Size | None:
    """The size that a user typed: 64, "64", or "48x64" for height x width."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,5})(?:x(\d{1,5}))?", str(text).strip())
    wanted = [int(each) for each in found.groups() if each is not None] if found else []
    if not wanted or not all(4 <= each <= 1024 for each in wanted):
        expected = "a side of 4 to 1024 pixels, or height x width"
        raise input_error(owner, expected, repr(text), "Write 64, or 48x64.")
    return wanted[0] if len(wanted) == 1 else (wanted[0], wanted[1])


def natural(name: str) -> list[tuple[bool, int, str]]:
    """A key that sorts 2 before 10, and numbers before words."""
    pieces = (piece for piece in re.split(r"(\d+)", name) if piece)
    return [(False, int(piece), "") if piece.isdecimal() else (True, 0, piece) for piece in pieces]


def class_folders(path: Path) -> list[Path]:
    """The subfolders that may be classes: not hidden ones, nor those that macOS packs beside the pictures."""
    named = (folder for folder in path.iterdir() if not folder.name.startswith(".") and folder.name != "__MACOSX")
    return sorted((folder for folder in named if folder.is_dir()), key=lambda folder: natural(folder.name))


def pictures_in(folder: Path, others: list[str] | None = None) -> list[str]:
    """The picture files in a folder and its subfolders, links followed, in natural order.

    Strings, which take much less memory than paths. others: a list that receives files of other kinds.
    """
    found: list[str] = []
    seen: set[tuple[int, int]] = set()
    for place, inner, files in os.walk(folder, followlinks=True):
        status = os.stat(place)
        if (status.st_dev, status.st_ino) in seen:  # a link back
            inner.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        inner[:] = [name for name in inner if not name.startswith(".") and name != "__MACOSX"]
        for name in files:
            file = os.path.join(place, name)
            if name.startswith(".") or name.lower() in SYSTEM_FILES or not os.path.isfile(file):
                continue
            if os.path.splitext(name)[1].lower() in PICTURES:
                found.append(file)
            elif others is not None:
                others.append(file)
    return sorted(found, key=lambda file: [natural(part) for part in file.split(os.sep)])


def sides_of(path: str) -> tuple[int, int]:
    """Height and width of a picture; an `InputError` if it is too large to be used without resizing."""
    try:
        with open_picture(Path(path)) as picture:
            width, height = picture.size
    except Exception:  # reported when it is read
        return 0, 0
    if max(width, height) > 256:
        expected = "pictures of at most 256 pixels a side, or a size to resize them to"
        raise input_error(path, expected, f"{height} x {width}", "Give --size, say --size 64.")
    return height, width


def to_gray(pixels: np.ndarray) -> np.ndarray:
    """Convert colors [... 3] to gray [... 1] (ITU-R 601), in bytes."""
    return np.round(pixels @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)[..., None]


@contextmanager
def open_picture(path: Path) -> Iterator[Any]:
    """Open a picture with Pillow, without its warnings; one of about a hundred million pixels is an error."""
    from PIL import Image

    logger = logging.getLogger("PIL")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with open_regular(path) as file, Image.open(file) as picture:
                yield picture
    finally:
        logger.setLevel(level)


def decode(opened: Any) -> Any:
    """An opened picture in three colors and eight bits, upright, its transparency replaced by white."""
    from PIL import Image, ImageOps

    picture = ImageOps.exif_transpose(opened)
    if picture.mode in ("I", "I;16", "I;16B", "I;16L", "F"):  # 16 bits of gray
        values = np.asarray(picture, dtype=np.float64)
        scale = 255 / 65535 if picture.mode != "F" else 255 / max(1.0, values.max())
        picture = Image.fromarray(np.clip(np.round(values * scale), 0, 255).astype(np.uint8))
    if "A" in picture.getbands() or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return picture.convert("RGB")


def resized(picture: Any, size: Size, fit: Fit = "stretch") -> Any:
    """A picture of Pillow in another size, with antialiasing. fit: see `read_picture`."""
    from PIL import Image

    height, width = sides(size)
    if fit == "crop":
        box = crop_box(picture.size, (width, height))
        return picture.resize((width, height), Image.Resampling.BILINEAR, box=box, reducing_gap=3.0)
    if fit == "pad":
        high, wide = inside((picture.height, picture.width), (height, width))
        padded = Image.new("RGB", (width, height), (BARS,) * 3)
        smaller = picture.resize((wide, high), Image.Resampling.BILINEAR, reducing_gap=3.0)
        padded.paste(smaller, ((width - wide) // 2, (height - high) // 2))
        return padded
    return picture.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=3.0)


def resize_images(images: Tensor, size: tuple[int, int], fit: Fit = "stretch") -> Tensor:
    """Images [n c h w] of bytes in another size (height, width), with the filter of `resized`."""
    height, width = images.shape[-2:]
    if fit == "crop":
        left, top, right, bottom = (round(each) for each in crop_box((width, height), size[::-1]))
        images = images[..., top:bottom, left:right]
    wanted = inside((height, width), size) if fit == "pad" else size
    found = interpolate(images.float(), wanted, mode="bilinear", antialias=True).round_().clamp_(0, 255).byte()
    if fit != "pad":
        return found
    padded = found.new_full((*found.shape[:2], *size), BARS)
    top, left = (size[0] - wanted[0]) // 2, (size[1] - wanted[1]) // 2
    padded[..., top : top + wanted[0], left : left + wanted[1]] = found
    return padded


def inside(given: tuple[int, int], wanted: tuple[int, int]) -> tuple[int, int]:
    """The largest size of the proportions of `given` that lies inside `wanted`, both (height, width)."""
    scale = min(wanted[0] / given[0], wanted[1] / given[1])
    return max(1, min(wanted[0], round(given[0] * scale))), max(1, min(wanted[1], round(given[1] * scale)))


def crop_box(given: tuple[int, int], wanted: tuple[int, int]) -> tuple[float, float, float, float]:
    """The largest box (left, top, right, bottom) at the center of `given` with the proportions of `wanted`.

    given, wanted: (width, height).
    """
    scale = min(given[0] / wanted[0], given[1] / wanted[1])
    left, top = (given[0] - wanted[0] * scale) / 2, (given[1] - wanted[1] * scale) / 2
    return left, top, given[0] - left, given[1] - top


def read_picture(path: Path, size: Size | None, *, color: bool = True, fit: Fit = "stretch") -> np.ndarray:
    """Read a picture as bytes [h w 3], or [h w 1] if color is False.

    path: any format of Pillow; its EXIF orientation is applied, transparency is replaced by white. size: the side, or
    (height, width), to resize to; None keeps the size. fit: "stretch" changes proportions, "pad" keeps them and adds
    gray bars, "crop" keeps them and cuts off what is too long.
    """
    with open_picture(path) as opened:
        picture = decode(opened)
        pixels = np.asarray(picture if size is None else resized(picture, size, fit))
        return pixels if color else to_gray(pixels)
