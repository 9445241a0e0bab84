"""Judge, by observations alone, whether the machine was fast enough for the emulation.

Completion times and the model are not used here: this verdict says whether the emulator kept up, so
that a deviation from the modeled time is meaningful. Its figures are the machine headroom: spare
capacity of the machine during executions, and where bytes waited.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from math import inf
from statistics import fmean, median
from typing import Any, NamedTuple

from model.fabric.shaping import ETHERNET_HEADER_BYTES, MTU_BYTES
from model.measurement.cpu_windows import NS_PER_S, Window
from model.measurement.pauses import PauseLog
from results.store.records import FLAT
from results.verdicts.verdict import Judgement, Reason, Thresholds, Verdict

# In a window (CPU sample), processors or the switch are saturated with less than this share left.
SATURATED_SHARE = 0.05
# Seconds from one idle moment of the switch to the next, on average in a window. Above the first
# value, it was never idle in that window; above the second, it was backlogged.
NEVER_DONE_S, BEHIND_S = 0.085, 0.05
# Time, or share of the execution, that may lie before and after its CPU samples.
UNSAMPLED_S, UNSAMPLED_SHARE = 1.0, 0.1
# Parts of the time that a sentence about delays leaves out are smaller.
LEAST_NAMED = 0.005
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
        """Whether agents' waits, pauses, and CPU samples from begin to end, nearly, are there."""
        if not (self.windows and self.agents_delay_s and self.pauses.seconds):
            return False
        sampled_s = (self.windows[-1].end_ns - self.windows[0].begin_ns) / NS_PER_S
        return self.seconds - sampled_s <= max(UNSAMPLED_S, UNSAMPLED_SHARE * self.seconds)

    def mean(self, figure: Callable[[Window], float]) -> float:
        """Return the mean of a figure over the CPU samples."""
        return fmean(map(figure, self.windows))

    @property
    def agents_run_delay(self) -> float:
        """The share of the time in which an agent waited for a core, on average."""
        return fmean(self.agents_delay_s) / self.seconds

    @property
    def beside_switch(self) -> float:
        """The number of cores that other threads kept busy, over the share that pauses left.

        Threads of higher priority than ours do not count: they cause pauses, as does steal.
        """
        stolen = self.mean(lambda w: w.steal)
        paused = self.pauses.cores * max(0.0, self.pauses.lost - stolen)
        ours = self.mean(lambda w: w.beside_switch) - paused
        return max(0.0, ours) / max(0.1, 1 - self.pauses.lost)

    @property
    def switch_never_idle(self) -> float:
        """The share of CPU samples in which the switch was never idle."""
        return self.mean(lambda w: w.switch_behind_s > NEVER_DONE_S)

    @property
    def switch_backlogged(self) -> float:
        """The share of the time in which the switch was behind and waited for a core."""
        return self.mean(lambda w: w.switch_delay * (w.switch_behind_s > BEHIND_S))

    @property
    def delay_share(self) -> float:
        """A byte's delays, as a share of the time: at the switch, both agents, and in pauses."""
        forwards = self.beside_switch > BESIDE_BUSY_SWITCH
        switch = self.switch_backlogged + (self.switch_never_idle if forwards else 0.0)
        agents_s = 2 * fmean(self.agents_delay_s)
        return switch + (agents_s + self.pauses.beyond_s(self.depth_s)) / self.seconds


def _worst(figure: Callable[[Observation], float]) -> Any:
    """A field with the largest figure of several observations."""
    return field(metadata={"worst": figure})


@dataclass(frozen=True, kw_only=True)
class MachineHeadroom:
    """Machine headroom during a case's counted executions.

    Unless said otherwise, a figure is that of the worst execution.

    Coverage: the numbers of CPU samples (`windows`), of executions, and of those not completely
    observed.

    Pauses: `lost` is the share of all cores' time that they took, `lost_beyond` the part of the
    time that pauses of all cores took beyond the depth of the buckets.

    Cores: `idle` and `steal` are shares of all cores. `min`, `max` and `p5` are over all CPU
    samples. Pressure, of all samples, is `None` where the kernel does not count it.

    The busiest switch, as shares of a core or of the time: `switch_behind_s` is the time without
    running out of work, the mean of the CPU samples; `switch_never_idle` is the part of CPU samples
    in which it never ran out, `switch_backlogged` the part of the time in which it was behind and
    waited for a core. `beside_switch` is the number of cores that other threads kept busy.
    `switch_share_max` is of the worst sample.

    Agents: the share of the time that they waited for a core, and how late the last one started, in
    complete executions alone: an aborted one may be as short as it likes.

    Packets: `backlog_left_bytes` is what a queue held after the end; `dropped_packets` and
    `retransmits` are those of all executions.

    `delay_share` adds up the delays of a byte, as a share of the time: at the switch, at both of
    its agents, and in pauses that no bucket makes up for. It is the median of the executions, as
    the completion time is; `delay_share_max` is of the worst. `run_delay` is the wait for a core
    of an agent and of the switch: bytes pass both.
    """

    windows: int
    executions: int
    unobserved: int
    lost: float = _worst(lambda one: one.pauses.lost)
    lost_beyond: float = _worst(lambda one: one.pauses.beyond_s(one.depth_s) / one.seconds)
    pause_longest_s: float = _worst(lambda one: one.pauses.longest_s)
    pauses_per_s: float = _worst(lambda one: len(one.pauses.pauses) / one.seconds)
    idle_min: float
    idle_p5: float
    idle_mean: float
    idle_saturated: float = _worst(lambda one: one.mean(lambda w: w.idle < SATURATED_SHARE))
    steal_max: float
    steal_mean: float = _worst(lambda one: one.mean(lambda w: w.steal))
    pressure_max: float | None
    pressure_mean: float | None
    switch_share_max: float
    switch_share_mean: float = _worst(lambda one: one.mean(lambda w: w.switch_busy))
    switch_saturated: float = _worst(
        lambda one: one.mean(lambda w: w.switch_busy + w.switch_delay > 1 - SATURATED_SHARE)
    )
    beside_switch: float = _worst(lambda one: one.beside_switch)
    switch_behind_s: float = _worst(lambda one: one.mean(lambda w: w.switch_behind_s))
    switch_never_idle: float = _worst(lambda one: one.switch_never_idle)
    switch_backlogged: float = _worst(lambda one: one.switch_backlogged)
    switch_run_delay: float = _worst(lambda one: one.mean(lambda w: w.switch_delay))
    agents_run_delay_max: float = _worst(lambda one: max(one.agents_delay_s) / one.seconds)
    agents_run_delay_mean: float = _worst(lambda one: one.agents_run_delay)
    start_skew_s: float
    start_skew: float
    backlog_left_bytes: int = _worst(lambda one: one.backlog_left_bytes)
    dropped_packets: int
    retransmits: int
    retransmits_per_s: float = _worst(lambda one: one.retransmits / one.seconds)
    delay_share: float
    delay_share_max: float = _worst(lambda one: one.delay_share)
    run_delay: float = _worst(lambda one: one.agents_run_delay + one.mean(lambda w: w.switch_delay))


def machine_headroom(
    observations: Sequence[Observation], dropped_packets: int
) -> MachineHeadroom | None:
    """Summarize the completely observed executions; return `None` if there are none."""
    seen = [one for one in observations if one.is_observed and one.seconds > 0]
    if not seen:
        return None
    windows = list(chain.from_iterable(one.windows for one in seen))
    idle = sorted(window.idle for window in windows)
    stalled = [window.stalled for window in windows if window.stalled is not None]
    whole = [one for one in seen if one.complete]
    worst = {
        one.name: max(map(one.metadata["worst"], seen))
        for one in fields(MachineHeadroom)
        if "worst" in one.metadata
    }
    return MachineHeadroom(
        **worst,
        windows=len(windows),
        executions=len(observations),
        unobserved=len(observations) - len(seen),
        idle_min=idle[0],
        idle_p5=idle[len(idle) // 20],
        idle_mean=min(one.mean(lambda w: w.idle) for one in seen),
        steal_max=max(window.steal for window in windows),
        pressure_max=max(stalled, default=None),
        pressure_mean=fmean(stalled) if stalled else None,
        switch_share_max=max(window.switch_busy for window in windows),
        start_skew_s=max((one.start_skew_s for one in whole), default=0.0),
        start_skew=max((one.start_skew_s / one.seconds for one in whole), default=0.0),
        dropped_packets=dropped_packets,
        retransmits=sum(one.retransmits for one in seen),
        delay_share=median(one.delay_share for one in seen),
    )


# A backlog below this is no leftover data: the controller's link probes are always in queues.
FULL_FRAME_BYTES = MTU_BYTES + ETHERNET_HEADER_BYTES


class FidelityLimits(NamedTuple):
    """Limits above which an observation is doubtful.

    What each is of, and the measurements behind it: docs/explanation/measuring.md, "Fidelity".
    A switch polls all its ports at each wake-up, so many ports alone keep it busy: never running
    out of work counts only if other threads keep more than `BESIDE_BUSY_SWITCH` cores busy.
    """

    delay_share: Thresholds = Thresholds(0.65, 1.0)
    full_switch: Thresholds = Thresholds(0.9, 0.98)
    agents_run_delay: Thresholds = Thresholds(0.16, 0.3)
    one_agent_run_delay: Thresholds = Thresholds(0.4, 0.6)
    lost_beyond: Thresholds = Thresholds(0.03, 0.25)
    retransmits_per_s: Thresholds = Thresholds(100, 400)
    start_skew: Thresholds = Thresholds(0.01, 0.05)


LIMITS = FidelityLimits()
# Packets that a fault loses, or that links and queues lose as the scenario has it, are sent again,
# as are those of RoCE that others overtake: that says nothing of the machine.
LOSSY_LIMITS = FidelityLimits(retransmits_per_s=Thresholds(inf, inf))


@dataclass(frozen=True)
class Fidelity(Judgement):
    """The verdict by observations alone, its reasons, and the figures."""

    headroom: MachineHeadroom | None = field(default=None, metadata=FLAT)


def machine_reasons(
    headroom: MachineHeadroom | None, limits: FidelityLimits = LIMITS
) -> Iterator[Reason]:
    """Yield the exhausted resources; fail if executions were not observed."""
    if headroom is None:
        yield Verdict.FAIL, "the machine was not observed: its speed cannot be judged"
        return
    if unobserved := headroom.unobserved:
        of = f"{unobserved} of {headroom.executions} executions"
        yield Verdict.FAIL, f"{of} were not observed throughout"
    judged = _on_limits(headroom, limits)
    yield from (reason for reason in judged if reason[0] is not Verdict.PASS)
    if (left := headroom.backlog_left_bytes) >= FULL_FRAME_BYTES:
        yield Verdict.WARN, f"{left} bytes still queued after completion"


def _on_limits(headroom: MachineHeadroom, limits: FidelityLimits) -> Iterator[Reason]:
    """Judge the waits of the switch and the agents for a core; pauses, retransmits, late starts."""
    mean, most = headroom.agents_run_delay_mean, headroom.agents_run_delay_max
    saturated, idle = headroom.switch_saturated, headroom.idle_mean
    lost, again, skew = headroom.lost_beyond, headroom.retransmits_per_s, headroom.start_skew
    pause_ms, late_ms = headroom.pause_longest_s * 1e3, headroom.start_skew_s * 1e3
    of = "of an execution"
    yield _delayed(headroom, limits.delay_share)
    switch = f"the switch was saturated in {saturated:.0%} {of}, and the cores were idle"
    full = 0.0 if idle >= SATURATED_SHARE else saturated
    yield limits.full_switch.verdict(full), f"{switch} for {idle:.0%} of the time"
    yield limits.agents_run_delay.verdict(mean), f"agents waited for a core in {mean:.0%} {of}"
    yield (
        limits.one_agent_run_delay.verdict(most),
        f"one agent waited for a core in {most:.0%} {of}",
    )
    pauses = f"pauses of up to {pause_ms:.0f} ms took {lost:.0%} {of}"
    yield limits.lost_beyond.verdict(lost), f"{pauses} beyond what the links' buckets make up for"
    sent_again = f"senders retransmitted {again:.0f} segments a second"
    yield limits.retransmits_per_s.verdict(again), sent_again
    late = f"an agent started {late_ms:.0f} ms late, {skew:.1%} {of}"
    yield limits.start_skew.verdict(skew), late


def _delayed(headroom: MachineHeadroom, limit: Thresholds) -> Reason:
    """Judge the delays of a byte, and name those that take a part of the time."""
    verdict, share = Verdict.PASS, headroom.delay_share_max
    if headroom.delay_share > limit.fail:
        verdict, share = Verdict.FAIL, headroom.delay_share
    elif share > limit.warn:
        verdict = Verdict.WARN
    forwards = headroom.beside_switch > BESIDE_BUSY_SWITCH
    parts = {
        "the switch was never idle in": headroom.switch_never_idle * forwards,
        "the switch was backlogged without a core in": headroom.switch_backlogged,
        "each of two agents waited for a core in": headroom.agents_run_delay_mean,
        "pauses beyond the buckets took": headroom.lost_beyond,
    }
    named = "; ".join(f"{what} {part:.0%}" for what, part in parts.items() if part >= LEAST_NAMED)
    return verdict, f"delays of a byte add up to {share:.0%} of an execution: {named}"


def fidelity_during_fault(
    observations: Sequence[Observation], others: Iterable[Reason] = ()
) -> Fidelity:
    """Return the fidelity of an execution during a fault, in which retransmits are expected."""
    headroom = machine_headroom(observations, dropped_packets=0)
    return Fidelity.of((*machine_reasons(headroom, LOSSY_LIMITS), *others), headroom=headroom)
