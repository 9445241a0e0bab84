"""CPU samples of the machine and the switches' daemon, in windows of a tenth of a second.

A `Reading` holds running totals, as the kernel counts them; a `Window` is the difference of two.
"""

from collections.abc import Iterable
from dataclasses import dataclass

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
    (Documentation/accounting/psi.rst), `None` where the kernel does not count it. `switch` is the
    main thread of the switches' daemon.
    """

    ns: int
    cores: int
    idle_s: float
    steal_s: float
    stalled_s: float | None
    switch: ThreadTime


@dataclass(frozen=True)
class Window:
    """The difference of two readings, as shares of the time between them.

    `idle` and `steal` are shares of all cores. `switch_busy` and `switch_delay` are those of the
    switches' daemon: running, and runnable but waiting for a core. `switch_behind_s` is the mean
    time for which it had work pending without a break, about the window's length if it never slept;
    `beside_switch` is the number of cores that all other processes kept busy. `stalled` is the
    share in which some process waited for a core.
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
    """Return the difference of two readings."""
    length_s = (after.ns - before.ns) / NS_PER_S
    capacity_s = length_s * after.cores
    busy_s = (after.switch.busy_ns - before.switch.busy_ns) / NS_PER_S
    delay_s = (after.switch.delay_ns - before.switch.delay_ns) / NS_PER_S
    known = before.stalled_s is not None and after.stalled_s is not None
    stalled_s = (after.stalled_s or 0.0) - (before.stalled_s or 0.0)
    unused_s = after.idle_s - before.idle_s + after.steal_s - before.steal_s
    beside_s = capacity_s - unused_s - busy_s
    return Window(
        begin_ns=before.ns,
        end_ns=after.ns,
        idle=_share(after.idle_s - before.idle_s, capacity_s),
        steal=_share(after.steal_s - before.steal_s, capacity_s),
        switch_busy=_share(busy_s, length_s),
        switch_delay=_share(delay_s, length_s),
        stalled=_share(stalled_s, length_s) if known else None,
        beside_switch=max(0.0, beside_s / length_s),
        switch_behind_s=(busy_s + delay_s) / max(1, after.switch.rests - before.switch.rests),
    )


def _share(part: float, whole: float) -> float:
    """Limit a share to 0..1: the kernel counts some times in ticks, so a share may exceed 1."""
    return min(1.0, max(0.0, part / whole))


def number_at(window: Window, spans: Iterable[tuple[int, int, int]]) -> int | None:
    """Return the number of the first of several spans that a window touches; `None` between them.

    A span is its number, its begin and its end.
    """
    return next((number for number, *span in spans if within([window], *span)), None)


def within(windows: Iterable[Window], begin_ns: int, end_ns: int) -> tuple[Window, ...]:
    """Return the windows within a span; if it is too short for any, those that overlap it."""
    touching = [w for w in windows if w.begin_ns < end_ns and w.end_ns > begin_ns]
    inside = [w for w in touching if w.begin_ns >= begin_ns and w.end_ns <= end_ns]
    return tuple(inside or touching)
