"""Benchmarks of torchcaps against textbook implementations of the same mathematics: `torchcaps bench`."""

from __future__ import annotations

from torchcaps.apps.bench.cases import CASES
from torchcaps.apps.bench.run import EXPORT, STEP, bench, growth

__all__ = ["CASES", "EXPORT", "STEP", "bench", "growth"]
