"""The data that the sections of a report share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchcaps.analysis.evaluate import Evaluation
from torchcaps.data import Splits
from torchcaps.runs.run import Run


@dataclass(frozen=True)
class Subject:
    """A run with its model, its data, and its predictions for the test part.

    count: the number of test examples of the slower sections.
    """

    run: Run
    model: Any
    parts: Splits
    result: Evaluation
    count: int

    @property
    def texts(self) -> bool:
        return self.run.metadata.kind == "texts"
