"""The command that writes a page on a run. Heavy modules are imported inside."""

from __future__ import annotations

from torchcaps.apps.cli.parsing import parse


def report_command(words: list[str]) -> None:
    from torchcaps.apps.cli.options import Report

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
