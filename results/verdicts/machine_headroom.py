"""Machine headroom: spare capacity of the machine during executions, and where bytes waited."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import median

from model.measurement.cpu_windows import NS_PER_S, Window
from model.measurement.pauses import PauseLog
from results.verdicts.record import FLAT

# In a window (CPU sample), processors or the switch are saturated with less than this share left.
SATURATED_SHARE = 0.05
# Seconds from one idle moment of the switch to the next, on average in a window. Above the first
# value, it was never idle in that window; above the second, it was backlogged.
NEVER_DONE_S, BEHIND_S = 0.085, 0.05
# Time, or share of the execution, that may lie before and after its CPU samples.
UNSAMPLED_S, UNSAMPLED_SHARE = 1.0, 0.1
# An always busy switch forwards, not only polls, if other threads keep more cores than this busy.
BESIDE_BUSY_SWITCH = 0.42


@dataclass(frozen=True)
class Observation:
    """One execution: CPU samples (`windows`), each agent's wait for a processor, its start and end.

    `pauses` are the machine's pauses meanwhile; `depth_s` is the fabric's least bucket depth.
    `seconds` of an execution that did not complete reach until its end, as when a job aborts.
    """

    seconds: float
    windows: tuple[Window, ...]
    agents_delay_s: tuple[float, ...]
    backlog_left_bytes: int
    retransmits: int
    start_skew_s: float
    pauses: PauseLog
    depth_s: float
    complete: bool = True

    @property
    def is_observed(self) -> bool:
        """Whether all was observed: CPU samples, agents' waits, and pauses of all cores."""
        return bool(self._is_sampled and self.agents_delay_s and self.pauses.seconds)

    @property
    def _is_sampled(self) -> bool:
        """Whether CPU samples reach from the beginning to the end, but for parts of windows."""
        if not self.windows:
            return False
        sampled_s = (self.windows[-1].end_ns - self.windows[0].begin_ns) / NS_PER_S
        return self.seconds - sampled_s <= max(UNSAMPLED_S, UNSAMPLED_SHARE * self.seconds)


@dataclass(frozen=True)
class Coverage:
    """Numbers of CPU samples (`windows`), of executions, and of those not completely observed."""

    windows: int
    executions: int
    unobserved: int


@dataclass(frozen=True)
class Pauses:
    """Pauses of the machine, of the worst execution.

    `lost` is the share of all cores' time that they took, `lost_beyond` the part of the time that
    pauses of all cores took beyond the depth of the buckets.
    """

    lost: float
    lost_beyond: float
    pause_longest_s: float
    pauses_per_s: float


@dataclass(frozen=True)
class Processors:
    """Shares of all cores: idle and stolen. `min`, `max` and `p5` are over all CPU samples.

    Pressure is `None` where the kernel does not count it.
    """

    idle_min: float
    idle_p5: float
    idle_mean: float
    idle_saturated: float
    steal_max: float
    steal_mean: float
    pressure_max: float | None
    pressure_mean: float | None


@dataclass(frozen=True)
class Switch:
    """The busiest switch, as shares of a core or of the time, of the worst execution.

    `switch_behind_s` is the time without running out of work, the mean of the CPU samples;
    `switch_never_idle` is the part of CPU samples in which it never ran out, `switch_backlogged`
    the part of the time in which it was behind and waited for a core. `beside_switch` is the number
    of cores that other threads kept busy. `switch_share_max` is of the worst sample.
    """

    switch_share_max: float
    switch_share_mean: float
    switch_saturated: float
    beside_switch: float
    switch_behind_s: float
    switch_never_idle: float
    switch_backlogged: float
    switch_run_delay: float


@dataclass(frozen=True)
class Agents:
    """Shares of the time that agents waited for a core, and how late the last one started.

    The start skew is that of complete executions: an aborted one may be as short as it likes.
    """

    agents_run_delay_max: float
    agents_run_delay_mean: float
    start_skew_s: float
    start_skew: float


@dataclass(frozen=True)
class Packets:
    """Packets dropped, segments retransmitted, and bytes that a queue held after the end.

    `retransmits` is the sum over all executions, `retransmits_per_s` of the worst one.
    """

    backlog_left_bytes: int
    dropped_packets: int
    retransmits: int
    retransmits_per_s: float


@dataclass(frozen=True)
class MachineHeadroom:
    """Machine headroom during a case's counted executions.

    `delay_share` adds up the delays of a byte, as a share of the time: at the switch, at both of
    its agents, and in pauses that no bucket makes up for. It is the median of the executions, as
    the completion time is; `delay_share_max` is of the worst. `run_delay` is the wait for a core
    of an agent and of the switch: bytes pass both.
    """

    coverage: Coverage = field(metadata=FLAT)
    pauses: Pauses = field(metadata=FLAT)
    processors: Processors = field(metadata=FLAT)
    switch: Switch = field(metadata=FLAT)
    agents: Agents = field(metadata=FLAT)
    packets: Packets = field(metadata=FLAT)
    delay_share: float
    delay_share_max: float
    run_delay: float


def machine_headroom(
    observations: Sequence[Observation], dropped_packets: int
) -> MachineHeadroom | None:
    """Summarize the completely observed executions; return `None` if there are none."""
    seen = [one for one in observations if one.is_observed and one.seconds > 0]
    if not seen:
        return None
    windows = list(chain.from_iterable(one.windows for one in seen))
    return MachineHeadroom(
        coverage=Coverage(len(windows), len(observations), len(observations) - len(seen)),
        pauses=_pauses(seen),
        processors=_processors(seen, windows),
        switch=_switch(seen, windows),
        agents=_agents(seen),
        packets=_packets(seen, windows, dropped_packets),
        delay_share=median(_delay_share(one) for one in seen),
        delay_share_max=max(_delay_share(one) for one in seen),
        run_delay=max(
            _mean(one.agents_delay_s) / one.seconds + _mean(w.switch_delay for w in one.windows)
            for one in seen
        ),
    )


def _pauses(seen: Sequence[Observation]) -> Pauses:
    return Pauses(
        lost=max(one.pauses.lost for one in seen),
        lost_beyond=max(one.pauses.beyond_s(one.depth_s) / one.seconds for one in seen),
        pause_longest_s=max(one.pauses.longest_s for one in seen),
        pauses_per_s=max(len(one.pauses.pauses) / one.seconds for one in seen),
    )


def _processors(seen: Sequence[Observation], windows: Sequence[Window]) -> Processors:
    idle = sorted(window.idle for window in windows)
    stalled = [window.stalled for window in windows if window.stalled is not None]
    return Processors(
        idle_min=idle[0],
        idle_p5=idle[len(idle) // 20],
        idle_mean=min(_mean(w.idle for w in one.windows) for one in seen),
        idle_saturated=max(_mean(w.idle < SATURATED_SHARE for w in one.windows) for one in seen),
        steal_max=max(window.steal for window in windows),
        steal_mean=max(_mean(w.steal for w in one.windows) for one in seen),
        pressure_max=max(stalled, default=None),
        pressure_mean=_mean(stalled) if stalled else None,
    )


def _switch(seen: Sequence[Observation], windows: Sequence[Window]) -> Switch:
    return Switch(
        switch_share_max=max(window.switch_busy for window in windows),
        switch_share_mean=max(_mean(w.switch_busy for w in one.windows) for one in seen),
        switch_saturated=max(_mean(_is_saturated(w) for w in one.windows) for one in seen),
        beside_switch=max(_beside(one) for one in seen),
        switch_behind_s=max(_mean(w.switch_behind_s for w in one.windows) for one in seen),
        switch_never_idle=max(_never_idle(one) for one in seen),
        switch_backlogged=max(_backlogged(one) for one in seen),
        switch_run_delay=max(_mean(w.switch_delay for w in one.windows) for one in seen),
    )


def _agents(seen: Sequence[Observation]) -> Agents:
    whole = [one for one in seen if one.complete]
    return Agents(
        agents_run_delay_max=max(max(one.agents_delay_s, default=0) / one.seconds for one in seen),
        agents_run_delay_mean=max(_mean(one.agents_delay_s) / one.seconds for one in seen),
        start_skew_s=max((one.start_skew_s for one in whole), default=0.0),
        start_skew=max((one.start_skew_s / one.seconds for one in whole), default=0.0),
    )


def _packets(
    seen: Sequence[Observation], windows: Sequence[Window], dropped_packets: int
) -> Packets:
    return Packets(
        backlog_left_bytes=max(one.backlog_left_bytes for one in seen),
        dropped_packets=dropped_packets,
        retransmits=sum(one.retransmits for one in seen),
        retransmits_per_s=max(one.retransmits / one.seconds for one in seen),
    )


def _is_saturated(window: Window) -> bool:
    """Whether the busiest switch ran or waited for a core nearly all the time."""
    return window.switch_busy + window.switch_delay > 1 - SATURATED_SHARE


def _beside(one: Observation) -> float:
    """Return the number of cores that other threads kept busy, over the share that pauses left.

    Threads of higher priority than ours do not count: they cause pauses, as does steal.
    """
    busy = _mean(window.beside_switch for window in one.windows)
    stolen = _mean(window.steal for window in one.windows)
    ours = busy - one.pauses.cores * max(0.0, one.pauses.lost - stolen)
    return max(0.0, ours) / max(0.1, 1 - one.pauses.lost)


def _never_idle(one: Observation) -> float:
    """Return the share of windows in which the switch was never idle."""
    return _mean(window.switch_behind_s > NEVER_DONE_S for window in one.windows)


def _backlogged(one: Observation) -> float:
    """Return the share of the time in which the switch was behind and waited for a core."""
    return _mean(w.switch_delay * (w.switch_behind_s > BEHIND_S) for w in one.windows)


def _delay_share(one: Observation) -> float:
    """Return a byte's delays, as a share of the time: at the switch, both agents, and in pauses."""
    forwards = _beside(one) > BESIDE_BUSY_SWITCH
    switch = _backlogged(one) + (_never_idle(one) if forwards else 0.0)
    agents_s = 2 * _mean(one.agents_delay_s)
    return switch + (agents_s + one.pauses.beyond_s(one.depth_s)) / one.seconds


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known) if known else 0.0
