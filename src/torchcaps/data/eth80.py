"""ETH-80: eighty real objects photographed from known viewpoints."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch

from torchcaps._core.errors import input_error
from torchcaps.data.base import ImageSet, Splits, hold_out
from torchcaps.data.files import image_set, read_npz
from torchcaps.data.pictures import open_picture

CLASSES = ("apple", "car", "cow", "cup", "dog", "horse", "pear", "tomato")
SIDE = 64
_NAME = re.compile(rf"({'|'.join(CLASSES)})(\d+)-(\d+)-(\d+)\.png", re.IGNORECASE)
# The public cars are numbered 1-3, 5-7, 9, 11, 12, 14: the last three take the places of those left out.
_CARS = {11: 4, 12: 8, 14: 10}
_VIEWS = ("instance", "elevation", "azimuth")


def eth80(folder: Path) -> Splits:
    """3,280 gray pictures of 64x64 pixels, 80 objects from 41 viewpoints: 1,476 / 164 / 1,640, of other objects.

    Five objects of each class are for training, five for testing. An elevation of 0 degrees looks from above, 90 from
    the side. Reads the public PNG files, or the arrays of one npz file, in <folder>/eth-80; neither is fetched.
    """
    place = folder / "eth-80"
    archives = sorted(place.glob("*.npz"))
    if len(archives) > 1:
        got = ", ".join(path.name for path in archives)
        raise input_error(str(place), "one npz file", got, "Keep one of them.")
    data = (_read_npz(archives[0]) if archives else _read_pictures(place)).resize(SIDE)
    first = data.views["instance"] < 5
    if not first.any() or first.all():
        numbers = data.views["instance"].unique().tolist()
        raise input_error(str(place), "objects 0 to 4 to train on and others to test", numbers, "Add the others.")
    train = data.take(first)
    return hold_out(train, len(train) // 10, data.take(~first))


def _read_npz(path: Path) -> ImageSet:
    arrays = read_npz(path)
    rows = arrays["images"].shape[:1] if "images" in arrays else ()
    for name in ("images", "category", *_VIEWS):
        array = arrays.get(name)
        if array is None or (name != "images" and (array.shape != rows or array.dtype.kind not in "iu")):
            expected = f"an array named {name!r}" + ("" if name == "images" else " with a whole number for each image")
            got = ", ".join(f"{key} {list(array.shape)}" for key, array in arrays.items()) or "no arrays"
            raise input_error(str(path), expected, got, "Add it.")
    classes = tuple(str(name) for name in arrays.get("category_names", CLASSES))
    data = image_set(str(path), arrays["images"], arrays["category"], classes)
    images = data.images
    if isinstance(images, torch.Tensor) and images.shape[1] == 3:
        images = (images.float() * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(1, True).round().byte()
    views = {name: torch.from_numpy(arrays[name].astype(np.int64)) for name in _VIEWS}
    names = tuple(str(name) for name in arrays.get("filename", ()))
    return ImageSet(images, data.labels, classes, views, names)


def _read_pictures(place: Path) -> ImageSet:
    """The public tree, <class><number>/<class><number>-<elevation>-<azimuth>.png, less the masks beside it."""
    files: dict[str, tuple[Path, re.Match[str]]] = {}
    for path in sorted(place.rglob("*")):
        match = _NAME.fullmatch(path.name)
        if match and "maps" not in (part.lower() for part in path.relative_to(place).parts):
            if match[0].lower() in files:
                twice = f"{files[match[0].lower()][0]} and {path}"
                raise input_error(str(place), "each picture once", twice, "Keep one copy of the pictures.")
            files[match[0].lower()] = (path, match)
    if not files:
        expected = f"the pictures apple1/apple1-000-000.png and so on of ETH-80 (or one npz file) in {place}"
        remedy = "Unpack eth80-cropped-close128.tgz there, or choose another place with --data-dir or TORCHCAPS_DATA."
        raise input_error("eth-80", expected, "none", remedy)
    labels, views = [], []
    for _, match in files.values():
        kind, number, elevation, azimuth = match[1].lower(), int(match[2]), int(match[3]), int(match[4])
        labels.append(CLASSES.index(kind))
        views.append([(_CARS.get(number, number) if kind == "car" else number) - 1, elevation, azimuth])
    images = torch.from_numpy(np.stack([_read_picture(path) for path, _ in files.values()]))[:, None]
    columns = dict(zip(_VIEWS, torch.tensor(views).unbind(1), strict=True))
    return ImageSet(images, torch.tensor(labels), CLASSES, columns, tuple(files))


def _read_picture(path: Path) -> np.ndarray:
    from PIL import Image

    try:
        with open_picture(path) as picture:
            gray = picture.convert("L").resize((SIDE, SIDE), Image.Resampling.BILINEAR, reducing_gap=3.0)
            return np.array(gray)
    except Exception as error:  # Pillow raises many kinds for broken files
        raise input_error(str(path), "a picture", str(error), "Unpack it again.") from None
