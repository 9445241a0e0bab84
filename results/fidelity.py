"""Whether the machine was fast enough to be believed: judged by what was observed alone.

The completion time and its model are not looked at here: this verdict says whether the emulator
could do what it was asked to, so that another time than the modeled one means something.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from math import inf
from typing import Any

from model.vitals import Window
from results.verdict import Reason, Verdict, worst

# A window in which a processor or the switch had less than this left could not do more.
SATURATED_SHARE = 0.05
# Cores that all others keep busy when a full switch forwards, and does not only look.
BESIDE_FULL_SWITCH = 0.5


@dataclass(frozen=True)
class Limit:
    """Above `warn` a figure is doubtful, above `fail` it is not to be believed."""

    warn: float
    fail: float

    def verdict(self, value: float) -> Verdict:
        """The verdict on a value."""
        if value > self.fail:
            return Verdict.FAIL
        return Verdict.WARN if value > self.warn else Verdict.PASS


@dataclass(frozen=True)
class FidelityLimits:
    """Where an observation becomes doubtful. All are from docs/measuring.md, "Fidelity".

    A switch that is full may still just keep up: what it loses then tells whether it does. It looks
    at all its ports whenever it wakes, so many ports fill it with little traffic: it is judged only
    if all others work more than `BESIDE_FULL_SWITCH` meanwhile.
    """

    switch_saturated: Limit = Limit(0.95, inf)
    run_delay: Limit = Limit(0.24, 0.35)
    steal: Limit = Limit(0.05, 0.2)
    retransmits_per_s: Limit = Limit(40, 80)
    start_skew: Limit = Limit(0.01, 0.05)


LIMITS = FidelityLimits()
# What is cut off has to be sent again, and a fault is answered by work that no schedule has.
STRUCK_LIMITS = FidelityLimits(retransmits_per_s=Limit(inf, inf))


@dataclass(frozen=True)
class Observation:
    """One execution: its windows, what each agent had to wait for a processor, and its ends."""

    seconds: float
    windows: tuple[Window, ...]
    agents_delay_s: tuple[float, ...]
    backlog_left_bytes: int
    retransmits: int
    start_skew_s: float


@dataclass(frozen=True)
class Vitals:
    """What was observed of a case's counted executions.

    Shares are of the whole machine (idle, steal), of one processor (switch), or of the time
    (saturated, delays, pressure). `min`, `max` and `p5` are over all windows of a tenth of a
    second; the mean, as delays and saturation, is that of the worst execution. Pressure is `None`
    where the kernel does not count it; the longest queue, if nobody looked.
    """

    windows: int
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
    """The verdict by observation alone, its reasons, and the figures."""

    found: tuple[Reason, ...]
    vitals: Vitals | None

    @property
    def verdict(self) -> Verdict:
        """The worst of what was found."""
        return worst(verdict for verdict, _ in self.found)

    def plain(self) -> dict[str, Any]:
        """As the JSON object of a case has it."""
        figures = asdict(self.vitals) if self.vitals else {}
        reasons = [reason for _, reason in self.found]
        return {"verdict": self.verdict.value, "reasons": reasons, **figures}


def summarized(observations: Sequence[Observation], dropped_packets: int) -> Vitals | None:
    """All executions together; `None` if there are none that were observed."""
    seen = [one for one in observations if one.windows and one.seconds > 0]
    if not seen:
        return None
    every = list(chain.from_iterable(one.windows for one in seen))
    idle = sorted(window.idle for window in every)
    stalled = [w.stalled for w in every if w.stalled is not None]
    backlogs = [w.backlog_bytes for w in every if w.backlog_bytes is not None]
    return Vitals(
        windows=len(every),
        idle_min=idle[0],
        idle_p5=idle[len(idle) // 20],
        idle_mean=min(_mean(w.idle for w in one.windows) for one in seen),
        idle_saturated=max(_mean(w.idle < SATURATED_SHARE for w in one.windows) for one in seen),
        steal_max=max(w.steal for w in every),
        steal_mean=max(_mean(w.steal for w in one.windows) for one in seen),
        switch_share_max=max(w.switch_busy for w in every),
        switch_share_mean=max(_mean(w.switch_busy for w in one.windows) for one in seen),
        switch_saturated=max(_mean(_is_saturated(w) for w in one.windows) for one in seen),
        beside_switch=max(_mean(w.beside_switch for w in one.windows) for one in seen),
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
    """A switch that runs or waits to run all the time."""
    return window.switch_busy + window.switch_delay > 1 - SATURATED_SHARE


def _run_delay(one: Observation) -> float:
    """Every byte passes an agent and a switch: what they wait for a processor adds up."""
    agents = _mean(one.agents_delay_s) / one.seconds
    return agents + _mean(window.switch_delay for window in one.windows)


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known) if known else 0.0


def machine_reasons(vitals: Vitals | None, limits: FidelityLimits = LIMITS) -> Iterator[Reason]:
    """What of the machine was at its end; nothing is known of what nobody observed."""
    if vitals is None:
        return
    waited, forwards = vitals.run_delay, vitals.beside_switch > BESIDE_FULL_SWITCH
    busy = vitals.switch_saturated if forwards else 0.0
    found = [
        (
            limits.switch_saturated.verdict(busy),
            f"the busiest switch had no time left in {busy:.0%} of an execution",
        ),
        (
            limits.run_delay.verdict(waited),
            f"agents and the switch between them waited {waited:.0%} of an execution for a "
            "processor",
        ),
        (
            limits.steal.verdict(vitals.steal_mean),
            f"the hypervisor took {vitals.steal_mean:.1%} of the processors",
        ),
        (
            limits.retransmits_per_s.verdict(vitals.retransmits_per_s),
            f"TCP sent {vitals.retransmits_per_s:.0f} segments a second again",
        ),
        (
            limits.start_skew.verdict(vitals.start_skew),
            f"an agent started {vitals.start_skew_s * 1e3:.0f} ms late, {vitals.start_skew:.1%} "
            "of an execution",
        ),
    ]
    yield from (reason for reason in found if reason[0] is not Verdict.PASS)
    if vitals.backlog_left_bytes:
        left = vitals.backlog_left_bytes
        yield Verdict.WARN, f"a queue still held {left} bytes when all had arrived"


def fidelity_of_struck(
    observations: Sequence[Observation], others: Iterable[Reason] = ()
) -> Fidelity:
    """Of an execution in which something breaks: losses are what the fault is about."""
    vitals = summarized(observations, dropped_packets=0)
    return Fidelity((*machine_reasons(vitals, STRUCK_LIMITS), *others), vitals)
