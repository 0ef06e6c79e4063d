"""How fast torchcaps is, against the textbook version of the same mathematics, in one run: `torchcaps bench`."""

from __future__ import annotations

from torchcaps.apps.bench.cases import CASES
from torchcaps.apps.bench.run import EXPORT, STEP, bench, growth

__all__ = ["CASES", "EXPORT", "STEP", "bench", "growth"]
