"""External routings, models and data sets, loaded from entry points or from files given with --import.

A `Registry` is a dictionary by name. It loads the entry points of its group (`torchcaps.routings`, `torchcaps.models`,
`torchcaps.datasets`) when an unknown name is looked up for the first time, or all names are listed. A Python file is
imported by `--import` and registers its own parts: `torchcaps.ROUTINGS["mine"] = Mine`.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import warnings
from collections import UserDict
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeVar

from torchcaps._core.errors import input_error

Part = TypeVar("Part")
VARIABLE = "TORCHCAPS_IMPORTED"  # files imported and encoders trusted by this process, a line each, for child processes


class Registry(UserDict[str, Part]):
    """A registry by name: built-in parts, entry points of installed packages, and entries added at run time."""

    def __init__(self, group: str, own: dict[str, Part]) -> None:
        self.group = group
        self.asked = False
        super().__init__(own)

    def __contains__(self, name: object) -> bool:
        return name in self.data or name in self._all()

    def __getitem__(self, name: str) -> Part:
        return self.data[name] if name in self.data else self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, Part]:
        if not self.asked:
            self.asked = True
            for entry in entry_points(group=self.group):
                if entry.name in self.data:
                    _warn(self.group, entry.name, "there is one of that name already")
                    continue
                try:
                    self.data[entry.name] = entry.load()
                except Exception as error:  # an error of one package must not affect others
                    _warn(self.group, entry.name, f"{type(error).__name__}: {error}")
        return self.data


def _warn(group: str, name: str, reason: str) -> None:
    warnings.warn(f"the entry point {name} of {group} was left out: {reason}", stacklevel=5)


def import_file(file: str) -> Path:
    """Execute a Python file that registers its parts. Returns its absolute path."""
    path = Path(file).expanduser().resolve()
    if path.suffix != ".py" or not path.is_file():
        expected = "a file of Python (.py), a .pt2 file, or MODULE:FUNCTION"
        raise input_error("--import", expected, file, "Check the path.")
    if str(path) in imported():
        return path
    spec = importlib.util.spec_from_file_location(f"torchcaps_import_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        got = f"{type(error).__name__}: {error}"
        raise input_error(f"--import {file}", "a file that can be imported", got, "Mend it.") from error
    trust(str(path))
    return path


_done: set[str] = set()  # by this process


def trust(name: str) -> None:
    """Allow an encoder by name, whose code may run when a network needs it."""
    if name not in imported():
        os.environ[VARIABLE] = "\n".join([*imported(), name])
        _done.add(name)


def import_named(name: str) -> None:
    """Import a Python file, or allow an encoder: a file of torch.export (.pt2) or MODULE:FUNCTION."""
    path = Path(name).expanduser()
    if path.suffix == ".pt2" and path.is_file():
        trust(str(path.resolve()))
    elif ":" in name and not path.exists():
        trust(name)
    else:
        import_file(name)


def imported() -> list[str]:
    """The files that this process has imported, and the encoders that it trusts, in order."""
    return [name for name in os.environ.get(VARIABLE, "").splitlines() if name in _done]


def import_again() -> None:
    """In a child process, import the files that the parent process imported, and trust the encoders that it did."""
    for name in os.environ.get(VARIABLE, "").splitlines():
        if name and name not in _done:
            import_named(name)


def names_of(module: str, table: str) -> list[str]:
    """The names of a registry, for help texts: from the module if it is loaded, otherwise parsed from its source.

    Importing the module would import torch, which takes a second. In the source, a registry is the dictionary `_OWN`.
    """
    loaded = sys.modules.get(f"torchcaps.{module}")
    if loaded is not None:
        return list(getattr(loaded, table))
    spec = importlib.util.find_spec("torchcaps")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    path = Path(spec.submodule_search_locations[0], *module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tables = {
        target.id: node.value
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(node, ast.AnnAssign)
        for target in [node.target]
        if isinstance(target, ast.Name) and isinstance(node.value, ast.Dict)
    }
    found = tables.get(table) or tables["_OWN"]
    assert isinstance(found, ast.Dict)
    return [key.value for key in found.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
