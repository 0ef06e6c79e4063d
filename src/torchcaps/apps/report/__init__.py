"""An HTML report of a run: data, training, accuracy, mistakes, and what its capsules do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from torchcaps._core import pages
from torchcaps._core.errors import input_error
from torchcaps._core.files import atomic_write
from torchcaps._core.progress import bar
from torchcaps.analysis.evaluate import evaluate
from torchcaps.apps.report import basics, inside
from torchcaps.apps.report.subject import Subject
from torchcaps.runs.parts import parts_for
from torchcaps.runs.run import Run

SECTIONS: tuple[Callable[[Subject], str], ...] = (
    basics.summary,
    basics.data_section,
    basics.training,
    basics.test,
    basics.viewpoints,
    basics.cases,
    basics.words,
    inside.reconstructions,
    inside.dimensions,
    inside.trees,
    inside.routing_health,
    *(partial(inside.question, name) for name in inside.QUESTIONS),
    basics.commands,
)


def write_report(
    run: Run, path: Path, *, data_dir: Path | None = None, count: int = 500, device: torch.device | str = "cpu"
) -> Path:
    """Write the report of a run. count: the number of examples of the slower sections."""
    model = run.load_model().to(device)
    parts = parts_for(run, None, data_dir)
    if not len(parts.test):
        raise input_error("report", "examples in the test part", "none", "Train with --test above 0.")
    subject = Subject(run, model, parts, evaluate(model, parts.test), count)
    body = "\n".join(filter(None, (section(subject) for section in bar(SECTIONS, "report", len(SECTIONS)))))
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, pages.page(f"torchcaps: {run.name}", body))
    return path
