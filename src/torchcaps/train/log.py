"""Messages during training: printed if possible, and always written to the run's log."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any

from torchcaps._core.arguments import as_called
from torchcaps._core.errors import InputError
from torchcaps._core.files import open_own
from torchcaps._core.neutral import NeutralStream, shown, terminal


def say(text: str, log: Path | None = None, *, error: bool = False) -> None:
    """Print a text, on stderr if `error` is True, and add it to a log. A closed output does not raise an error."""
    text = as_called(text)
    if log is not None:
        write_log(log, text)
    stream = sys.stderr if error else sys.stdout
    if stream is None:
        return
    try:
        print(text, file=NeutralStream(terminal(stream)), flush=True)
    except (OSError, ValueError):  # a full disk, a closed pipe, terminal or file
        _discard(stream)


def write_log(log: Path, text: str) -> None:
    """Add lines to a log, each with its time. Errors are ignored: more important files report a full disk."""
    now = f"{datetime.now():%Y-%m-%d %H:%M:%S}"
    content = "".join(f"{now}  {shown(line)}\n" for line in text.splitlines() if line.strip())
    with suppress(OSError), os.fdopen(open_own(log, os.O_WRONLY | os.O_APPEND), "wb") as stream:
        stream.write(content.encode("utf-8", "backslashreplace"))


class Lenient:
    """A stream for a progress bar that ignores errors after its reader is gone."""

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
    """Redirect a stream whose reader is gone to os.devnull, to avoid an error at exit."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)


_logs: list[Path] = []  # of the trainings in this process; there may be several, in threads
_before: list[Any] = []  # warnings.showwarning before the first of them
_turn = Lock()


def _show_and_log(message: Warning | str, *more: Any) -> None:
    for log in list(_logs):
        write_log(log, f"warning: {message}")
    with suppress(OSError, ValueError):
        _before[0](message, *more)


@contextmanager
def logged(log: Path) -> Iterator[None]:
    """A context in which warnings, and the error that ends a training, are also written to its log."""
    with _turn:
        if not _logs:
            _before[:] = [warnings.showwarning]
            warnings.showwarning = _show_and_log  # type: ignore[assignment]
        _logs.append(log)
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
        with _turn:
            _logs.remove(log)
            if not _logs:
                warnings.showwarning = _before[0]
