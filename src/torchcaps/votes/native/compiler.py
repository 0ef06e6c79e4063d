"""A C compiler at work: it is given a time, and ends with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from torchcaps.votes.native.cache import private_folder

SECONDS = 120.0  # for one library, which takes one or two

_given_up: set[str] = set()  # compilers that took longer: other sizes are not tried with them
_turn = threading.Lock()  # of threads that wait for the same compiler, the first finds out that it hangs


class CompilerError(Exception):
    """In a few words, why there is no library."""


def compiled(source: Path, command: Sequence[str]) -> bytes:
    """The library that this command makes of the source."""
    with _turn, private_folder() as folder:
        made = Path(folder) / "votes.so"
        _run([*command, str(source), "-o", str(made)], Path(folder))
        if not made.exists():
            raise CompilerError("the C compiler failed: it made no library")
        return made.read_bytes()


def _run(words: Sequence[str], folder: Path) -> None:
    late = CompilerError(f"the C compiler took more than {SECONDS:g} seconds")
    if words[0] in _given_up:
        raise late
    environment = {**os.environ, "TMPDIR": str(folder)}  # what it leaves if it is killed goes with the folder
    with (folder / "said").open("w+b") as said:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=environment,
            start_new_session=True,  # a process group of its own, to be ended as a whole
        )
        try:
            code = process.wait(SECONDS)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                _given_up.add(words[0])
                raise late from None
            raise
        said.seek(0)
        lines = said.read(10_000).decode(errors="replace").strip().splitlines()
    if code:
        raise CompilerError(f"the C compiler failed: {lines[0] if lines else f'exit code {code}'}")


def _new_turn() -> None:
    """A forked process has no thread that could end another's turn."""
    global _turn
    _turn = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_turn)
