"""Images from files: idx, npz, or a folder with one subfolder for each class.

A file that cannot be read raises an `InputError`; bad pictures in a folder are left out with a warning.
"""

from __future__ import annotations

import os
import warnings
import zipfile
from array import array
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchcaps._core.errors import input_error
from torchcaps._core.progress import bar
from torchcaps.data.base import ImageSet
from torchcaps.data.disk_store import Records, Stack, Strings
from torchcaps.data.packed import open_packed, read_exactly
from torchcaps.data.pictures import Fit, Size, class_folders, pictures_in, read_picture, sides, sides_of

_IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_idx(path: Path | str) -> np.ndarray:
    """Read the array in the idx file at path, the format of MNIST, gzipped or not."""
    path = Path(path)
    with open_packed(path) as stream:
        head = stream.read(4)
        kind, axes = (head[2], head[3]) if len(head) == 4 else (0, 0)
        if head[:2] != b"\0\0" or kind not in _IDX_TYPES or not 1 <= axes <= 8:
            got = f"{path.stat().st_size} bytes that start with {head.hex(' ') or 'nothing'}"
            raise input_error(str(path), "an idx file (00 00, type, axes)", got, "Check that it is the right file.")
        sizes = stream.read(4 * axes)
        shape = np.frombuffer(sizes, ">u4").tolist() if len(sizes) == 4 * axes else []
        dtype = np.dtype(_IDX_TYPES[kind])
        content = read_exactly(path, stream, prod(shape) * dtype.itemsize if shape else 0)
    start = 4 + len(sizes)
    expected = start + prod(shape) * dtype.itemsize
    if not shape or start + len(content) != expected:
        got = f"{start + len(content)}" + (" or more" if len(content) and start + len(content) > expected else "")
        raise input_error(str(path), f"{expected} bytes for shape {shape}", got, "Fetch it again.")
    return np.frombuffer(content, dtype).reshape(shape)


def read_npz(path: Path | str) -> dict[str, np.ndarray]:
    """Read the arrays of an npz file. An array whose header claims more bytes than the file can hold is an error."""
    try:
        with warnings.catch_warnings(), zipfile.ZipFile(path) as archive:
            warnings.simplefilter("ignore")  # numpy's, on headers of old versions
            return {each.filename.removesuffix(".npy"): _read_npy(archive, each) for each in archive.infolist()}
    except Exception as error:  # zipfile and numpy raise many kinds for broken files
        reason = " ".join(str(error).split()) or type(error).__name__
        raise input_error(str(path), "an npz file of plain arrays", reason, "Save it with numpy.savez.") from None


def _read_npy(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(entry) as stream:
        version = np.lib.format.read_magic(stream)
        read_header: Any = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read_header = np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(stream)
        densest = 1100 * os.path.getsize(archive.filename or "")  # the limit of deflate
        if prod(shape) * dtype.itemsize > min(entry.file_size, densest):
            raise ValueError(f"{entry.filename} of shape {list(shape)} in {entry.file_size} bytes")
    with archive.open(entry) as stream:
        array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
        return array


def load_idx(images: Path | str, labels: Path | str, classes: tuple[str, ...] | None = None) -> ImageSet:
    """Load images and labels from two idx files.

    images, labels: the files, gzipped or not. classes: the names of the classes; labels are then their indices. Left
    out, every different label is a class of that name.
    """
    pixels, marks = read_idx(images), read_idx(labels)
    if marks.ndim != 1 or len(marks) != len(pixels) or (classes is not None and marks.dtype.kind not in "iu"):
        expected = f"one label for each of {len(pixels)} images"
        raise input_error(str(labels), expected, f"{marks.dtype} of shape {list(marks.shape)}", "Pair the right files.")
    return image_set(str(images), pixels, marks, classes)


def load_npz(path: Path | str) -> ImageSet:
    """Load images and labels from the npz file at path, with the arrays `images` (or `x`) and `labels` (or `y`)."""
    arrays = read_npz(path)
    found: list[np.ndarray] = []
    for names in (("images", "x"), ("labels", "y")):
        chosen = next((arrays[name] for name in names if name in arrays), None)
        if chosen is None:
            got = ", ".join(arrays) or "no arrays"
            raise input_error(str(path), f"an array named {names[0]!r} or {names[1]!r}", got, "Rename the arrays.")
        found.append(chosen)
    pixels, marks = found
    if pixels.dtype.kind not in "buif" or pixels.ndim < 3 or pixels.size == 0:
        got = f"{pixels.dtype} of shape {list(pixels.shape)}"
        raise input_error(str(path), "images as numbers [n h w], [n h w c] or [n c h w]", got, "Save pixels.")
    if marks.ndim != 1 or len(marks) != len(pixels):
        got = f"labels {list(marks.shape)} for images {list(pixels.shape)}"
        raise input_error(str(path), "one label for each image", got, "Save them in the same order and number.")
    return image_set(str(path), pixels, marks)


def image_set(owner: str, pixels: np.ndarray, marks: np.ndarray, classes: tuple[str, ...] | None = None) -> ImageSet:
    """Convert arrays to an `ImageSet`: images [n h w], [n h w c] or [n c h w] in bytes or from 0 to 1, any labels."""
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    elif pixels.ndim == 4 and pixels.shape[-1] in (1, 2, 3, 4) and pixels.shape[1] not in (1, 2, 3, 4):
        pixels = np.moveaxis(pixels, -1, 1)
    if pixels.ndim != 4 or pixels.size == 0:
        expected = "images [n h w], [n h w c] or [n c h w]"
        raise input_error(owner, expected, f"shape {list(pixels.shape)}", "Give a stack of images.")
    if pixels.dtype != np.uint8:
        pixels = np.asarray(pixels, dtype=np.float64)
        if not np.isfinite(pixels).all() or pixels.min() < 0 or pixels.max() > 255:
            got = f"{pixels.min():g} to {pixels.max():g}"
            raise input_error(owner, "pixels from 0 to 1 or from 0 to 255", got, "Scale them.")
    if pixels.max() <= 1:  # binary, or from 0 to 1
        pixels = pixels * 255.0
    pixels = np.round(pixels).astype(np.uint8)
    names, labels = np.unique(marks, return_inverse=True)
    if classes is not None:
        labels = marks
    images = torch.from_numpy(np.ascontiguousarray(pixels))
    known = tuple(str(name) for name in names) if classes is None else classes
    return ImageSet(images, torch.from_numpy(labels.astype(np.int64)), known)


def load_folder(
    path: Path | str, *, size: Size | None = None, color: bool | None = None, fit: Fit = "stretch"
) -> ImageSet:
    """Load pictures from a folder with one subfolder for each class; large sets are stored on disk after decoding.

    path: the folder. size: the side, or (height, width), to resize to; default: all must have the same size. color:
    three channels (True) or one (False); default: one if all pictures are gray. Transparent pixels become white. fit:
    "stretch", "pad" or "crop", see `read_picture`.
    """
    path = Path(path)
    there = class_folders(path)
    others: list[str] = []
    found = {folder: files for folder in there if (files := pictures_in(folder, others))}
    folders, listed = list(found), list(found.values())
    empty = [folder.name for folder in there if folder not in found]
    if empty and len(found) > 1:  # else the folder is refused anyway
        named = ", ".join(empty[:5]) + (f" and {len(empty) - 5} more" if len(empty) > 5 else "")
        warnings.warn(f"{path}: left out {len(empty)} subfolders without pictures: {named}", stacklevel=2)
    if others and found:
        named = ", ".join(os.path.relpath(file, path) for file in others[:5])
        more = f" and {len(others) - 5} more" if len(others) > 5 else ""
        warnings.warn(f"{path}: left out {len(others)} files that are no pictures: {named}{more}", stacklevel=2)
    count, first = sum(map(len, listed)), next(chain(*listed), None)
    if first is None:
        got = f"{len(there)} subfolders without any" if there else "no subfolders"
        raise input_error(str(path), "pictures in one subfolder for each class", got, "Sort pictures into subfolders.")
    height, width = sides_of(first) if size is None else sides(size)
    pixels = Records(str(path), count * height * width * (1 if color is False else 3))
    labels, names, bad = array("q"), Records(str(path)), []
    shapes, gray = set(), color is not True
    for file, label in bar(((file, label) for label, files in enumerate(listed) for file in files), "pictures", count):
        try:
            picture = read_picture(Path(file), size, color=color is not False, fit=fit)
        except Exception as error:  # Pillow raises many kinds for broken files
            bad.append(f"{Path(file).relative_to(path).as_posix()} ({error})")
            continue
        pixels.append(np.moveaxis(picture, -1, 0).tobytes())
        labels.append(label)
        names.append(Path(file).relative_to(path).as_posix().encode("utf-8", "surrogatepass"))
        shapes.add(picture.shape[:2])
        gray = gray and bool((picture == picture[..., :1]).all())
    if bad:
        named = ", ".join(bad[:5]) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
        warnings.warn(f"{path}: left out {len(bad)} of {count} pictures that cannot be read: {named}", stacklevel=2)
    if not shapes:
        raise input_error(str(path), "readable pictures", f"none of {count}", "Check the files.")
    if len(shapes) > 1:
        low, high = min(shapes), max(shapes)
        got = f"{low[0]} x {low[1]} to {high[0]} x {high[1]}"
        raise input_error(str(path), "pictures of one size", got, "Give --size to resize them.")
    images = Stack(pixels, (1 if gray else 3, *shapes.pop()))
    classes = tuple(folder.name for folder in folders)
    return ImageSet(images.held(), torch.tensor(labels), classes, names=Strings(names).held())
