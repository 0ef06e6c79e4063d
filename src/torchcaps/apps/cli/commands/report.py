"""torchcaps report: write an HTML report of a run. Heavy modules are imported inside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from torchcaps.apps.cli.parsing import parse
from torchcaps.runs.config import Folder


@dataclass(frozen=True)
class Report:
    """Write an HTML report of a run: data, training, test, examples, capsules, and how to reproduce it.

    Includes earlier results of attack, jumble and strange. The page is a single file that loads nothing from the
    network, for screens, phones and print.
    """

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run folder."""
    out: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """The file to write; default: report.html in the run folder."""
    count: int = 500
    """Number of test examples of the slower sections."""
    data_dir: Folder = None
    """Folder of data sets by name."""
    device: Annotated[str, arg(metavar="NAME")] = "auto"
    """Device: auto, cpu, cuda or mps."""


def report_command(words: list[str]) -> None:
    examples = """\
  torchcaps report runs/mine
  torchcaps report runs/mine --out mine.html --count 200"""
    options = parse(Report, words, "report", examples)
    from torchcaps._core.device import choose_device
    from torchcaps._core.errors import check_count
    from torchcaps.apps.report import write_report
    from torchcaps.runs.run import Run

    check_count("report", "count", options.count)
    device = choose_device("report", options.device)
    run = Run.open(options.run)
    target = options.out or run.path("report.html")
    path = write_report(run, target, data_dir=options.data_dir, count=options.count, device=device)
    print(f"page: {path}")
