"""Libraries that were built before, in a folder of the user's own, and how one gets from there into the process.

Whoever can write a library that is loaded can do what its user can. So the folder and its files are looked at as
OpenSSH looks at its own: they must belong to the user (or to root), and nobody else may be able to write them. What is
read is compared with its sum, and the bytes that were compared are those that are loaded: a file that is cut or
changed, before or after, ends no process.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import os
import secrets
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from torchcaps._core.errors import InputError, input_error
from torchcaps._core.folders import cache_folder

LARGEST = 64 * 2**20  # bytes of a file that can be one of ours: they have a hundred thousand
STALE = 3600  # seconds after which whoever made a temporary file has ended or been killed

_told: set[str] = set()
_slashes = itertools.count(1)


class UnsafeError(PermissionError):
    """Somebody else could have written it, or can."""


def find(name: str) -> bytes | None:
    """The library of this name, whole and the user's own; None if there is none, or another thing in its place."""
    with contextlib.suppress(OSError), _opened() as folder:
        # No link is followed, and nobody waits for the other end of a pipe.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(name, flags, dir_fd=folder)
        try:
            return _checked(file, name)
        finally:
            os.close(file)
    return None


def keep(name: str, content: bytes) -> None:
    """Write a library for the processes to come, whole or not at all; where that must not be, it is told once."""
    try:
        with _opened() as folder:
            for pattern in ("*.tmp", "tmp*"):
                sweep(Path(f"/proc/self/fd/{folder}"), pattern)
            _write(folder, name, content + _seal(name, content))
    except UnsafeError as error:
        if str(error) not in _told:
            _told.add(str(error))
            expected = "a folder that only its owner can write"
            remedy = "Run chmod go-w on it, or set XDG_CACHE_HOME to one of your own: else each process builds anew."
            warnings.warn(str(input_error("native functions", expected, error, remedy)), stacklevel=2)
    except OSError:
        pass  # no home, a folder that cannot be written, a full disk


def trouble() -> str | None:
    """In a few words, why nothing is kept here; None if it is."""
    try:
        with _opened():
            return None
    except UnsafeError as error:
        return str(error)
    except OSError as error:
        return error.strerror or str(error)


def load(content: bytes) -> ctypes.CDLL:
    """The library that these bytes are, from memory, so that no file can change under it."""
    with contextlib.suppress(AttributeError, OSError):  # some systems have no such files, some load nothing from them
        file = os.memfd_create("torchcaps", os.MFD_CLOEXEC)
        try:
            with open(file, "wb", closefd=False) as writer:
                writer.write(content)
            # glibc takes a name that it has opened before for the same library, and numbers of files are used again.
            return ctypes.CDLL(f"/proc/self/fd{'/' * next(_slashes)}{file}")
        finally:
            os.close(file)
    with private_folder() as folder:  # a loaded library needs its name no more
        path = Path(folder) / "votes.so"
        path.write_bytes(content)
        return ctypes.CDLL(str(path))


def private_folder() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder, and those of killed processes away."""
    prefix = ".torchcaps-build-"
    sweep(Path(tempfile.gettempdir()), f"{prefix}*")
    return tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)


def sweep(folder: Path, pattern: str) -> None:
    """Remove what the user's killed builds have left there."""
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if status.st_uid == os.geteuid() and time.time() - status.st_mtime > STALE:
                shutil.rmtree(path) if stat.S_ISDIR(status.st_mode) else path.unlink()


@contextlib.contextmanager
def _opened() -> Iterator[int]:
    """The folder as an open file: the one that was looked at is the one that is used, wherever its name leads then."""
    try:
        place = cache_folder() / "native"
    except InputError as error:
        raise OSError("there is no home folder") from error
    for path in reversed([path for path in (place, *place.parents) if not path.exists()]):
        path.mkdir(0o700, exist_ok=True)
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _check(os.fstat(folder), place)
        yield folder
    finally:
        os.close(folder)


def _check(status: os.stat_result, what: object) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise UnsafeError(f"{what}, which belongs to another user")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnsafeError(f"{what}, which others can write")


def _checked(file: int, name: str) -> bytes | None:
    status = os.fstat(file)
    _check(status, name)
    if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
        return None
    with open(file, "rb", closefd=False) as reader:
        found = reader.read(LARGEST)
    length = hashlib.sha256().digest_size
    content, seal = found[:-length], found[-length:]
    return content if seal == _seal(name, content) else None


def _seal(name: str, content: bytes) -> bytes:
    """What stands after a library in its file: no other file, and none under another name, ends with it by accident."""
    return hashlib.sha256(name.encode() + b"\0" + content).digest()


def _write(folder: int, name: str, content: bytes) -> None:
    made = f"{name}.{secrets.token_hex(8)}.tmp"  # whoever builds the same renames the same
    file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with open(file, "wb") as writer:
            writer.write(content)
        os.rename(made, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(made, dir_fd=folder)
        raise
