"""Bounds around what is tried: memory, time, warnings, and what is said where nobody should speak."""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SECONDS = 20  # of computing, for one input


class Hang(BaseException):
    """It took too long. No Exception, so that nothing takes it for a broken file."""


def _hang(*_: object) -> None:
    raise Hang


# Words of the library's own warnings on data.
OURS = (
    "left out",
    "are longer than",
    "--encoding chooses",
    "first line is read as a row",
    "occur only once",
    "--separator",
)


@contextmanager
def in_time(seconds: float = SECONDS) -> Iterator[None]:
    """At most so many seconds of this process's computing time, else `Hang`."""
    before = signal.signal(signal.SIGPROF, _hang)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextmanager
def in_memory(more: int) -> Iterator[None]:
    """At most so many bytes of address space more than now, else MemoryError."""
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def overheard() -> Iterator[list[str]]:
    """Warnings that are not the library's own, and records of logging from warnings on."""
    heard: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(f"logged: {record.getMessage()}")

    ear = Ear(logging.WARNING)
    logging.getLogger().addHandler(ear)

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if not any(words in str(message) for words in OURS):
            heard.append(f"{category.__name__}: {message}")

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = show
            yield heard
    finally:
        logging.getLogger().removeHandler(ear)


@contextmanager
def muted() -> Iterator[Iterator[str]]:
    """What is written on standard error, by C libraries too, goes to the iterator that this gives."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile("w+b") as file:
        os.dup2(file.fileno(), 2)

        def said() -> Iterator[str]:
            sys.stderr.flush()
            file.seek(0)
            yield from file.read().decode("utf-8", "replace").splitlines()

        try:
            yield said()
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
