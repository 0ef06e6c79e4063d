"""A bar on the terminal for work that takes longer than a moment."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from torchcaps._core.neutral import terminal

Item = TypeVar("Item")


def bar(items: Iterable[Item], title: str, total: int | None = None) -> Iterator[Item]:
    """The items, with a bar on standard error that says how far they are; none where nobody looks."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return iter(items)
    hidden, file = not sys.stderr.isatty(), terminal(sys.stderr)
    return iter(tqdm(items, desc=title, total=total, leave=False, disable=hidden, file=file))
