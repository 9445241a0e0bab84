"""Number of counted executions of a case: fixed, or until its median is precise enough."""

from collections.abc import Sequence
from dataclasses import dataclass

from results.verdicts.summary import median_interval


@dataclass(frozen=True)
class Repeats:
    """Counted executions of a case: at least `least`, at most `most`.

    In between, they end when the median's 95 % confidence interval is at most `precision` wide to
    either side, as a fraction of its middle. Up to `most` disturbed executions are replaced.
    """

    least: int
    most: int
    precision: float = 0.0

    @classmethod
    def exactly(cls, count: int) -> "Repeats":
        """Return the setting for exactly `count` executions."""
        return cls(count, count)

    @property
    def executions(self) -> int:
        """Largest number of executions, disturbed ones included."""
        return 2 * self.most

    def are_enough(self, counted_s: Sequence[float]) -> bool:
        """Whether these counted completion times in seconds are enough."""
        if len(counted_s) < self.least:
            return False
        if len(counted_s) >= self.most:
            return True
        interval = median_interval(counted_s)
        return interval is not None and interval.half_width <= self.precision


# Six values are the fewest that give an interval with 95 % confidence.
AUTO = Repeats(least=6, most=30, precision=0.005)
