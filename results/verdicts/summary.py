"""Statistics of repeats."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Interval:
    """Where the true median lies, with a confidence, however values are distributed."""

    low: float
    high: float
    confidence: float

    @property
    def half_width(self) -> float:
        """Half of its width, as a part of its middle."""
        return (self.high - self.low) / (self.high + self.low)


@dataclass(frozen=True)
class Summary:
    """Seconds of several executions; percentiles by the nearest rank.

    `interval` holds the median with 95 % confidence; `None` of fewer than six values.
    """

    median: float
    p50: float
    p95: float
    p99: float
    min: float
    max: float
    values: tuple[float, ...]
    interval: Interval | None = None


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """The narrowest pair of order statistics that holds the median with this confidence.

    The number of values below the median is binomial with one half (Conover, Practical
    Nonparametric Statistics, section 3.2). `None` if there are too few values to tell.
    """
    ordered, count = sorted(values), len(values)
    found = None
    for rank in range(count // 2):
        outside = sum(math.comb(count, below) for below in range(rank + 1)) / 2**count
        if 1 - 2 * outside < confidence:
            break
        found = Interval(ordered[rank], ordered[-1 - rank], 1 - 2 * outside)
    return found


def summarize(values: Sequence[float]) -> Summary:
    """The summary of at least one value, which keep their order."""
    return Summary(
        median=median(values),
        p50=percentile(values, 50),
        p95=percentile(values, 95),
        p99=percentile(values, 99),
        min=min(values),
        max=max(values),
        values=tuple(values),
        interval=median_interval(values),
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]
