"""The wall clock, which the kernel's timestamps use, and the clock that nobody can set.

Everything in Railbed is timed by CLOCK_MONOTONIC. CLOCK_REALTIME may be set at any moment, by a
daemon for its synchronization or by hand (clock_gettime(2)).
"""

import time

# Two clocks cannot be read at the same moment: the quickest of this many readings counts.
READINGS = 5
# Readings differ by less than this if nobody has set the clock between them.
SET_BY_NS = 100_000


def wall_clock_ahead_ns() -> int:
    """Return the lead of CLOCK_REALTIME, of the kernel's timestamps, over CLOCK_MONOTONIC in ns.

    An interrupted reading would be wrong by more than the microseconds that a probe within an HB
    domain takes: the probe would arrive before it was sent.
    """
    readings = []
    for _ in range(READINGS):
        before_ns, real_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        readings.append((after_ns - before_ns, real_ns - (before_ns + after_ns) // 2))
    return min(readings)[1]


class Timestamps:
    """Converts the kernel's timestamps of packets to CLOCK_MONOTONIC, even if the clock is set.

    `ahead_at_first_ns` is the lead of the wall clock at the begin.
    """

    def __init__(self) -> None:
        self._since_ns = self._begun_ns = time.monotonic_ns()
        self._ahead_ns = self._ahead_before_ns = self.ahead_at_first_ns = wall_clock_ahead_ns()

    def renew(self) -> None:
        """Compare the clocks; to be called before all waiting packets are read."""
        self._since_ns, self._begun_ns = self._begun_ns, time.monotonic_ns()
        self._ahead_before_ns, self._ahead_ns = self._ahead_ns, wall_clock_ahead_ns()

    def moment_ns(self, stamp_ns: int) -> int:
        """The moment of a timestamp, which must be later than the last `renew` but one.

        If the clock was set since then, the result is a moment within this time.
        """
        moment_ns = stamp_ns - self._ahead_ns
        if abs(self._ahead_ns - self._ahead_before_ns) < SET_BY_NS:
            return moment_ns
        is_since = self._since_ns <= moment_ns <= time.monotonic_ns()
        return moment_ns if is_since else stamp_ns - self._ahead_before_ns

    def wall_ns(self, stamp_ns: int) -> int:
        """The moment of a timestamp by the wall clock, as if nobody had set it since the begin."""
        return self.moment_ns(stamp_ns) + self.ahead_at_first_ns
