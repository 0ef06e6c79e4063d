"""smallNORB: toys photographed in stereo from known viewpoints, and the binary format of its files."""

from __future__ import annotations

import gzip
import struct
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchcaps._core.errors import input_error
from torchcaps.data.base import ImageSet, Splits, hold_out
from torchcaps.data.fetch import PublicFile, Source, find_files
from torchcaps.data.packed import open_packed, read_exactly

CLASSES = ("animal", "human", "airplane", "truck", "car")
_MAGIC: dict[int, np.dtype[Any]] = {  # little-endian, as everything in these files
    0x1E3D4C51: np.dtype("<f4"),
    0x1E3D4C53: np.dtype("<f8"),
    0x1E3D4C54: np.dtype("<i4"),
    0x1E3D4C55: np.dtype("u1"),
    0x1E3D4C56: np.dtype("<i2"),
}
_TRAIN, _TEST = "smallnorb-5x46789x9x18x6x2x96x96-training", "smallnorb-5x01235x9x18x6x2x96x96-testing"
# Both label files unpack to the same: the classes take turns.
_LABELS = "sha256:591ed90c090cb6724593e8de28180bd602095ee8ec82bd1a5ca30b488cd1d06e"
SMALLNORB = Source(
    "smallnorb",
    (
        PublicFile(
            f"{_TRAIN}-dat.mat.gz",
            "sha256:5ffd6272a07d32695ee1082a26a41a93a37aab8c28da047f8c34ed348d214873",
            "sha256:4813bf104d229583fea8ed57fdc3e9258c927b8dfb43d75412e854a7a9588067",
            447_897_624,
        ),
        PublicFile(
            f"{_TRAIN}-cat.mat.gz",
            "sha256:2784e542c1922060691090952b6cd6278879a216c90f81476f0f00256d42cdaa",
            _LABELS,
            97_220,
        ),
        PublicFile(
            f"{_TRAIN}-info.mat.gz",
            "sha256:de7eb932ebe7a4ee16217fead60660d0eb3d23632c2f4d1c51f88c501c17bf32",
            "md5:19faee774120001fc7e17980d6960451",
            388_820,
        ),
        PublicFile(
            f"{_TEST}-dat.mat.gz",
            "sha256:cf7104eed3e51174d2f65b66d1e5878b9da233b886f161b0d88f4510ba2c7474",
            "sha256:2b1de646c57ffdc259b8fb973a6453e90915248a8fdb4d9df948786bdae72b34",
            447_897_624,
        ),
        PublicFile(
            f"{_TEST}-cat.mat.gz",
            "sha256:ecaf6d5bb8c3bc5eab9cf0258f6d2198dd474e016e374836fc097f2e5ff509ff",
            _LABELS,
            97_220,
        ),
        PublicFile(
            f"{_TEST}-info.mat.gz",
            "sha256:16adf314226327ee006d1a44db8cfef52773c06c829951d5653a9f6f310248a2",
            "md5:7c5b871cc69dcadec1bf6a18141f5edc",
            388_820,
        ),
    ),
    ("https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/",),
    ("smallnorb", "."),
)


def read_norb(path: Path | str) -> np.ndarray:
    """Read the array in the file at path, in smallNORB's format. It is memory-mapped unless the file is gzipped."""
    path = Path(path)
    with open_packed(path) as stream:
        start = stream.read(8)
        magic, axes = struct.unpack("<Ii", start) if len(start) == 8 else (0, 0)
        if magic not in _MAGIC or not 1 <= axes <= 8:
            size = path.stat().st_size if len(start) == 8 else len(start)
            got = f"{size} bytes that start with {start.hex(' ') or 'nothing'}"
            raise input_error(
                str(path), "a smallNORB file (magic number, axes)", got, "Check that it is the right file."
            )
        written = stream.read(4 * max(axes, 3))  # at least three sizes are written, the superfluous ones as 1
        shape = struct.unpack_from(f"<{axes}I", written) if len(written) == 4 * max(axes, 3) else ()
        offset = 8 + 4 * max(axes, 3)
        expected = offset + prod(shape) * _MAGIC[magic].itemsize
        packed = isinstance(stream, gzip.GzipFile)
        content = read_exactly(path, stream, expected - offset) if packed and shape else bytearray()
        length = 8 + len(written) + len(content) if packed else path.stat().st_size
    if not shape or length != expected:
        got = f"{length}" + (" or more" if packed and length > expected else "")
        raise input_error(str(path), f"{expected} bytes for shape {list(shape)}", got, "Fetch it again.")
    if packed:
        return np.frombuffer(content, _MAGIC[magic]).reshape(shape)
    if 0 in shape:  # nothing to map
        return np.empty(shape, _MAGIC[magic])
    return np.memmap(path, _MAGIC[magic], "c", offset, shape)  # "c": what is written there never reaches the file


def write_norb(path: Path | str, array: np.ndarray) -> None:
    """Write an array to path in smallNORB's format, gzipped if the name ends in .gz."""
    magic = next((magic for magic, dtype in _MAGIC.items() if dtype == array.dtype), None)
    if magic is None or not 1 <= array.ndim <= 8:
        expected = "one to eight axes of " + ", ".join(dtype.name for dtype in _MAGIC.values())
        got = f"{array.ndim} axes of {array.dtype}"
        raise input_error("write_norb", expected, got, "Convert it with array.astype.")
    sizes = [*array.shape, 1, 1][: max(array.ndim, 3)]
    head = struct.pack(f"<Ii{len(sizes)}I", magic, array.ndim, *sizes)
    with gzip.open(path, "wb") if Path(path).suffix == ".gz" else Path(path).open("wb") as stream:
        stream.write(head)
        stream.write(np.ascontiguousarray(array, _MAGIC[magic]).data)


def load_norb(images: Path | str, labels: Path | str, info: Path | str) -> ImageSet:
    """Load stereo pairs [n 2 h w] with their viewpoints, from the three files of one part."""
    pixels, marks, known = read_norb(images), read_norb(labels), read_norb(info)
    for path, array, shape in (
        (images, pixels, (len(pixels), 2, *pixels.shape[2:4])),
        (labels, marks, (len(pixels),)),
        (info, known, (len(pixels), 4)),
    ):
        fits = array.dtype.kind in "iu" if path != images else array.ndim == 4 and array.dtype == np.uint8
        if array.shape != shape or not fits:
            whole = f"whole numbers of shape {list(shape)}, as there are {len(pixels)} images"
            expected = "bytes [n 2 h w]" if path == images else whole
            got = f"{array.dtype} {list(array.shape)}"
            raise input_error(str(path), expected, got, "Put the right files together.")
    instance, elevation, azimuth, lighting = torch.from_numpy(known.astype(np.int64)).unbind(1)
    views = {
        "instance": instance,
        "elevation": 30 + 5 * elevation,  # 0 to 8: 30 to 70 degrees
        "azimuth": 10 * azimuth,  # 0, 2 to 34: 0 to 340 degrees
        "lighting": lighting,
    }
    return ImageSet(torch.from_numpy(pixels), torch.from_numpy(marks.astype(np.int64)), CLASSES, views)


def smallnorb(folder: Path) -> Splits:
    """48,600 stereo pairs of 96x96 pixels, 50 toys from 162 viewpoints in 6 lights: 21,870 / 2,430 / 24,300."""
    paths = find_files(SMALLNORB, folder)
    train, test = load_norb(*paths[:3]), load_norb(*paths[3:])
    return hold_out(train, len(train) // 10, test)
