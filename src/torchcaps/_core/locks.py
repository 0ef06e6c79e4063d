"""One writer for each run folder: a lock that ends with its process and records its holder."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from torchcaps._core.errors import input_error
from torchcaps._core.files import inside, open_own, try_lock, unlock
from torchcaps._core.neutral import shown

LOCK = ".torchcaps.lock"
MOST = 4096  # bytes that are read of a lock file


@contextmanager
def locked(folder: Path) -> Iterator[str | None]:
    """Hold the lock of a folder, which is created if missing. Raises an `InputError` if another process holds it.

    Yields the previous holder if it did not release the lock (because it was killed), otherwise None.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = open_own(inside(folder, LOCK), os.O_RDWR)
    try:
        held, before = _taken(file)
        if held is False or (held is None and before is not None and _is_alive(before)):
            raise input_error(
                str(folder),
                "a folder that no other process is writing to",
                _words(before),
                "Wait until it has ended, or end it.",
            )
        _write(file, {"pid": os.getpid(), "host": socket.gethostname(), "since": f"{datetime.now():%Y-%m-%d %H:%M:%S}"})
        try:
            yield None if before is None else _words(before)
        finally:
            with suppress(OSError):
                _write(file, None)
    finally:
        unlock(file)
        os.close(file)


def _taken(file: int) -> tuple[bool | None, dict[str, Any] | None]:
    """Whether the lock was acquired, and its last recorded holder. A new holder may not have recorded itself yet."""
    for _ in range(20):
        held, before = try_lock(file), _holder(_read(file))
        if held is not False or before is not None:
            break
        time.sleep(0.05)
    return held, before


def _write(file: int, holder: dict[str, Any] | None) -> None:
    os.ftruncate(file, 0)
    if holder is not None:
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, json.dumps(holder).encode())


def _read(file: int) -> bytes:
    os.lseek(file, 0, os.SEEK_SET)
    return os.read(file, MOST)


def _holder(content: bytes) -> dict[str, Any] | None:
    """The holder that a lock file records; None if it was released."""
    with suppress(ValueError, RecursionError):
        found = json.loads(content)
        if isinstance(found, dict) and isinstance(found.get("pid"), int):
            return found
    return None


def _words(holder: dict[str, Any] | None) -> str:
    if holder is None:
        return "one that another process holds"
    return shown(f"process {holder['pid']} on {holder.get('host')} (since {holder.get('since')})")


def _is_alive(holder: dict[str, Any]) -> bool:
    """Fallback if files cannot be locked: whether the holder's process runs. False if it was on another machine."""
    if holder.get("host") != socket.gethostname() or os.name != "posix":
        return False
    try:
        os.kill(holder["pid"], 0)
    except PermissionError:  # it runs, as another user
        return True
    except (OSError, OverflowError):
        return False
    return holder["pid"] != os.getpid()
