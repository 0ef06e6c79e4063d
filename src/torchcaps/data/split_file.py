"""Splits as files: a JSON file with the names of the examples of each part, one in each line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchcaps._core.files import atomic_write, lines_of, read_text
from torchcaps.data.disk_store import Names, strings
from torchcaps.data.packed import open_text


def write_names(path: Path, parts: Mapping[str, Names]) -> None:
    """Write a JSON file at path, atomically. parts: the names of the examples of each part."""
    atomic_write(path, _lines(parts))


def _lines(parts: Mapping[str, Names]) -> Iterator[str]:
    for number, (word, names) in enumerate(parts.items()):
        yield ("," if number else "{") + f"\n{json.dumps(word)}: [\n"
        yield from ((",\n" if row else "") + json.dumps(name) for row, name in enumerate(names))
        yield "\n]"
    yield "\n}\n"


def read_names(path: Path) -> dict[str, Names]:
    """Read the names of the examples of each part from the file at path. Raises ValueError for any other content."""
    with open_text(path) as file, suppress(ValueError):
        lines = lines_of(file)
        if next(lines, "").strip() == "{":
            heads = (line.strip().removesuffix(": [") for line in lines)
            return {json.loads(head): strings(str(path), _names(lines)) for head in heads if head.startswith('"')}
    parts = json.loads(read_text(path))  # in another layout
    if not isinstance(parts, dict) or not all(isinstance(names, list) for names in parts.values()):
        raise ValueError("no lists of names")
    return {word: strings(str(path), map(_name, names)) for word, names in parts.items()}


def _names(lines: Iterator[str]) -> Iterator[str]:
    """The names in the lines up to the end of a list."""
    for line in map(str.strip, lines):
        if line.startswith("]"):
            return
        if line:
            yield _name(json.loads(line.removesuffix(",")))
    raise ValueError("no end of a list")


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} among the names")
    return value


def row_finder(names: Names) -> Callable[[Names], Tensor]:
    """A function from names to their rows in `names`; unknown names are left out.

    It stores two numbers for each name, which takes less memory than a dictionary.
    """
    keys = np.fromiter(map(hash, names), np.int64, len(names))
    order = keys.argsort(kind="stable")
    keys = keys[order]

    def find(wanted: Names) -> Tensor:
        sought = np.fromiter(map(hash, wanted), np.int64, len(wanted))
        rows = order[keys.searchsorted(sought, side="right") - 1]
        there = (names[row] == name for row, name in zip(rows, wanted, strict=True))
        return torch.from_numpy(rows[np.fromiter(there, bool, len(rows))])

    return find
