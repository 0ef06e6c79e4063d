"""The command that lists what there is. Heavy modules are imported inside."""

from __future__ import annotations

from torchcaps._core.neutral import shown
from torchcaps.apps.cli.parsing import parse


def list_command(words: list[str]) -> None:
    from torchcaps.apps.cli.options import List

    options = parse(List, words, "list", "  torchcaps list datasets\n  torchcaps list runs")
    from torchcaps.runs.listing import rows_of

    rows = [[shown(cell) for cell in row] for row in rows_of(options.what, options.folder)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
