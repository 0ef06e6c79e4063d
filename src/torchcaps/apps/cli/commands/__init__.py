"""The commands by name. Each is a file with its options and its function, imported when it is called."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from torchcaps._core.extensions import Registry

Command = Callable[[list[str]], None]


def _command(name: str) -> Command:
    """The function NAME_command of the file NAME.py."""

    def call(words: list[str]) -> None:
        getattr(import_module(f"torchcaps.apps.cli.commands.{name}"), f"{name}_command")(words)

    return call


NAMES = (
    "train",
    "evaluate",
    "predict",
    "report",
    "export",
    "explain",
    "health",
    "attack",
    "jumble",
    "strange",
    "similar",
    "compare",
    "viewpoint",
    "draw",
    "studio",
    "list",
    "bench",
    "doctor",
)
# A command is a function of the words after its name; the first line of its docstring is shown by --help.
COMMANDS: Registry[Command] = Registry("torchcaps.commands", {name: _command(name) for name in NAMES})
