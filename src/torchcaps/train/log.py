"""What is said during a training: printed while somebody can read it, and in the run's log always."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from torchcaps.errors import InputError
from torchcaps.files import NO_FOLLOW
from torchcaps.neutral import shown


def say(text: str, log: Path | None = None, *, error: bool = False) -> None:
    """Print a text, on standard error if so asked, and add it to a log. Output that went away is no reason to end."""
    if log is not None:
        write_log(log, text)
    stream = sys.stderr if error else sys.stdout
    if stream is None:
        return
    try:
        print(text, file=stream, flush=True)
    except (OSError, ValueError):  # a full disk, a closed pipe, terminal or file
        _discard(stream)


def write_log(log: Path, text: str) -> None:
    """Add lines to a log, each with its time. That the disk is full is told by the files that matter more."""
    now = f"{datetime.now():%Y-%m-%d %H:%M:%S}"
    content = "".join(f"{now}  {shown(line)}\n" for line in text.splitlines() if line.strip())
    with suppress(OSError):
        file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | NO_FOLLOW, 0o666)
        with os.fdopen(file, "wb") as stream:
            stream.write(content.encode("utf-8", "backslashreplace"))


class Lenient:
    """A stream for a progress bar, which ends in silence when nobody reads it any more."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self.stream.write(text)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except (OSError, ValueError):
            _discard(self.stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _discard(stream: Any) -> None:
    """Let a stream whose reader is gone write into nothing, else Python complains of it at the end."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def logged(log: Path) -> Iterator[None]:
    """Warnings and the error that ends a training are written to its log as well."""
    show = warnings.showwarning

    def show_and_log(message: Warning | str, *more: Any) -> None:
        write_log(log, f"warning: {message}")
        with suppress(OSError, ValueError):
            show(message, *more)

    warnings.showwarning = show_and_log  # type: ignore[assignment]
    try:
        yield
    except InputError as error:
        write_log(log, str(error))
        raise
    except KeyboardInterrupt:
        write_log(log, "interrupted")
        raise
    except Exception:
        write_log(log, traceback.format_exc())
        raise
    finally:
        warnings.showwarning = show
