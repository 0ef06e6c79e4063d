"""How messages name arguments: --batch-size on the command line, batch_size in Python.

Messages are written with options, which no other words look like. `input_error` spells them for the caller.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLE = "TORCHCAPS_COMMAND_LINE"  # in the environment, so that child processes inherit it
_RENAMED = {"data_dir": "folder", "torch": 'kind="torch"'}  # options with another name in Python
_COMMAND = r"\b(?:torchcaps|pip|torchrun) .*?(?:\. |$)"
_OPTION = r"(?<![\w'\"/-])--(?P<name>[a-z][a-z-]*)(?P<value> (?:[A-Z]+\b|\d+(?:\.\d+)?|/\S+|[a-z_]+=\w+))?"
_TOKENS = re.compile(f"{_COMMAND}|{_OPTION}")


@contextmanager
def on_command_line() -> Iterator[None]:
    """A context, also for child processes, in which messages name options."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


def as_called(text: str) -> str:
    """A text with arguments instead of options, unless it is for the command line; shell commands are not changed."""
    return text if _VARIABLE in os.environ else _TOKENS.sub(_as_argument, text)


def _as_argument(found: re.Match[str]) -> str:
    if found["name"] is None:  # a shell command
        return found[0]
    name, value = found["name"].replace("-", "_"), (found["value"] or "").strip()
    name = _RENAMED.get(name, name)
    if "=" in value:
        return value if name == "option" else f"{name} {value}"
    return f"{name}={value}" if value else name
