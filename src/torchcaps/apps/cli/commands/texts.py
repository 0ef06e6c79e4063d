"""Shared by commands on texts: the given texts, and how they are shown. Heavy modules are imported inside."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from torchcaps._core.neutral import shown
from torchcaps.runs.config import Name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchcaps.data.rows import Row
    from torchcaps.runs.run import Run


@dataclass(frozen=True)
class TextInputs:
    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder; for texts, explain and similar need a model text, text-a or text-b."""
    inputs: Annotated[Positional[tuple[str, ...]], arg(metavar="INPUT...")]
    """Texts, files of texts (tables, or a text in each line), or - for the lines of standard input."""
    text: Name = None
    """Column of a table with texts; default: as in training."""
    encoding: Name = None
    """Encoding of text files; default: told from their bytes."""
    delimiter: Name = None
    """Character between the cells of a table; default: as in training."""
    json: bool = False
    """Print JSON instead of a table."""


def texts_of(command: str, options: TextInputs, run: Run) -> Iterator[tuple[str, Row]]:
    """The texts that were given to a command, each with all cells of its row of a table."""
    from torchcaps.analysis.predict import collect_texts
    from torchcaps.runs.rundata import columns_of

    text = options.text or run.config.text
    delimiter = run.config.delimiter if options.delimiter is None else options.delimiter
    columns = columns_of(replace(run.config, text=text, delimiter=delimiter, encoding=options.encoding))
    return collect_texts(options.inputs, columns, sys.stdin, command)


def run_on_texts(command: str, options: TextInputs) -> tuple[Run, list[str]]:
    """The run that was given to a command, which must be on texts, and the texts."""
    from torchcaps._core.errors import input_error
    from torchcaps.runs.run import Run

    run = Run.open(options.run)
    if run.metadata.kind != "texts":
        raise input_error(command, "a run on texts", f"one on {run.metadata.kind}", "Train on texts.")
    return run, [text for text, _ in texts_of(command, options, run)]


def shortened(text: str, most: int = 90) -> str:
    """A text on one line that fits a terminal."""
    words = shown(" ".join(text.split()))
    return words if len(words) <= most else f"{words[: most - 3]}..."
