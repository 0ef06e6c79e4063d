"""Progress bars, on the terminal or in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TextIO, TypeVar

from torchcaps._core.neutral import terminal

Item = TypeVar("Item")


def bar(items: Iterable[Item], title: str, total: int | None = None) -> Iterator[Item]:
    """Iterate with a progress bar on stderr. Disabled when stderr is neither a terminal nor in a notebook."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return iter(items)
    hidden, file = not is_watched(sys.stderr), terminal(sys.stderr)
    return iter(tqdm(items, desc=title, total=total, leave=False, disable=hidden, file=file))


def is_watched(stream: TextIO | None) -> bool:
    """Whether the stream is a terminal, or this is a notebook."""
    return stream is not None and (stream.isatty() or in_notebook())


def in_notebook() -> bool:
    """Whether this runs in a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")
