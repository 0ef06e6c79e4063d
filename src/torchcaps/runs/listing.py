"""Tables of models, routings, data sets and runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torchcaps._core.errors import InputError, check_choice
from torchcaps.data import DATASETS
from torchcaps.models import MODELS
from torchcaps.routing import ROUTINGS
from torchcaps.runs.run import Run
from torchcaps.runs.runfolders import find_runs


def rows_of(what: str, folder: Path = Path("runs")) -> list[list[str]]:
    """The rows of a table of models, routings, data sets or runs."""
    check_choice("list", "what", what, ["models", "routings", "datasets", "runs"])
    if what == "runs":
        return runs_table(folder)
    known: dict[str, Mapping[str, object]] = {"models": MODELS, "routings": ROUTINGS, "datasets": DATASETS}
    return [[name, _first_line(thing)] for name, thing in known[what].items()]


def _first_line(thing: object) -> str:
    return ((thing.__doc__ or "").strip().splitlines() or [""])[0]


def runs_table(folder: Path) -> list[list[str]]:
    """A heading, and a row for each run under folder."""
    table: list[list[str]] = [["run", "data", "model", "routing", "epochs", "highest validation"]]
    for path in find_runs(folder):
        try:
            run = Run.open(path)
        except InputError as error:
            table.append([str(path), f"broken: {error}", "", "", "", ""])
            continue
        done, best = _progress(run)
        config = run.config
        routing = config.routing or "-"
        table.append([str(path), config.data, run.model_name, routing, f"{done}/{config.epochs}", best])
    return table if len(table) > 1 else [[f"no runs under {folder}"]]


def _progress(run: Run) -> tuple[int, str]:
    """The number of finished epochs, and the highest validation accuracy."""
    if not run.metrics.exists():
        return 0, "-"
    try:
        rows = run.rows()
    except InputError:
        return 0, "?"
    seen = [float(row["validation_accuracy"]) for row in rows if row["validation_accuracy"] != "nan"]
    return len(rows), f"{max(seen):.2%}" if seen else "-"
