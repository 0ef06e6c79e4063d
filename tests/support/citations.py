"""What docs/papers.md cites: equations, the code that implements them, and the tests that check that code."""

import ast
import functools
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torchcaps

ROOT = Path(__file__).parents[2]
SOURCE = Path(torchcaps.__file__).parent  # in src, or where it is installed


class Citation(NamedTuple):
    """An entry of docs/papers.md. code: (file, name) of each function or class."""

    entry: str
    code: tuple[tuple[str, str], ...]
    tests: tuple[str, ...]


@functools.cache
def citations() -> tuple[Citation, ...]:
    """The entries of docs/papers.md that name code."""
    paragraphs = re.split(r"\n(?=- )|\n\n", (ROOT / "docs" / "papers.md").read_text(encoding="utf-8"))
    found = []
    for text in (" ".join(paragraph.split()) for paragraph in paragraphs):
        if "Code: `" not in text:
            continue
        entry, rest = text.split("Code: ", 1)
        code, _, tests = re.split(r"(Tests?:)", rest, maxsplit=1)
        cited = re.findall(r"`([\w/]+\.py):(\w+)`", code)
        found.append(Citation(entry, tuple(cited), tuple(re.findall(r"`(test_\w+)`", tests))))
    return tuple(found)


@functools.cache
def lines_of(file: str, name: str) -> tuple[range, ...]:
    """The lines of functions, methods and classes of this name; of a class also those of its bases in the file."""
    tree = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
    kinds = ast.FunctionDef, ast.ClassDef
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds) and node.name == name]
    bases = [
        base.id for node in nodes if isinstance(node, ast.ClassDef) for base in node.bases if isinstance(base, ast.Name)
    ]
    mine = {node.name for node in tree.body if isinstance(node, ast.ClassDef)} & set(bases)
    spans = [
        range(min([n.lineno, *(d.lineno for d in n.decorator_list)]), (n.end_lineno or n.lineno) + 1) for n in nodes
    ]
    return (*spans, *(span for base in sorted(mine) for span in lines_of(file, base)))


@contextmanager
def calls() -> Iterator[set[tuple[str, int]]]:
    """The functions of torchcaps that are called meanwhile, as file and first line."""
    seen: set[tuple[str, int]] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            seen.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    sys.setprofile(note)
    threading.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def called(citation: Citation, seen: set[tuple[str, int]]) -> bool:
    """Whether any of the cited code was called."""
    return any(
        file == str(SOURCE / where) and any(line in span for span in lines_of(where, name))
        for where, name in citation.code
        for file, line in seen
    )
