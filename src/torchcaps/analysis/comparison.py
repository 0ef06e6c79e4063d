"""Variants of a network over the same seeds: means, standard deviations, and whether differences are significant."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """The values of the options that were varied, and the score of the run of each seed.

    parameters, seconds and memory (bytes) are means over the seeds; memory is None if it was not measured. count: the
    number of test examples.
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
    """The difference of two variants in percentage points: the mean over seeds, and its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def beyond_noise(self) -> bool:
        return self.low > 0 or self.high < 0


def paired_difference(scores: tuple[float, ...], others: tuple[float, ...], count: int = 0) -> Difference:
    """The mean of paired differences, one for each seed, with Student's 95 % interval; infinite for a single pair.

    Runs of one seed share data, order and augmentation, so their difference varies less than their scores. count: the
    number of test examples. Scores are multiples of 1 / count and can be equal by chance, so the standard deviation is
    at least one example.
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
    """The variants of some options, in the given order. measure: the name of their score."""

    names: tuple[str, ...]
    variants: tuple[Variant, ...]
    measure: str = "accuracy"

    def title(self, variant: Variant) -> str:
        return ", ".join(f"{name} {value}" for name, value in zip(self.names, variant.values, strict=True))

    def base_of(self, variant: Variant) -> Variant:
        """The reference of a variant: the first value of the first option, with all others equal."""
        first = self.variants[0].values[0]
        return next(other for other in self.variants if other.values == (first, *variant.values[1:]))

    def difference(self, variant: Variant) -> Difference | None:
        """The difference from the variant's reference; None for a reference itself."""
        base = self.base_of(variant)
        return None if base is variant else paired_difference(variant.scores, base.scores, variant.count)

    def verdict(self, variant: Variant) -> str:
        """The difference as a sentence."""
        difference = self.difference(variant)
        if difference is None:
            return ""
        words = f"{abs(difference.mean):.2f} points {'above' if difference.mean >= 0 else 'below'}"
        words += f" {self.names[0]} {self.base_of(variant).values[0]}"
        if math.isinf(difference.high):
            return f"{words}; one seed tells nothing of the noise"
        interval = f"95 % interval {difference.low:+.2f} to {difference.high:+.2f}"
        return f"{words} ({interval}): {'more than' if difference.beyond_noise else 'within'} the noise"
