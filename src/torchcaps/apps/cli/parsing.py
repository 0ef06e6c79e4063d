"""From words of a command line to one of the dataclasses of `config`."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import sys
from typing import TypeVar

from torchcaps._core.neutral import terminal

Config = TypeVar("Config")


def parse(kind: type[Config], words: list[str], command: str, examples: str, default: Config | None = None) -> Config:
    import tyro

    description = f"{inspect.cleandoc(kind.__doc__ or '')}\n\nexamples:\n{examples}"
    from torchcaps._core.errors import InputError

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(terminal(sys.stdout)):
            parsed: Config = tyro.cli(  # type: ignore[assignment]  # a default of None means that there is none
                kind,
                args=_said_plainly(words),
                prog=f"torchcaps {command}",
                description=description,
                default=default,
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as stop:
        if not stop.code:  # help was shown
            raise
        reason = _in_our_words(_unframed(said.getvalue()))
        raise InputError(f"torchcaps {command}: {reason}. Try torchcaps {command} --help.") from None
    return parsed


def _said_plainly(words: list[str]) -> list[str]:
    """true and false for True and False, where they stand behind an option."""
    return [
        word.capitalize() if word in ("true", "false") and before.startswith("--") else word
        for before, word in zip(["", *words], words, strict=False)
    ]


# What tyro says of a value that is none of its kind, and what we say.
NOT_A_NUMBER = (
    (r"Error parsing (\S+): no type matching \{None\}\|INT could be instantiated from \['(.*)'\]", "a whole number"),
    (r"Error parsing (\S+): invalid literal for int\(\) with base 10: '(.*)'", "a whole number"),
    (r"Error parsing (\S+): no type matching \{None\}\|FLOAT could be instantiated from \['(.*)'\]", "a number"),
    (r"Error parsing (\S+): could not convert string to float: '(.*)'", "a number"),
)


def _in_our_words(reason: str) -> str:
    for pattern, expected in NOT_A_NUMBER:
        reason = re.sub(pattern, rf"\1: expected {expected}, got '\2'", reason)
    return reason


def _unframed(text: str) -> str:
    """What tyro says in a frame of many lines, as one line, without its title and details."""
    lines = [line.strip("│╰╯─ ") for line in text.splitlines() if not line.startswith("╭")]
    if len(lines) > 1 and set(lines[1]) == {"-"}:  # where the terminal knows no frames, a title with a line below
        lines = lines[2:]
    words = " ".join(line for line in lines if line.strip("-") and "--help" not in line)
    for end in (". Got errors", "Argument helptext", "For full helptext"):
        words = words.partition(end)[0]
    return words.rstrip(" .")
