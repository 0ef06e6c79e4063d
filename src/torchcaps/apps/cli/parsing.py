"""Parsing of command lines into dataclasses of options."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import sys
from dataclasses import fields
from typing import TypeVar

from torchcaps._core.neutral import terminal
from torchcaps.runs.config import TrainConfig

Config = TypeVar("Config")


def parse(kind: type[Config], words: list[str], command: str, examples: str, default: Config | None = None) -> Config:
    import tyro

    description = f"{inspect.cleandoc(kind.__doc__ or '')}\n\nexamples:\n{examples}"
    from torchcaps._core.errors import InputError

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(terminal(sys.stdout)):
            parsed: Config = tyro.cli(  # type: ignore[assignment]  # None means no default
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
    """Accept true and false as values of options, beside True and False."""
    return [
        word.capitalize() if word in ("true", "false") and before.startswith("--") else word
        for before, word in zip(["", *words], words, strict=False)
    ]


# Messages of tyro on invalid values, and the words for them here.
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
    """The error message in tyro's frame as one line, without its title and details."""
    lines = [line.strip("│╰╯─ ") for line in text.splitlines() if not line.startswith("╭")]
    if len(lines) > 1 and set(lines[1]) == {"-"}:  # on terminals without frames, the title is underlined
        lines = lines[2:]
    words = " ".join(line for line in lines if line.strip("-") and "--help" not in line)
    for end in (". Got errors", "Argument helptext", "For full helptext"):
        words = words.partition(end)[0]
    return words.rstrip(" .")


def as_config(options: TrainConfig) -> TrainConfig:
    """The options of training among those of a command that has more."""
    return TrainConfig(**{field.name: getattr(options, field.name) for field in fields(TrainConfig)})
