"""A bar on the terminal, or in a notebook, for work that takes longer than a moment."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TextIO, TypeVar

from torchcaps._core.neutral import terminal

Item = TypeVar("Item")


def bar(items: Iterable[Item], title: str, total: int | None = None) -> Iterator[Item]:
    """The items, with a bar on standard error; disabled when that is neither a terminal nor a notebook."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return iter(items)
    hidden, file = not is_watched(sys.stderr), terminal(sys.stderr)
    return iter(tqdm(items, desc=title, total=total, leave=False, disable=hidden, file=file))


def is_watched(stream: TextIO | None) -> bool:
    """Is the stream a terminal, or are we in a notebook?"""
    return stream is not None and (stream.isatty() or in_notebook())


def in_notebook() -> bool:
    """Does a Jupyter kernel run this?"""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")
