"""What commands on texts share: which texts a user gave, and how they are shown. Heavy modules are imported inside."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from torchcaps._core.neutral import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchcaps.apps.cli.options import TextInputs
    from torchcaps.runs.run import Run


def texts_of(command: str, options: TextInputs, run: Run) -> Iterator[str]:
    """The texts that a command was given."""
    from torchcaps.analysis.predict import collect_texts
    from torchcaps.runs.rundata import columns_of

    columns = columns_of(replace(run.config, text=options.text or run.config.text, encoding=options.encoding))
    return collect_texts(options.inputs, columns, sys.stdin, command)


def run_on_texts(command: str, options: TextInputs) -> tuple[Run, list[str]]:
    """The run that a command was given, which must be on texts, and the texts."""
    from torchcaps._core.errors import input_error
    from torchcaps.runs.run import Run

    run = Run.open(options.run)
    if run.metadata.kind != "texts":
        raise input_error(command, "a run on texts", f"one on {run.metadata.kind}", "Train on texts.")
    return run, list(texts_of(command, options, run))


def shortened(text: str, most: int = 90) -> str:
    """A text on one line that fits a terminal."""
    words = shown(" ".join(text.split()))
    return words if len(words) <= most else f"{words[: most - 3]}..."
