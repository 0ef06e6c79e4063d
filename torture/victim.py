"""A training that is killed at a named moment: python -m torture.victim MOMENT NUMBER WORDS..., words of `torchcaps`.

SIGKILL asks nobody, so that it does not matter who sends it; sent from within it comes at the very moment.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
from typing import Any

MOMENTS = ("step", "validation", "half written", "written", "renamed")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(moment: str, number: int) -> None:
    """Let the process die the `number`-th time that this moment comes.

    half written: a file's new content is there by half; written: it is there, under its temporary name; renamed: it has
    its name.
    """
    from torchcaps.train.progress import Progress

    left = [number]

    def due() -> bool:
        left[0] -= 1
        return left[0] == 0

    sync, rename = os.fsync, os.replace

    def written(file: int) -> None:
        if moment == "half written" and stat.S_ISREG(os.fstat(file).st_mode) and due():
            os.ftruncate(file, os.fstat(file).st_size // 2)
            _die()
        sync(file)

    def renamed(source: Any, target: Any) -> None:
        if moment == "written" and due():
            _die()
        rename(source, target)
        if moment == "renamed" and due():
            _die()

    os.fsync, os.replace = written, renamed  # type: ignore[assignment]
    named = {"step": "on_train_batch_end", "validation": "on_validation_start"}.get(moment)
    if named is not None:
        plain = getattr(Progress, named)

        def watched(self: Progress, *more: Any) -> None:
            if due():
                _die()
            plain(self, *more)

        setattr(Progress, named, watched)


if __name__ == "__main__":
    from torchcaps.apps.cli.main import main

    arm(sys.argv[1], int(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
