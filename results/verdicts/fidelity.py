"""Judge, by observations alone, whether the machine was fast enough for the emulation.

Completion times and the model are not used here: this verdict says whether the emulator kept up, so
that a deviation from the modeled time is meaningful.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from model.fabric.shaping import ETHERNET_HEADER_BYTES, MTU_BYTES
from results.verdicts.machine_headroom import (
    SATURATED_SHARE,
    MachineHeadroom,
    Observation,
    machine_headroom,
)
from results.verdicts.record import FLAT
from results.verdicts.verdict import Judgement, Reason, Verdict

# A backlog below this is no leftover data: the controller's link probes are always in queues.
FULL_FRAME_BYTES = MTU_BYTES + ETHERNET_HEADER_BYTES


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
    """Limits above which an observation is doubtful.

    The measurements behind them: docs/explanation/measuring.md, "Fidelity".

    A switch that is always busy may still keep up, as it polls for more work continuously. It is
    short of time when it never runs out of work, and more so when it also waits for a processor.
    It polls all its ports at each wake-up, so many ports alone keep it busy: never running out of
    work counts only if other threads keep more than `BESIDE_BUSY_SWITCH` cores busy meanwhile.

    A full switch on a machine without an idle processor is doubtful, even if it is done at times,
    and not credible if it was full throughout.

    The worst execution's share of delays is doubtful above `warn`. The executions' median is not
    credible above `fail`, as the completion time is a median as well.
    """

    delay_share: Limit = Limit(0.65, 1.0)
    full_switch: Limit = Limit(0.9, 0.98)
    agents_run_delay: Limit = Limit(0.16, 0.3)
    one_agent_run_delay: Limit = Limit(0.4, 0.6)
    lost_beyond: Limit = Limit(0.03, 0.25)
    retransmits_per_s: Limit = Limit(100, 400)
    start_skew: Limit = Limit(0.01, 0.05)


LIMITS = FidelityLimits()
# During a fault, TCP retransmits lost segments, and recovery is work outside any schedule.
FAULT_LIMITS = FidelityLimits(retransmits_per_s=Limit(inf, inf))


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
    seen = headroom.coverage
    if seen.unobserved:
        what = f"{seen.unobserved} of {seen.executions} executions were not observed throughout"
        yield Verdict.FAIL, what
    judged = (*_waits(headroom, limits), *_delays(headroom, limits))
    yield from (reason for reason in judged if reason[0] is not Verdict.PASS)
    if (left := headroom.packets.backlog_left_bytes) >= FULL_FRAME_BYTES:
        yield Verdict.WARN, f"{left} bytes still queued after completion"


def _waits(headroom: MachineHeadroom, limits: FidelityLimits) -> Iterator[Reason]:
    """Judge how long the switch and the agents waited for a core."""
    switch, agents = headroom.switch, headroom.agents
    mean, most = agents.agents_run_delay_mean, agents.agents_run_delay_max
    yield (
        _delayed(headroom, limits.delay_share),
        f"the switch was never idle in {switch.switch_never_idle:.0%} of an execution, and "
        f"backlogged without a core in {switch.switch_backlogged:.0%}; agents waited for a core in "
        f"{mean:.0%}",
    )
    yield (
        limits.full_switch.verdict(_full_without_idle_processor(headroom)),
        f"the switch was saturated in {switch.switch_saturated:.0%} of an execution, and the cores "
        f"were idle for {headroom.processors.idle_mean:.0%} of the time",
    )
    yield (
        limits.agents_run_delay.verdict(mean),
        f"agents waited for a core in {mean:.0%} of an execution",
    )
    yield (
        limits.one_agent_run_delay.verdict(most),
        f"one agent waited for a core in {most:.0%} of an execution",
    )


def _delayed(headroom: MachineHeadroom, limit: Limit) -> Verdict:
    if headroom.delay_share > limit.fail:
        return Verdict.FAIL
    return Verdict.WARN if headroom.delay_share_max > limit.warn else Verdict.PASS


def _full_without_idle_processor(headroom: MachineHeadroom) -> float:
    """Return the share of the windows with a full switch; 0 if the processors had idle time."""
    had_idle_time = headroom.processors.idle_mean >= SATURATED_SHARE
    return 0.0 if had_idle_time else headroom.switch.switch_saturated


def _delays(headroom: MachineHeadroom, limits: FidelityLimits) -> Iterator[Reason]:
    """Judge pauses, retransmits and late starts."""
    pauses, packets, agents = headroom.pauses, headroom.packets, headroom.agents
    yield (
        limits.lost_beyond.verdict(pauses.lost_beyond),
        f"pauses of up to {pauses.pause_longest_s * 1e3:.0f} ms took {pauses.lost_beyond:.0%} "
        "of an execution beyond what the links' buckets make up for",
    )
    yield (
        limits.retransmits_per_s.verdict(packets.retransmits_per_s),
        f"TCP retransmitted {packets.retransmits_per_s:.0f} segments a second",
    )
    yield (
        limits.start_skew.verdict(agents.start_skew),
        f"an agent started {agents.start_skew_s * 1e3:.0f} ms late, {agents.start_skew:.1%} "
        "of an execution",
    )


def fidelity_during_fault(
    observations: Sequence[Observation], others: Iterable[Reason] = ()
) -> Fidelity:
    """Return the fidelity of an execution during a fault, in which retransmits are expected."""
    headroom = machine_headroom(observations, dropped_packets=0)
    return Fidelity.of((*machine_reasons(headroom, FAULT_LIMITS), *others), headroom=headroom)
