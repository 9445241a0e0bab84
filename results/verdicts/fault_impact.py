"""Judge the impact of a fault on a job; the object of `failures` in a run's JSON object."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from model.measurement.records import Repeat
from results.store.records import OPTIONAL, plain
from results.store.runs import PHASES
from results.verdicts.fidelity import Fidelity
from results.verdicts.model_comparison import CaseResult, Work, causes, data_reasons, ratio_reasons
from results.verdicts.verdict import Judgement, Reason, Thresholds, Verdict, with_verdict

# Seconds beyond the job's restart time after which a restart is late.
LATE_S = 0.001
# A prober that skips more than this share of its ticks may have missed a loss.
SKIPPED_ABOVE = 0.01


@dataclass(frozen=True)
class FaultTimes:
    """One fault, in seconds since the execution's start, and the controller's response to it.

    Responses are in milliseconds after the fault, `usable_ms` and `returned_ms` after its end: when
    a link was found usable again, and when all pairs used it. `None` if the controller had none.
    """

    fault: str
    begun_s: float
    ended_s: float | None
    detected_ms: float | None = None
    computed_ms: float | None = None
    sent_ms: float | None = None
    confirmed_ms: float | None = None
    usable_ms: float | None = None
    returned_ms: float | None = None


@dataclass(frozen=True)
class Restart:
    """The clock of a job that aborted and began again, in seconds since its first start.

    `back_s` is when the job began again: `restart_time_s` after the abort, unless the fabric, the
    new connections or the machine took longer. `modeled_s` is the model of the second execution.
    """

    aborted_s: float
    back_s: float
    restart_time_s: float
    modeled_s: float

    @property
    def modeled_end_s(self) -> float:
        """When the job should end that aborted at this time."""
        return self.aborted_s + self.restart_time_s + self.modeled_s


@dataclass(frozen=True)
class DuringFault:
    """The execution during the fault and, if the job began again, the second execution.

    `restart` is `None` if the job did not begin again; a job that `aborts` must. With `check_data`,
    the agents checked the results meanwhile, and times are not judged.
    """

    executions: tuple[Repeat, ...]
    fidelity: Fidelity
    times: tuple[FaultTimes, ...]
    limits: Thresholds
    restart: Restart | None = None
    check_data: bool = False
    aborts: bool = False

    @property
    def seconds(self) -> float | None:
        """Emulated seconds from the first start to the last end; `None` without a whole one."""
        first, last = self.executions[0], self.executions[-1]
        return (last.end_ns - first.start_ns) / 1e9 if last.complete else None

    @property
    def data_is_right(self) -> bool | None:
        """Whether the data of all complete executions is right; `None` if not checked."""
        if not self.check_data:
            return None
        wrong = any(done.errors for done in self.executions if done.complete)
        return self.executions[-1].complete and not wrong

    @property
    def reasons(self) -> Iterator[Reason]:
        """Judge every execution: complete and right; after a restart, within the modeled time.

        The time of an execution that met a fault, and went on, is judged by its replay.
        """
        if self.aborts and len(self.executions) < 2:
            why = "the controller did not detect the fault"
            if any(fault.detected_ms is not None for fault in self.times):
                why = (
                    "its execution ended before the controller detected the fault; start it earlier"
                )
            yield Verdict.FAIL, f"the job never aborted: {why}"
        if not self.executions[-1].complete:
            which = "in which it happened" if self.restart is None else "after the restart"
            why = causes(self.executions[-1])
            yield Verdict.FAIL, f"the execution {which} did not complete{why}"
        for execution in self.executions:
            yield from data_reasons(execution)
        # A link flaps on; its first failure counts.
        begun_s = {fault.fault: fault.begun_s for fault in reversed(self.times)}
        for fault, moment_s in begun_s.items():
            if self.seconds is not None and moment_s > self.seconds:
                what = f"{fault} began at {moment_s:.3f} s, after the execution ended"
                yield Verdict.WARN, f"{what}; start it earlier, or send more"
        if self.restart and self.seconds and not self.check_data:
            took_s = self.restart.back_s - self.restart.aborted_s
            if took_s > (wanted_s := self.restart.restart_time_s) + LATE_S:
                what = f"the job resumed {took_s:.3f} s after the abort, not {wanted_s:g} s"
                yield Verdict.WARN, what
            yield from ratio_reasons(self.seconds, self.restart.modeled_end_s, self.limits)
        yield from with_verdict(self.fidelity)


@dataclass(frozen=True)
class Probes:
    """Probed pairs: those that the fault affects, and unaffected ones, which may lose no probe.

    Affected pairs are probed throughout the execution during the fault, unaffected pairs in all
    phases. `skipped` has for each prober the share of ticks that it skipped because it was late.
    `blackout_ms` is the longest blackout of the affected pairs that have another path; infinity if
    no end of it was seen, `None` if there are no such pairs. `possible_ms` is an upper bound of it:
    a late prober leaves times unprobed.
    """

    affected_pairs: int
    unaffected_pairs: int
    sent_unaffected: int
    lost_unaffected: int
    skipped: tuple[float, ...]
    blackout_ms: float | None
    blackout_limit_ms: float | None
    possible_ms: float


@dataclass(frozen=True)
class FaultImpact:
    """The phases of a case with a fault, and its probes.

    Phases that this fault does not have are `None`. `replay` compares the execution during the
    fault with a model that is told when the paths of that very execution changed: it is not a
    prediction.
    """

    baseline: CaseResult
    during: DuringFault
    degraded: CaseResult | None
    recovered: CaseResult | None
    probes: Probes
    replay: CaseResult | None = None

    @property
    def phases(self) -> dict[str, CaseResult | DuringFault]:
        """The phases that this fault has, by name."""
        phases = (self.baseline, self.during, self.degraded, self.recovered)
        return {name: phase for name, phase in zip(PHASES, phases, strict=True) if phase}

    @property
    def judgement(self) -> Judgement:
        """The verdict, with the reasons and notes of all phases."""
        return Judgement.of(self._reasons())

    def _reasons(self) -> Iterator[Reason]:
        yield from _probe_reasons(self.probes)
        yield from with_verdict(self.baseline, "baseline: ")
        for verdict, reason in self.during.reasons:
            yield verdict, f"during fault: {reason}"
        phases = {"degraded": self.degraded, "replay": self.replay, "recovered": self.recovered}
        for phase, result in phases.items():
            if result is not None:
                yield from with_verdict(result, f"{phase}: ")
        blackout_ms = self.probes.blackout_ms or 0.0
        if self.replay and self.replay.verdict is not Verdict.PASS and 0 < blackout_ms < inf:
            what = f"knows no losses, as of the blackout of {blackout_ms:.0f} ms"
            yield Verdict.PASS, f"replay: {what}"


def _probe_reasons(probes: Probes) -> Iterator[Reason]:
    if probes.lost_unaffected:
        counts = f"{probes.lost_unaffected} of {probes.sent_unaffected}"
        yield Verdict.FAIL, f"{counts} probes of unaffected pairs were lost"
    if (skipped := max(probes.skipped, default=0.0)) > SKIPPED_ABOVE:
        what = f"the prober was late and skipped {skipped:.1%} of its probes"
        yield Verdict.WARN, f"{what}: it may have missed a blackout"
    limit, blackout_ms = probes.blackout_limit_ms, probes.blackout_ms
    if blackout_ms == inf:
        yield Verdict.FAIL, "a pair with another path was not reached again"
    elif limit is not None and blackout_ms is not None and blackout_ms > limit:
        yield Verdict.FAIL, f"a blackout of {blackout_ms:.0f} ms, more than {limit:g} ms"
    elif limit is not None and probes.possible_ms > limit:
        what = f"a blackout of up to {probes.possible_ms:.1f} ms is possible"
        why = "the prober was late and sent nothing"
        yield Verdict.WARN, f"{what}, more than {limit:g} ms: {why}"


@dataclass(frozen=True)
class FaultResult:
    """A failure experiment. One that ended early fails, with the cause, and nothing else.

    Times are emulated seconds; those of a phase that the experiment does not have are `None`.
    `work` is that of the baseline; `data_is_right` is `None` if the results were not checked.
    `disturbed_counted` names the phases whose disturbed executions are among the measured ones.
    """

    scenario: str
    case: str | None = None
    fault: str | None = None
    where: str | None = None
    fabric: str | None = None
    strategy: str | None = None
    work: Work | None = None
    blackout_ms: float | None = None
    baseline_s: float | None = None
    modeled_baseline_s: float | None = None
    during_fault_s: float | None = None
    aborted_s: float | None = None
    back_s: float | None = None
    modeled_during_fault_s: float | None = None
    degraded_s: float | None = None
    modeled_degraded_s: float | None = None
    ratio: float | None = None
    incomplete: bool = field(default=False, metadata=OPTIONAL)
    disturbed_counted: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    modeled_replay_s: float | None = None
    replay_ratio: float | None = None
    replay_verdict: Verdict | None = None
    recovered_s: float | None = None
    probed_pairs: int | None = None
    unaffected_pairs: int | None = None
    probes_unaffected: int | None = None
    lost_probes_unaffected: int | None = None
    skipped: float | None = None
    data_is_right: bool | None = None
    times: tuple[FaultTimes, ...] = ()
    verdict: Verdict = Verdict.FAIL
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    doubts: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    fidelity: Mapping[str, Fidelity] = field(default_factory=dict)


def lost_experiment(scenario: str, cause: str) -> dict[str, Any]:
    """Return the JSON object of an experiment that ended early."""
    return plain(FaultResult(scenario, reasons=(cause,)))


def fault_result(impact: FaultImpact, **named: Any) -> FaultResult:
    """Return the result of an experiment that ended; it is `named` by scenario, case and fault."""
    probes, during = impact.probes, impact.during
    degraded, recovered, replay = impact.degraded, impact.recovered, impact.replay
    restart, phases = during.restart, impact.phases
    cases = {name: one for name, one in phases.items() if isinstance(one, CaseResult)}
    is_checked = during.data_is_right is not None
    return FaultResult(
        **named,
        work=impact.baseline.work,
        blackout_ms=probes.blackout_ms,
        baseline_s=impact.baseline.measured_s.median,
        modeled_baseline_s=impact.baseline.modeled_s,
        during_fault_s=during.seconds,
        aborted_s=restart.aborted_s if restart else None,
        back_s=restart.back_s if restart else None,
        modeled_during_fault_s=restart.modeled_end_s if restart else None,
        degraded_s=degraded.measured_s.median if degraded else None,
        modeled_degraded_s=degraded.modeled_s if degraded else None,
        ratio=degraded.ratio if degraded else None,
        incomplete=bool(degraded and degraded.incomplete),
        disturbed_counted=tuple(name for name, one in cases.items() if one.disturbed_counted),
        modeled_replay_s=replay.modeled_s if replay else None,
        replay_ratio=replay.ratio if replay else None,
        replay_verdict=replay.verdict if replay else None,
        recovered_s=recovered.measured_s.median if recovered else None,
        probed_pairs=probes.affected_pairs,
        unaffected_pairs=probes.unaffected_pairs,
        probes_unaffected=probes.sent_unaffected,
        lost_probes_unaffected=probes.lost_unaffected,
        skipped=max(probes.skipped, default=0.0),
        data_is_right=all(one.data_is_right for one in phases.values()) if is_checked else None,
        times=during.times,
        fidelity={name: phase.fidelity for name, phase in phases.items()},
        **vars(impact.judgement),
    )
