"""What a campaign found, as a row of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Result:
    """cases: how many were tried. outcomes: how they ended. faults: what must not happen, a sentence each."""

    campaign: str
    what: str
    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def ended(self, outcome: str) -> None:
        self.cases += 1
        self.outcomes[outcome] += 1

    def fault(self, sentence: str) -> None:
        self.cases += 1
        self.faults.append(sentence)


def table(results: Sequence[Result]) -> str:
    """The results as a Markdown table, and the first faults of each below it."""
    rows = [("campaign", "what", "cases", "outcomes", "faults", "seconds"), ("--", "--", "--:", "--", "--:", "--:")]
    for each in results:
        outcomes = ", ".join(f"{name} {count:,}" for name, count in sorted(each.outcomes.items()))
        faults = f"{len(each.faults):,}"
        rows.append((each.campaign, each.what, f"{each.cases:,}", outcomes, faults, f"{each.seconds:.0f}"))
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines += [f"{each.campaign}, {each.what}: {fault}" for each in results for fault in each.faults[:5]]
    return "\n".join(lines)


def resident() -> int:
    """The bytes of memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
