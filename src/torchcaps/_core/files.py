"""Files: bounded reads, and atomic writes that never follow a link."""

from __future__ import annotations

import os
import re
import secrets
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from torchcaps._core.errors import input_error

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MOST_TEXT = 64 << 20  # bytes of a file that is read whole: JSON, tables of metrics, model cards
MOST_LINE = 1 << 26  # characters
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def inside(folder: Path, *names: str) -> Path:
    """A path below a folder. Raises an `InputError` if a link on the way leaves the folder.

    The folder itself may be a link, because the user named it. Its content may come from somebody else.
    """
    path = folder.joinpath(*names)
    if not is_inside(folder, path):
        remedy = "Remove the link, or put a copy of what it points to in its place."
        raise input_error(str(path), f"a place inside {folder}", "a link that leads out of it", remedy)
    return path


def is_inside(folder: Path, path: Path) -> bool:
    """Whether a path, with links resolved, is below a folder."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a circle of links
        return False


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading. Raises OSError for pipes and devices, without waiting for them."""
    file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(None, "not a regular file", str(path))
        return os.fdopen(file, "rb")
    except BaseException:
        os.close(file)
        raise


def open_own(path: Path, flags: int) -> int:
    """Open a file for writing in place. It must be new, or a regular file without further hard links."""
    try:
        found = path.lstat()
        plain = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
    except FileNotFoundError:
        plain = True
    if plain:
        file = os.open(path, flags | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | NO_FOLLOW, 0o666)
        found = os.fstat(file)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            return file
        os.close(file)
    raise input_error(str(path), "a plain file without another name", "a link, a pipe or a device", "Remove it.")


def read_bytes(path: Path, most: int = MOST_TEXT) -> bytes:
    """Read a regular file of at most `most` bytes. Raises OSError if it is larger."""
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(None, f"more than {most >> 20} MB", str(path))
    return content


def read_text(path: Path, most: int = MOST_TEXT) -> str:
    """Read a UTF-8 file of at most `most` bytes, as `read_bytes`."""
    return read_bytes(path, most).decode("utf-8")


def lines_of(file: IO[str], most: int = MOST_LINE) -> Iterator[str]:
    """Iterate over the lines of a text file. Raises OSError for a line of `most` characters or more."""
    while line := file.readline(most):
        if len(line) == most and not line.endswith("\n"):
            raise OSError(None, f"a line of {most:,} signs or more")
        yield line


def atomic_write(path: Path, content: str | bytes | Iterable[str]) -> None:
    """Write a file atomically: after a kill, a full disk or a power cut it is either the old or the new one.

    The temporary file has a random name, so that concurrent writers do not interfere and nobody can prepare a link in
    its place. Raises an `InputError` if path is a link, a pipe or a device.
    """
    pieces = (content,) if isinstance(content, str | bytes) else content
    _refuse_special(path)
    _remove_abandoned(path)
    try:
        descriptor, temporary = _new_temporary(path)
        try:
            with os.fdopen(descriptor, "wb") as file:
                # Lone surrogates, from names that are not UTF-8, are written as \udce9. JSON has none.
                file.writelines(
                    piece.encode("utf-8", "backslashreplace") if isinstance(piece, str) else piece for piece in pieces
                )
                file.flush()
                os.fsync(file.fileno())  # otherwise the rename may reach the disk before the content
                if fcntl is not None:  # while it is locked, so that no other writer removes it as abandoned
                    os.replace(temporary, path)
            if fcntl is None:  # Windows cannot rename open files
                os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def is_temporary(name: str) -> bool:
    """Whether this is the name of a temporary file of `atomic_write`."""
    return re.fullmatch(r"\.torchcaps-[0-9a-f]{8}-[0-9a-f]{16}\.tmp", name) is not None


def _stem(path: Path) -> str:
    """The prefix of temporary file names, shortened to stay within the name limit of the file system."""
    return f".torchcaps-{zlib.crc32(os.fsencode(path.name)):08x}-"


def _refuse_special(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode) or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # the system rejects folders
        got = "a link" if stat.S_ISLNK(mode) else "a pipe or a device"
        raise input_error(str(path), "the place of a file to write", got, "Remove it, or choose another name.")


def _new_temporary(path: Path) -> tuple[int, Path]:
    """A new temporary file, which is locked while it is open, and its name."""
    while True:
        temporary = path.with_name(f"{_stem(path)}{secrets.token_hex(8)}.tmp")
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW, 0o666)
        # Until it is locked, another writer may remove it as abandoned.
        if try_lock(file) is not False and os.fstat(file).st_nlink:
            return file, temporary
        os.close(file)


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of killed writers, which are recognized because they are no longer locked."""
    with suppress(OSError):
        for entry in os.listdir(path.parent):
            if not (is_temporary(entry) and entry.startswith(_stem(path))):
                continue
            with suppress(OSError):
                file = os.open(path.parent / entry, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | NO_FOLLOW)
                try:
                    if stat.S_ISREG(os.fstat(file).st_mode) and try_lock(file) is True:
                        os.unlink(path.parent / entry)
                finally:
                    os.close(file)


def try_lock(file: int) -> bool | None:
    """Lock an open file for this process, until it ends in any way. False if another process holds the lock.

    None if files cannot be locked: on Windows, and on some network file systems.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # not supported here
        return None
    return True


def unlock(file: int) -> None:
    """Release a lock explicitly, because a forked process may still hold the file open."""
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)
