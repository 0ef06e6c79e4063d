"""Storage for data of any size: in memory up to a limit, otherwise in a temporary file that is read on demand."""

from __future__ import annotations

import os
import shutil
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import IO, Generic, TypeVar
from weakref import finalize

import numpy as np
import torch
from torch import Tensor

from torchcaps._core.errors import InputError, input_error
from torchcaps._core.folders import cache_folder, private_folder

Item = TypeVar("Item")
Kept = TypeVar("Kept", bound="Stored")  # type: ignore[type-arg]

MOST_BYTES = 2**30
VARIABLE = "TORCHCAPS_DATA_BYTES"
OBJECT = 100  # approximate overhead of a Python string in bytes


def data_folder(folder: Path | str | None = None) -> Path:
    """The folder of downloaded data: the given one, else TORCHCAPS_DATA, else a cache folder in the user's home."""
    named = folder or os.environ.get("TORCHCAPS_DATA")
    if named:
        return Path(named).expanduser()
    try:
        return cache_folder()
    except InputError:  # the user has no home directory
        return private_folder()


_only_reading: ContextVar[bool] = ContextVar("only_reading", default=False)


@contextmanager
def only_reading() -> Iterator[None]:
    """A context in which nothing is written to data folders, because an untrusted run may have named them."""
    token = _only_reading.set(True)
    try:
        yield
    finally:
        _only_reading.reset(token)


def may_write() -> bool:
    """Whether data may be downloaded to, or cached in, the data folder."""
    return not _only_reading.get()


def most_bytes() -> int:
    """The number of bytes of images or texts that are kept in memory: TORCHCAPS_DATA_BYTES, else 1 GB."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return MOST_BYTES
    if not text.isdecimal():
        raise input_error(VARIABLE, "a number of bytes", repr(text), f"Set it to {MOST_BYTES}, say.")
    return int(text)


class Records:
    """A list of byte strings. Above `most_bytes()` they move to a temporary file in `data_folder()`.

    The file has no name, so that the system deletes it when it is closed or the process ends in any way.

    owner: named in error messages. expected: the number of bytes to come; if they need the disk and it has too little
    free space, this raises an `InputError` at once.
    """

    def __init__(self, owner: str, expected: int = 0) -> None:
        self.owner = owner
        self.most = most_bytes()
        self.file: IO[bytes] = BytesIO()
        self.ends = array("q", [0])
        self.lock = Lock()
        if expected > self.most:
            self._check_room(expected)

    @property
    def on_disk(self) -> bool:
        """Whether the records are in a file."""
        return not isinstance(self.file, BytesIO)

    def append(self, record: bytes) -> None:
        """Add a record at the end."""
        self.ends.append(self.ends[-1] + len(record))
        try:
            self.file.write(record)
            if not self.on_disk and self.ends[-1] + OBJECT * len(self) > self.most:
                self._move()
        except OSError as error:
            raise self._full(str(error)) from None

    def _move(self) -> None:
        assert isinstance(self.file, BytesIO)
        self._check_room(self.ends[-1])
        file = tempfile.TemporaryFile(dir=data_folder())  # noqa: SIM115 - held as long as the records are
        finalize(self, file.close)
        file.write(self.file.getbuffer())
        self.file = file

    def _check_room(self, expected: int) -> None:
        try:
            data_folder().mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(data_folder()).free
        except OSError as error:
            raise self._full(str(error)) from None
        if free < expected:
            raise self._full(f"{free / 1e9:,.1f} GB", expected)

    def _full(self, got: str, expected: int = 0) -> Exception:
        room = f"{expected / 1e9:,.1f} GB free" if expected else "room"
        remedy = "Make room, or let TORCHCAPS_DATA name another folder."
        return input_error(self.owner, f"{room} in {data_folder()} for data that do not fit in memory", got, remedy)

    def __len__(self) -> int:
        return len(self.ends) - 1

    def read(self, row: int, most: int | None = None) -> bytes:
        """A record, or its first `most` bytes."""
        size = self.ends[row + 1] - self.ends[row]
        size = size if most is None else min(size, most)
        if self.on_disk and hasattr(os, "pread"):  # child processes share the position in the file
            self.file.flush()
            return os.pread(self.file.fileno(), size, self.ends[row])
        with self.lock:
            self.file.seek(self.ends[row])
            return self.file.read(size)


class Stored(Generic[Item]):
    """A sequence of decoded records. A selection of them, in any order, shares the records without a copy.

    records: the stored byte strings.
    """

    def __init__(self, records: Records) -> None:
        self.records = records
        self.rows = np.arange(len(records))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Item:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Item]:
        return (self[row] for row in range(len(self)))

    def pick(self: Kept, rows: Tensor) -> Kept:
        """The items with these indices [n], in this order."""
        picked = copy(self)
        picked.rows = self.rows[rows.numpy()]
        return picked


class Strings(Stored[str]):
    """Texts or names, stored as UTF-8."""

    def __getitem__(self, row: int) -> str:
        return self.records.read(self.rows[row]).decode("utf-8", "surrogatepass")

    def held(self) -> Names:
        """A tuple in memory if the records are in memory, otherwise this object."""
        return self if self.records.on_disk else tuple(self)


Names = tuple[str, ...] | Strings


class Numbers(Stored[Tensor]):
    """Rows of integers of any length, stored as int32."""

    def __getitem__(self, row: int) -> Tensor:
        return torch.from_numpy(np.frombuffer(self.records.read(self.rows[row]), np.int32).astype(np.int64))

    def lengths(self) -> Tensor:
        """The number of integers in each row, [n]."""
        return torch.from_numpy(np.diff(np.asarray(self.records.ends))[self.rows] // np.dtype(np.int32).itemsize)


class Floats(Stored[Tensor]):
    """Tensors [n ...] of float32 that are loaded when they are indexed. shape: of each."""

    def __init__(self, records: Records, shape: tuple[int, ...]) -> None:
        super().__init__(records)
        self.shape = shape

    def __getitem__(self, rows: int | Tensor) -> Tensor:
        chosen = self.rows[rows.numpy() if isinstance(rows, Tensor) else [rows]]
        values = np.empty((len(chosen), *self.shape), np.float32)
        for value, row in zip(values, chosen, strict=True):
            value[:] = np.frombuffer(self.records.read(row), np.float32).reshape(self.shape)
        return torch.from_numpy(values if isinstance(rows, Tensor) else values[0])

    def held(self) -> Tensor | Floats:
        """A tensor if the records are in memory, otherwise this object."""
        return self if self.records.on_disk else self[torch.arange(len(self))]


class Rows(Stored[Tensor]):
    """Rows [t c] of float32 of any number. size: c. `order` says which record each item is."""

    def __init__(self, records: Records, size: int, order: Tensor) -> None:
        super().__init__(records)
        self.size = size
        self.rows = order.numpy()

    def __getitem__(self, row: int) -> Tensor:
        return torch.from_numpy(np.frombuffer(self.records.read(self.rows[row]), np.float32).copy()).view(-1, self.size)


class Stack(Stored[Tensor]):
    """Images [n c h w] of torch.uint8 that are loaded when they are indexed.

    records: one for each image. image_shape: (channels, height, width); records may have further channels.
    """

    dtype, ndim = torch.uint8, 4

    def __init__(self, records: Records, image_shape: tuple[int, int, int]) -> None:
        super().__init__(records)
        self.image_shape = image_shape

    @property
    def shape(self) -> torch.Size:
        """[n c h w], as `Tensor.shape`."""
        return torch.Size((len(self), *self.image_shape))

    def __getitem__(self, rows: int | Tensor) -> Tensor:
        chosen = self.rows[rows.numpy() if isinstance(rows, Tensor) else [rows]]
        images = np.empty((len(chosen), *self.image_shape), np.uint8)
        for image, row in zip(images, chosen, strict=True):
            image[:] = np.frombuffer(self.records.read(row, image.size), np.uint8).reshape(image.shape)
        return torch.from_numpy(images if isinstance(rows, Tensor) else images[0])

    def split(self, size: int) -> Iterator[Tensor]:
        """Chunks of `size` images, as `Tensor.split`."""
        return (self[rows] for rows in torch.arange(len(self)).split(size))

    def held(self) -> Tensor | Stack:
        """A tensor if the records are in memory, otherwise this object."""
        return self if self.records.on_disk else self[torch.arange(len(self))]


def pick(items: Names, rows: Tensor) -> Names:
    """The items with these indices [n], in this order."""
    return items.pick(rows) if isinstance(items, Strings) else tuple(items[row] for row in rows.tolist())


def strings(owner: str, texts: Iterable[str]) -> Names:
    """Store texts or names, in memory up to `most_bytes()`, otherwise on disk."""
    records = Records(owner)
    for text in texts:
        records.append(text.encode("utf-8", "surrogatepass"))
    return Strings(records).held()
