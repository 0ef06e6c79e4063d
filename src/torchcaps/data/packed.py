"""Compressed files: gzip and tar, with limits on the unpacked size."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from torchcaps._core.errors import input_error
from torchcaps._core.files import open_regular
from torchcaps._core.memory import available_memory

CHECKED = 1 << 26  # bytes of an array above which its size is compared with the available memory
UNCHECKED = 1 << 23  # bytes of a compressed text that are always read
DENSEST = 200  # the largest compression ratio of a text; ratios above ten are rare
LARGEST = 1 << 28  # bytes of a file in an archive of a named data set


@contextmanager
def open_packed(path: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """Open a file for reading bytes; gzip is recognized by content, not by name."""
    with open_regular(path) as stream:
        packed = stream.read(2) == b"\x1f\x8b"
        stream.seek(0)
        if not packed:
            yield stream
            return
        try:
            with gzip.open(stream) as unpacked:
                yield unpacked
        except (OSError, EOFError, zlib.error) as error:
            raise input_error(str(path), "a whole gzip file", str(error), "Fetch it again.") from None


def open_text(path: Path, encoding: str = "utf-8", newline: str | None = None) -> IO[str]:
    """Open a regular file for reading text, unpacked if its name ends in .gz."""
    codecs.lookup(encoding)  # raises LookupError for an unknown encoding before opening
    file: Any = open_regular(path)
    if path.suffix.lower() == ".gz":
        file = _Owned(file)
    return io.TextIOWrapper(file, encoding=encoding, newline=newline)


class _Owned(gzip.GzipFile):
    """A gzip file that closes its underlying file, and raises an error above the compression ratio DENSEST."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(fileobj=file, mode="rb")
        self.own = file
        self.most = max(UNCHECKED, DENSEST * os.fstat(file.fileno()).st_size)
        self.unpacked = 0

    def read1(self, size: int = -1) -> bytes:
        """Called by io.TextIOWrapper."""
        content = super().read1(size)
        self.unpacked += len(content)
        if self.unpacked > self.most:
            raise OSError(None, f"a file that unpacks to more than {DENSEST} times its size")
        return content

    def close(self) -> None:
        super().close()
        self.own.close()


def read_member(archive: tarfile.TarFile, name: str, most: int) -> bytes | None:
    """A file in a tar archive, if there is one of this name; one of more bytes, or with holes in it, is an OSError."""
    try:
        member = archive.getmember(name)
    except KeyError:
        return None
    if not member.isreg() or member.issparse() or member.size > most:
        raise OSError(None, f"{name} of {member.size:,} bytes, or no plain file")
    stream = archive.extractfile(member)
    return None if stream is None else stream.read()


def read_exactly(path: Path, stream: IO[bytes] | gzip.GzipFile, count: int) -> bytearray:
    """Read `count` bytes, and one more if there are more, without allocating memory before the bytes are read.

    Raises an `InputError` while reading if `count` exceeds the available memory.
    """
    content = bytearray()
    while len(content) <= count and (chunk := stream.read(min(1 << 20, count + 1 - len(content)))):
        content += chunk
        if len(content) == CHECKED:
            _check_fits(path, count)
    return content


def _check_fits(path: Path, count: int) -> None:
    there = available_memory()
    if there is not None and count > there:
        got = f"one of {count / 2**30:,.1f} GB"
        raise input_error(str(path), f"an array that fits {there / 2**30:.1f} GB of memory", got, "Check the file.")
