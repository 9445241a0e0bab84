"""CPU samples of the machine and the switches, in windows of a tenth of a second.

A `Reading` holds running totals, as the kernel counts them; a `Window` is the difference of two.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

NS_PER_S = 1e9


@dataclass(frozen=True)
class ThreadTime:
    """CPU time of a thread, and the time for which it was runnable but waited for a core.

    `rests` counts how often it had nothing to do and slept (voluntary context switches).
    """

    busy_ns: int
    delay_ns: int
    rests: int = 0


@dataclass(frozen=True)
class Reading:
    """Running totals at a moment of CLOCK_MONOTONIC.

    `idle_s` and `steal_s` are sums over all cores. `stalled_s` is pressure-stall's "some"
    (Documentation/accounting/psi.rst), `None` where the kernel does not count it. `switches` are
    the main threads of the switch daemons, by process id.
    """

    ns: int
    cores: int
    idle_s: float
    steal_s: float
    stalled_s: float | None
    switches: Mapping[int, ThreadTime]


@dataclass(frozen=True)
class Window:
    """The difference of two readings, as shares of the time between them.

    `idle` and `steal` are shares of all cores. `switch_busy` and `switch_delay` are those of the
    switch daemon with the least spare time: running, and runnable but waiting for a core.
    `switch_behind_s` is the mean time for which this daemon had work pending without a break,
    about the window's length if it never slept; `beside_switch` is the number of cores that all
    other processes kept busy. `stalled` is the share in which some process waited for a core.
    """

    begin_ns: int
    end_ns: int
    idle: float
    steal: float
    switch_busy: float
    switch_delay: float
    stalled: float | None
    beside_switch: float = 0.0
    switch_behind_s: float = 0.0


def window(before: Reading, after: Reading) -> Window:
    """Return the difference of two readings, ignoring daemons that are not in both."""
    length_s = (after.ns - before.ns) / NS_PER_S
    capacity_s = length_s * after.cores
    busiest = _busiest(before.switches, after.switches)
    known = before.stalled_s is not None and after.stalled_s is not None
    stalled_s = (after.stalled_s or 0.0) - (before.stalled_s or 0.0)
    unused_s = after.idle_s - before.idle_s + after.steal_s - before.steal_s
    beside_s = capacity_s - unused_s - busiest.busy_ns / NS_PER_S
    return Window(
        begin_ns=before.ns,
        end_ns=after.ns,
        idle=_share(after.idle_s - before.idle_s, capacity_s),
        steal=_share(after.steal_s - before.steal_s, capacity_s),
        switch_busy=_share(busiest.busy_ns / NS_PER_S, length_s),
        switch_delay=_share(busiest.delay_ns / NS_PER_S, length_s),
        stalled=_share(stalled_s, length_s) if known else None,
        beside_switch=max(0.0, beside_s / length_s),
        switch_behind_s=(busiest.busy_ns + busiest.delay_ns) / NS_PER_S / max(1, busiest.rests),
    )


def _busiest(before: Mapping[int, ThreadTime], after: Mapping[int, ThreadTime]) -> ThreadTime:
    """CPU time, between two readings, of the daemon with the least spare time."""
    had = [
        ThreadTime(
            busy_ns=after[pid].busy_ns - before[pid].busy_ns,
            delay_ns=after[pid].delay_ns - before[pid].delay_ns,
            rests=after[pid].rests - before[pid].rests,
        )
        for pid in before.keys() & after.keys()
    ]
    return max(had, key=lambda one: one.busy_ns + one.delay_ns, default=ThreadTime(0, 0))


def _share(part: float, whole: float) -> float:
    """Limit a share to 0..1: the kernel counts some times in ticks, so a share may exceed 1."""
    return min(1.0, max(0.0, part / whole))


def windows_of(readings: Sequence[Reading]) -> tuple[Window, ...]:
    """Return the windows between successive readings, without those in which no switch was read."""
    pairs = pairwise(readings)
    return tuple(window(*pair) for pair in pairs if pair[0].switches.keys() & pair[1].switches)


def within(windows: Iterable[Window], begin_ns: int, end_ns: int) -> tuple[Window, ...]:
    """Return the windows within a span; if it is too short for any, those that overlap it."""
    touching = [w for w in windows if w.begin_ns < end_ns and w.end_ns > begin_ns]
    inside = [w for w in touching if w.begin_ns >= begin_ns and w.end_ns <= end_ns]
    return tuple(inside or touching)
