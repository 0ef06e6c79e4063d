"""Small photographs in color: CIFAR-10, CIFAR-100 and the house numbers of SVHN, 32x32 pixels each."""

from __future__ import annotations

import tarfile
import zlib
from pathlib import Path

import numpy as np
import torch

from torchcaps._core.errors import input_error
from torchcaps.data.base import ImageSet, Splits, hold_out
from torchcaps.data.fetch import PublicFile, Source, find_files
from torchcaps.data.matlab import read_mat
from torchcaps.data.mnist import DIGITS
from torchcaps.data.packed import LARGEST, read_member

SHAPE = (3, 32, 32)
REMEDY = "Remove it to have it fetched."
_TORONTO = ("https://www.cs.toronto.edu/~kriz/",)
CIFAR10 = Source(
    "cifar-10", (PublicFile("cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530"),), _TORONTO, ("cifar-10",)
)
CIFAR100 = Source(
    "cifar-100",
    (PublicFile("cifar-100-binary.tar.gz", "md5:03b5dce01913d631647c71ecec9e9cb8"),),
    _TORONTO,
    ("cifar-100",),
)


def _mat(name: str, checksum: str, size: int) -> PublicFile:
    return PublicFile(name, f"md5:{checksum}", f"md5:{checksum}", size)


SVHN = Source(
    "svhn",
    (
        _mat("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", 182_040_794),
        _mat("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", 64_275_384),
    ),
    ("http://ufldl.stanford.edu/housenumbers/",),
    ("svhn",),
)


def cifar10(folder: Path) -> Splits:
    """60,000 photographs of 32x32 pixels in color, of ten kinds of things: 45,000 / 5,000 / 10,000."""
    batches = [f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6)]
    [path] = find_files(CIFAR10, folder)
    return _cifar(path, "cifar-10-batches-bin/batches.meta.txt", batches, "cifar-10-batches-bin/test_batch.bin", 1)


def cifar100(folder: Path) -> Splits:
    """60,000 photographs of 32x32 pixels in color, of a hundred kinds of things: 45,000 / 5,000 / 10,000."""
    [path] = find_files(CIFAR100, folder)
    names = "cifar-100-binary/fine_label_names.txt"
    return _cifar(path, names, ["cifar-100-binary/train.bin"], "cifar-100-binary/test.bin", 2)


def svhn(folder: Path) -> Splits:
    """99,289 house numbers from photographs, 32x32 pixels in color, ten digits: 67,153 / 6,104 / 26,032."""
    train, test = (_read_mat(path) for path in find_files(SVHN, folder))
    return hold_out(train, len(train) // 12, test)


def _cifar(path: Path, names: str, batches: list[str], test: str, labels: int) -> Splits:
    """labels: the bytes before each image; the last of them is its class."""
    try:
        with tarfile.open(path) as archive:
            content = {name: _member(archive, path, name) for name in (names, *batches, test)}
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise input_error(str(path), "a tar archive", error, REMEDY) from None
    classes = tuple(content[names].decode("utf-8", "replace").split())

    def read(*members: str) -> ImageSet:
        rows = np.frombuffer(b"".join(content[member] for member in members), dtype=np.uint8)
        width = labels + int(np.prod(SHAPE))
        if len(rows) == 0 or len(rows) % width:
            got = f"{len(rows):,} bytes in {', '.join(members)}"
            raise input_error(str(path), f"{width:,} bytes for each image", got, REMEDY)
        rows = rows.reshape(-1, width)
        images = torch.tensor(rows[:, labels:]).view(-1, *SHAPE)
        return ImageSet(images, torch.tensor(rows[:, labels - 1].astype(np.int64)), classes)

    train = read(*batches)
    return hold_out(train, len(train) // 10, read(test))


def _member(archive: tarfile.TarFile, path: Path, name: str) -> bytes:
    content = read_member(archive, name, LARGEST)
    if content is None:
        found = ", ".join(archive.getnames()[:8]) or "nothing"
        raise input_error(str(path), f"a file {name} in it", found, REMEDY)
    return content


def _read_mat(path: Path) -> ImageSet:
    try:
        arrays = read_mat(path)
        colors, marks = arrays["X"], arrays["y"].reshape(-1)
    except (OSError, ValueError, KeyError) as error:
        raise input_error(str(path), "a MATLAB file with X and y", error, REMEDY) from None
    if colors.shape != (32, 32, 3, len(marks)) or colors.dtype != np.uint8 or not np.isfinite(marks).all():
        got = f"X of shape {list(colors.shape)} and y of shape {list(arrays['y'].shape)}"
        raise input_error(str(path), "X of 32 x 32 x 3 x n bytes and n numbers y", got, REMEDY)
    labels = torch.from_numpy(marks.astype(np.int64) % 10)  # MATLAB counts from one, and ten stands for zero
    return ImageSet(torch.tensor(colors.transpose(3, 2, 0, 1)), labels, DIGITS)
