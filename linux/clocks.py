"""The wall clock, of which the kernel's timestamps are, and the clock that nobody can set.

Everything in Railbed is timed by CLOCK_MONOTONIC. CLOCK_REALTIME may be set at any moment, by a
daemon for its synchronization or by hand (clock_gettime(2)).
"""

import time

# Two clocks cannot be read at once: of this many readings, the quickest one is used.
READINGS = 5
# Readings differ by less, if nobody has set the clock between them.
SET_BY_NS = 100_000


def wall_clock_ahead_ns() -> int:
    """Return by how many ns CLOCK_REALTIME, of the kernel's timestamps, leads CLOCK_MONOTONIC.

    A probe within an HB domain arrives microseconds after it was sent: by an interrupted reading,
    it would arrive before.
    """
    readings = (_read_both() for _ in range(READINGS))
    return min(readings)[1]


def _read_both() -> tuple[int, int]:
    """Return how long a reading took, and by how much the clocks differ, in nanoseconds."""
    before_ns, real_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    return after_ns - before_ns, real_ns - (before_ns + after_ns) // 2


class Timestamps:
    """Moments of CLOCK_MONOTONIC of packets that the kernel timestamps, though the clock is set.

    `ahead_at_first_ns` is by how much the wall clock led at the beginning.
    """

    def __init__(self) -> None:
        self._since_ns = self._begun_ns = time.monotonic_ns()
        self._ahead_ns = self._ahead_before_ns = self.ahead_at_first_ns = wall_clock_ahead_ns()

    def renew(self) -> None:
        """Compare the clocks; call this before all packets that wait are read."""
        self._since_ns, self._begun_ns = self._begun_ns, time.monotonic_ns()
        self._ahead_before_ns, self._ahead_ns = self._ahead_ns, wall_clock_ahead_ns()

    def moment_ns(self, stamp_ns: int) -> int:
        """The moment of a timestamp, which is not older than the last `renew` but one.

        If the clock was set since then, it is the moment that lies in this time.
        """
        moment_ns = stamp_ns - self._ahead_ns
        if abs(self._ahead_ns - self._ahead_before_ns) < SET_BY_NS:
            return moment_ns
        is_since = self._since_ns <= moment_ns <= time.monotonic_ns()
        return moment_ns if is_since else stamp_ns - self._ahead_before_ns

    def wall_ns(self, stamp_ns: int) -> int:
        """The moment of a timestamp by the wall clock, had nobody set it since the beginning."""
        return self.moment_ns(stamp_ns) + self.ahead_at_first_ns
