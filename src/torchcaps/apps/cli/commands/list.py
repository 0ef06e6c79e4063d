"""torchcaps list: models, routings, data sets or runs. Heavy modules are imported inside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from torchcaps._core.neutral import shown
from torchcaps.apps.cli.parsing import parse


@dataclass(frozen=True)
class List:
    """List models, routings, datasets or runs."""

    what: Annotated[Positional[Literal["models", "routings", "datasets", "runs"]], arg(metavar="WHAT")]
    """models, routings, datasets or runs."""
    folder: Path = Path("runs")
    """Folder of the runs."""


def list_command(words: list[str]) -> None:
    options = parse(List, words, "list", "  torchcaps list datasets\n  torchcaps list runs")
    from torchcaps.runs.listing import rows_of

    rows = [[shown(cell) for cell in row] for row in rows_of(options.what, options.folder)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
