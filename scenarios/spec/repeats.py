"""How many executions of a case count: a number, or until its median is known well enough."""

from collections.abc import Sequence
from dataclasses import dataclass

from results.verdicts.summary import median_interval


@dataclass(frozen=True)
class Repeats:
    """Counted executions of a case: at least and at most so many.

    Between them it goes on until the median is known to `precision`, a part of it either way, with
    95 % confidence. As many as `most` may be disturbed and replaced.
    """

    least: int
    most: int
    precision: float = 0.0

    @classmethod
    def exactly(cls, count: int) -> "Repeats":
        """So many."""
        return cls(count, count)

    @property
    def executions(self) -> int:
        """All that there may be, disturbed ones among them."""
        return 2 * self.most

    def are_enough(self, counted_s: Sequence[float]) -> bool:
        """Whether these counted completion times in seconds are enough."""
        if len(counted_s) < self.least:
            return False
        return len(counted_s) >= self.most or self._is_precise(counted_s)

    def _is_precise(self, counted_s: Sequence[float]) -> bool:
        interval = median_interval(counted_s)
        return interval is not None and interval.half_width <= self.precision


# Six is the fewest of which an interval with 95 % confidence can be told.
AUTO = Repeats(least=6, most=30, precision=0.005)
