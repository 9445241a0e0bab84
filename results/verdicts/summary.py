"""Statistics of repeats."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Interval:
    """A confidence interval of the true median, for values of any distribution."""

    low: float
    high: float
    confidence: float

    def away(self, middle: float) -> float:
        """The distance of the farther end from the median of the values, relative to it."""
        return max(self.high - middle, middle - self.low) / middle


@dataclass(frozen=True)
class MeasuredModeled:
    """A value, measured and modeled."""

    measured: float
    modeled: float


@dataclass(frozen=True)
class Summary:
    """Seconds of several executions; percentiles by the nearest rank.

    `interval` contains the median with 95 % confidence; `None` for fewer than six values.
    """

    median: float
    p50: float
    p95: float
    p99: float
    min: float
    max: float
    values: tuple[float, ...]
    interval: Interval | None = None


CONFIDENCE = 0.95


def median_interval(values: Sequence[float]) -> Interval | None:
    """Return the narrowest pair of order statistics that encloses the median with 95 % confidence.

    The number of values below the median is binomial with one half (Conover, Practical
    Nonparametric Statistics, section 3.2). `None` if there are too few values to tell.
    """
    ordered, count = sorted(values), len(values)
    interval = None
    for rank in range(count // 2):
        outside = sum(math.comb(count, below) for below in range(rank + 1)) / 2**count
        if 1 - 2 * outside < CONFIDENCE:
            break
        interval = Interval(ordered[rank], ordered[-1 - rank], 1 - 2 * outside)
    return interval


def summarize(values: Sequence[float]) -> Summary:
    """Summarize at least one value; `values` keeps their order."""
    p50, p95, p99 = (percentile(values, percent) for percent in (50, 95, 99))
    ends, interval = (min(values), max(values)), median_interval(values)
    return Summary(median(values), p50, p95, p99, *ends, tuple(values), interval)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that at least `percent` % of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]
