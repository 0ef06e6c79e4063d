"""From words of a command line to one of the dataclasses of `config`."""

from __future__ import annotations

import contextlib
import inspect
import io
from typing import TypeVar

Config = TypeVar("Config")


def parse(kind: type[Config], words: list[str], command: str, examples: str, default: Config | None = None) -> Config:
    import tyro

    description = f"{inspect.cleandoc(kind.__doc__ or '')}\n\nexamples:\n{examples}"
    from torchcaps.errors import InputError

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parsed: Config = tyro.cli(  # type: ignore[assignment]  # a default of None means that there is none
                kind,
                args=words,
                prog=f"torchcaps {command}",
                description=description,
                default=default,
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as stop:
        if not stop.code:  # help was shown
            raise
        reason = _unframed(said.getvalue())
        raise InputError(f"torchcaps {command}: {reason}. Try torchcaps {command} --help.") from None
    return parsed


def _unframed(text: str) -> str:
    """What tyro says in a frame of many lines, as one line, without its title and details."""
    lines = (line.strip("│╰╯─ ") for line in text.splitlines() if not line.startswith("╭"))
    words = " ".join(line for line in lines if line and "--help" not in line)
    for end in (". Got errors", "Argument helptext", "For full helptext"):
        words = words.partition(end)[0]
    return words.rstrip(" .")
