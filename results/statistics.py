"""Statistics of repeats."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Summary:
    """Seconds of several executions; percentiles by the nearest rank."""

    median: float
    p50: float
    p95: float
    p99: float
    min: float
    max: float
    values: tuple[float, ...]


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
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]
