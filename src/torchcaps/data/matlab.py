"""Numerical arrays from MATLAB files of version 5, as far as data sets need them.

scipy supports more, but its compiled code can crash the process on a broken file.
"""

from __future__ import annotations

import struct
import zlib
from math import prod
from pathlib import Path

import numpy as np

_NUMBERS = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
_CLASSES = {6: "<f8", 7: "<f4", 8: "i1", 9: "u1", 10: "<i2", 11: "<u2", 12: "<i4", 13: "<u4", 14: "<i8", 15: "<u8"}
_MATRIX, _COMPRESSED = 14, 15


def read_mat(path: Path) -> dict[str, np.ndarray]:
    """The numerical arrays in a file, by name; others are skipped. Raises ValueError for other files."""
    with path.open("rb") as stream:
        head = stream.read(128)
        if head[124:] != b"\x00\x01IM":
            raise ValueError("no MATLAB file of version 5, little-endian")
        arrays: dict[str, np.ndarray] = {}
        left = path.stat().st_size - 128
        while left:
            kind, size = struct.unpack("<II", _exactly(stream.read(8), 8))
            left -= 8 + size
            if left < 0:
                raise ValueError("it is cut off")
            content = _exactly(stream.read(size), size)
            if kind == _COMPRESSED:
                kind, content = _unpacked(content)
            found = _array(memoryview(content)) if kind == _MATRIX else None
            if found is not None:
                arrays[found[0]] = found[1]
    return arrays


def _exactly(content: bytes, size: int) -> bytes:
    if len(content) != size:
        raise ValueError("it is cut off")
    return content


def _unpacked(content: bytes) -> tuple[int, bytes]:
    """The content of a compressed element; no more is unpacked than its header says."""
    packed = zlib.decompressobj()
    try:
        kind, size = struct.unpack("<II", _exactly(packed.decompress(content, 8), 8))
        return kind, _exactly(packed.decompress(packed.unconsumed_tail, size) if size else b"", size)
    except zlib.error as error:
        raise ValueError(str(error)) from None


def _array(content: memoryview) -> tuple[str, np.ndarray] | None:
    """Name and values of a matrix; None if it is not real."""
    parts: list[tuple[int, memoryview]] = []
    place = 0
    while len(parts) < 4 and place + 8 <= len(content):
        word, size = struct.unpack_from("<II", content, place)
        if word >> 16:  # of at most four bytes, which stand beside their size
            kind, size, start, place = word & 0xFFFF, word >> 16, place + 4, place + 8
        else:
            kind, start = word, place + 8
            place = start + -(-size // 8) * 8
        parts.append((kind, content[start : start + size]))
        if len(parts[-1][1]) != size or (size > 4 and word >> 16):
            raise ValueError("it is cut off")
    if len(parts) < 4 or len(parts[0][1]) < 2 or len(parts[1][1]) % 4:
        return None
    number, (_, flags), (_, sizes), (_, name), (kind, values) = parts[0][1][0], *parts
    shape = np.frombuffer(sizes, "<i4").tolist()
    if number not in _CLASSES or kind not in _NUMBERS or not 1 <= len(shape) <= 8 or flags[1] & 8:
        return None
    stored = np.dtype(_NUMBERS[kind])
    if min(shape) < 0 or prod(shape) * stored.itemsize != len(values):
        raise ValueError(f"{len(values)} bytes for shape {shape}")
    array = np.frombuffer(values, stored).reshape(shape, order="F")
    with np.errstate(all="ignore"):  # integers may be stored as other numbers
        return bytes(name).decode("ascii", "replace"), array.astype(_CLASSES[number], copy=False)
