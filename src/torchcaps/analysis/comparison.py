"""Variants of a network over the same seeds: means, spreads, and whether they differ by more than chance."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """One value for each option that was varied, and for each seed the score of its run.

    parameters, seconds and memory (in bytes) are means over the seeds; memory is None where it was not seen. count: of
    test examples.
    """

    values: tuple[str, ...]
    scores: tuple[float, ...]
    parameters: float
    seconds: float
    memory: float | None = None
    count: int = 0
    novel: tuple[float, ...] = ()

    @property
    def mean(self) -> float:
        return statistics.mean(self.scores)

    @property
    def deviation(self) -> float | None:
        """The standard deviation over seeds; None for a single one."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None


@dataclass(frozen=True)
class Difference:
    """How far a variant is above another in points of a hundred: the mean over seeds, and its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def beyond_noise(self) -> bool:
        return self.low > 0 or self.high < 0


def paired_difference(scores: tuple[float, ...], others: tuple[float, ...], count: int = 0) -> Difference:
    """The mean difference of pairs, seed by seed, with Student's 95 % interval; boundless for a single pair.

    Runs of one seed share data, order and augmentation, so their difference varies less than they do. count: of test
    examples; scores that differ by whole examples may tie by luck, so the spread is taken for at least one of them.
    """
    pairs = [100 * (one - other) for one, other in zip(scores, others, strict=True)]
    mean = statistics.mean(pairs)
    if len(pairs) < 2:
        return Difference(mean, -math.inf, math.inf)
    from scipy.stats import t

    spread = max(statistics.stdev(pairs), 100 / count if count else 0.0)
    half = float(t.ppf(0.975, len(pairs) - 1)) * spread / math.sqrt(len(pairs))
    return Difference(mean, mean - half, mean + half)


@dataclass(frozen=True)
class Comparison:
    """The variants of some options, in the order in which they were given. measure: what their scores are."""

    names: tuple[str, ...]
    variants: tuple[Variant, ...]
    measure: str = "accuracy"

    def title(self, variant: Variant) -> str:
        return ", ".join(f"{name} {value}" for name, value in zip(self.names, variant.values, strict=True))

    def base_of(self, variant: Variant) -> Variant:
        """What a variant is compared with: the first value of the first option, all others being equal."""
        first = self.variants[0].values[0]
        return next(other for other in self.variants if other.values == (first, *variant.values[1:]))

    def difference(self, variant: Variant) -> Difference | None:
        """From the variant's base; None for a base itself."""
        base = self.base_of(variant)
        return None if base is variant else paired_difference(variant.scores, base.scores, variant.count)

    def verdict(self, variant: Variant) -> str:
        """The difference in words."""
        difference = self.difference(variant)
        if difference is None:
            return ""
        words = f"{abs(difference.mean):.2f} points {'above' if difference.mean >= 0 else 'below'}"
        words += f" {self.names[0]} {self.base_of(variant).values[0]}"
        if math.isinf(difference.high):
            return f"{words}; one seed tells nothing of the noise"
        interval = f"95 % interval {difference.low:+.2f} to {difference.high:+.2f}"
        return f"{words} ({interval}): {'more than' if difference.beyond_noise else 'within'} the noise"
