"""Judge, by observations alone, whether the machine was fast enough for the emulation.

Completion times and the model are not used here: this verdict says whether the emulator kept up, so
that a deviation from the modeled time is meaningful.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from math import inf
from typing import Any

from model.fabric.shaping import ETHERNET_HEADER_BYTES, MTU_BYTES
from model.measurement.cpu_windows import Window
from model.measurement.pauses import PauseLog
from results.verdicts.verdict import Reason, Verdict, worst

# In a window (CPU sample), processors or the switch are saturated with less than this share left.
SATURATED_SHARE = 0.05
# Seconds without the switch running out of work, on average in a window: above the first value, it
# never did in that window; above the second, it had fallen behind.
NEVER_DONE_S, BEHIND_S = 0.085, 0.05
# Less than this in a queue is no leftover data: the controller's link probes are always there.
FULL_FRAME_BYTES = MTU_BYTES + ETHERNET_HEADER_BYTES
# An always busy switch forwards, not only polls, if other threads keep more cores than this busy.
BESIDE_BUSY_SWITCH = 0.42


@dataclass(frozen=True)
class Limit:
    """Limits of a figure: above `warn` it is doubtful, above `fail` it is not credible."""

    warn: float
    fail: float

    def verdict(self, value: float) -> Verdict:
        """Return the verdict on a value."""
        if value > self.fail:
            return Verdict.FAIL
        return Verdict.WARN if value > self.warn else Verdict.PASS


@dataclass(frozen=True)
class FidelityLimits:
    """Limits above which an observation is doubtful, from docs/measuring.md, "Fidelity".

    A switch that is always busy may still keep up, as it polls for more work continuously. It is
    short of time when it never runs out of work, and more so when it also waits for a processor.
    It polls all its ports at each wake-up, so many ports alone keep it busy: never running out of
    work counts only if other threads keep more than `BESIDE_BUSY_SWITCH` cores busy meanwhile.
    """

    strain: Limit = Limit(0.85, 1.05)
    agents_run_delay: Limit = Limit(0.16, 0.3)
    one_agent_run_delay: Limit = Limit(0.4, 0.6)
    lost_beyond: Limit = Limit(0.03, 0.25)
    retransmits_per_s: Limit = Limit(100, 400)
    start_skew: Limit = Limit(0.01, 0.05)


LIMITS = FidelityLimits()
# During a fault, TCP retransmits lost segments, and recovery is work outside any schedule.
STRUCK_LIMITS = FidelityLimits(retransmits_per_s=Limit(inf, inf))


@dataclass(frozen=True)
class Observation:
    """One execution: CPU samples (`windows`), each agent's wait for a processor, its start and end.

    `pauses` are the machine's pauses meanwhile; `depth_s` is the fabric's least bucket depth.
    """

    seconds: float
    windows: tuple[Window, ...]
    agents_delay_s: tuple[float, ...]
    backlog_left_bytes: int
    retransmits: int
    start_skew_s: float
    pauses: PauseLog
    depth_s: float

    @property
    def is_complete(self) -> bool:
        """Whether all was observed: CPU samples, agents' waits, and pauses of all cores."""
        return bool(self.windows and self.agents_delay_s and self.pauses.seconds)


@dataclass(frozen=True)
class MachineHeadroom:
    """Machine headroom during a case's counted executions.

    Shares are of the whole machine (idle, steal, lost), of one processor (switch), or of the time
    (saturated, delays, pressure). `min`, `max` and `p5` are over all windows (CPU samples of a
    tenth of a second); means, delays and saturation are of the worst execution. `lost` is the share
    that pauses took, `lost_beyond` the time that pauses of all cores took beyond the depth of the
    buckets, as a part of the time. `switch_behind_s` is how long the busiest switch went without
    running out of work; `switch_never_done` is the part of windows in which it never did, and
    `switch_starved` the part of the time that it waited for a core when it was behind. `strain`
    adds up the delays of a byte: at the switch, and at both of its agents. Pressure is `None` where
    the kernel does not count it; the longest queue is `None` if it was never sampled.
    """

    windows: int
    executions: int
    unobserved: int
    lost: float
    lost_beyond: float
    pause_longest_s: float
    pauses_per_s: float
    idle_min: float
    idle_p5: float
    idle_mean: float
    idle_saturated: float
    steal_max: float
    steal_mean: float
    switch_share_max: float
    switch_share_mean: float
    switch_saturated: float
    beside_switch: float
    switch_behind_s: float
    switch_never_done: float
    switch_starved: float
    strain: float
    run_delay: float
    switch_run_delay: float
    agents_run_delay_max: float
    agents_run_delay_mean: float
    pressure_max: float | None
    pressure_mean: float | None
    backlog_max_bytes: int | None
    backlog_left_bytes: int
    dropped_packets: int
    retransmits: int
    retransmits_per_s: float
    start_skew_s: float
    start_skew: float


@dataclass(frozen=True)
class Fidelity:
    """The verdict by observations alone, its reasons, and the figures."""

    found: tuple[Reason, ...]
    headroom: MachineHeadroom | None

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the findings."""
        return worst(verdict for verdict, _ in self.found)

    def plain(self) -> dict[str, Any]:
        """Return the `fidelity` object in the JSON object of a case."""
        figures = asdict(self.headroom) if self.headroom else {}
        reasons = [reason for _, reason in self.found]
        return {"verdict": self.verdict.value, "reasons": reasons, **figures}


def summarized(observations: Sequence[Observation], dropped_packets: int) -> MachineHeadroom | None:
    """Summarize all executions; return `None` if none of them was observed completely."""
    seen = [one for one in observations if one.is_complete and one.seconds > 0]
    if not seen:
        return None
    every = list(chain.from_iterable(one.windows for one in seen))
    idle = sorted(window.idle for window in every)
    stalled = [w.stalled for w in every if w.stalled is not None]
    backlogs = [w.backlog_bytes for w in every if w.backlog_bytes is not None]
    return MachineHeadroom(
        windows=len(every),
        executions=len(observations),
        unobserved=len(observations) - len(seen),
        lost=max(one.pauses.lost for one in seen),
        lost_beyond=max(one.pauses.beyond_s(one.depth_s) / one.seconds for one in seen),
        pause_longest_s=max(one.pauses.longest_s for one in seen),
        pauses_per_s=max(len(one.pauses.pauses) / one.seconds for one in seen),
        idle_min=idle[0],
        idle_p5=idle[len(idle) // 20],
        idle_mean=min(_mean(w.idle for w in one.windows) for one in seen),
        idle_saturated=max(_mean(w.idle < SATURATED_SHARE for w in one.windows) for one in seen),
        steal_max=max(w.steal for w in every),
        steal_mean=max(_mean(w.steal for w in one.windows) for one in seen),
        switch_share_max=max(w.switch_busy for w in every),
        switch_share_mean=max(_mean(w.switch_busy for w in one.windows) for one in seen),
        switch_saturated=max(_mean(_is_saturated(w) for w in one.windows) for one in seen),
        beside_switch=max(_beside(one) for one in seen),
        switch_never_done=max(_never_done(one) for one in seen),
        switch_starved=max(_starved(one) for one in seen),
        strain=max(_strain(one) for one in seen),
        switch_behind_s=max(_mean(w.switch_behind_s for w in one.windows) for one in seen),
        run_delay=max(_run_delay(one) for one in seen),
        switch_run_delay=max(_mean(w.switch_delay for w in one.windows) for one in seen),
        agents_run_delay_max=max(max(one.agents_delay_s, default=0) / one.seconds for one in seen),
        agents_run_delay_mean=max(_mean(one.agents_delay_s) / one.seconds for one in seen),
        pressure_max=max(stalled, default=None),
        pressure_mean=_mean(stalled) if stalled else None,
        backlog_max_bytes=max(backlogs, default=None),
        backlog_left_bytes=max(one.backlog_left_bytes for one in seen),
        dropped_packets=dropped_packets,
        retransmits=sum(one.retransmits for one in seen),
        retransmits_per_s=max(one.retransmits / one.seconds for one in seen),
        start_skew_s=max(one.start_skew_s for one in seen),
        start_skew=max(one.start_skew_s / one.seconds for one in seen),
    )


def _is_saturated(window: Window) -> bool:
    """Whether the busiest switch ran or waited for a processor nearly all the time."""
    return window.switch_busy + window.switch_delay > 1 - SATURATED_SHARE


def _beside(one: Observation) -> float:
    """Return how many cores other threads kept busy, divided by the share that pauses left.

    Threads of higher priority than ours do not count: they cause pauses, as does steal.
    """
    busy = _mean(window.beside_switch for window in one.windows)
    stolen = _mean(window.steal for window in one.windows)
    ours = busy - one.pauses.cores * max(0.0, one.pauses.lost - stolen)
    return max(0.0, ours) / max(0.1, 1 - one.pauses.lost)


def _never_done(one: Observation) -> float:
    """Return the share of windows in which the switch never ran out of work."""
    return _mean(window.switch_behind_s > NEVER_DONE_S for window in one.windows)


def _starved(one: Observation) -> float:
    """Return the share of the time in which the switch was behind and waited for a core."""
    return _mean(w.switch_delay * (w.switch_behind_s > BEHIND_S) for w in one.windows)


def _strain(one: Observation) -> float:
    """Return the delays of a byte, as a share of the time: at the switch, and at both agents."""
    forwards = _beside(one) > BESIDE_BUSY_SWITCH
    switch = _starved(one) + (_never_done(one) if forwards else 0.0)
    return switch + 2 * _mean(one.agents_delay_s) / one.seconds


def _run_delay(one: Observation) -> float:
    """Return the sum of an agent's and the switch's waits for a processor: bytes pass both."""
    agents = _mean(one.agents_delay_s) / one.seconds
    return agents + _mean(window.switch_delay for window in one.windows)


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known) if known else 0.0


def machine_reasons(
    headroom: MachineHeadroom | None, limits: FidelityLimits = LIMITS
) -> Iterator[Reason]:
    """Yield which resources were exhausted; fail if executions were not observed."""
    if headroom is None:
        yield Verdict.FAIL, "nothing was observed of the machine: nothing is known of it"
        return
    if headroom.unobserved:
        yield (
            Verdict.FAIL,
            f"{headroom.unobserved} of {headroom.executions} executions were not observed "
            "throughout",
        )
    found = (*_processors(headroom, limits), *_others(headroom, limits))
    yield from (reason for reason in found if reason[0] is not Verdict.PASS)
    if headroom.backlog_left_bytes >= FULL_FRAME_BYTES:
        left = headroom.backlog_left_bytes
        yield Verdict.WARN, f"a queue still held {left} bytes when all had arrived"


def _processors(headroom: MachineHeadroom, limits: FidelityLimits) -> Iterator[Reason]:
    mean, most = headroom.agents_run_delay_mean, headroom.agents_run_delay_max
    yield (
        limits.strain.verdict(headroom.strain),
        f"the switch never had done all its work in {headroom.switch_never_done:.0%} of an "
        f"execution, and was behind and waited for a processor in {headroom.switch_starved:.0%}, "
        f"agents in {mean:.0%}",
    )
    yield (
        limits.agents_run_delay.verdict(mean),
        f"agents waited {mean:.0%} of an execution for a processor",
    )
    yield (
        limits.one_agent_run_delay.verdict(most),
        f"an agent waited {most:.0%} of an execution for a processor",
    )


def _others(headroom: MachineHeadroom, limits: FidelityLimits) -> Iterator[Reason]:
    yield (
        limits.lost_beyond.verdict(headroom.lost_beyond),
        f"pauses of up to {headroom.pause_longest_s * 1e3:.0f} ms took {headroom.lost_beyond:.0%} "
        "of an execution beyond what the links' buckets make good",
    )
    yield (
        limits.retransmits_per_s.verdict(headroom.retransmits_per_s),
        f"TCP sent {headroom.retransmits_per_s:.0f} segments a second again",
    )
    yield (
        limits.start_skew.verdict(headroom.start_skew),
        f"an agent started {headroom.start_skew_s * 1e3:.0f} ms late, {headroom.start_skew:.1%} "
        "of an execution",
    )


def fidelity_of_struck(
    observations: Sequence[Observation], others: Iterable[Reason] = ()
) -> Fidelity:
    """Return the fidelity of an execution during a fault, in which retransmits are expected."""
    headroom = summarized(observations, dropped_packets=0)
    return Fidelity((*machine_reasons(headroom, STRUCK_LIMITS), *others), headroom)
