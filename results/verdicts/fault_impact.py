"""Judge the impact of a fault on a job."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

from model.measurement.records import Repeat
from results.verdicts.fidelity import Fidelity
from results.verdicts.model_comparison import CaseResult, Thresholds, data_reasons, ratio_reasons
from results.verdicts.verdict import Reason, Verdict, worst

# Seconds beyond the job's restart time after which a restart is late.
LATE_S = 0.001
# A prober that skips more than this share of its ticks may have missed a loss.
SKIPPED_ABOVE = 0.01


@dataclass(frozen=True)
class FaultTimes:
    """One fault, in seconds since the execution's start, and the controller's response to it.

    Responses are in milliseconds after the fault; `None` if the controller had none.
    """

    fault: str
    begun_s: float
    ended_s: float | None
    detected_ms: float | None = None
    computed_ms: float | None = None
    sent_ms: float | None = None
    confirmed_ms: float | None = None


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
    def found(self) -> Iterator[Reason]:
        """Judge every execution: complete and right; after a restart, within the modeled time.

        The time of an execution that met a fault, and went on, is judged by its replay.
        """
        if self.aborts and len(self.executions) < 2:
            yield Verdict.FAIL, _no_abort(self.times)
        if not self.executions[-1].complete:
            which = "in which it happened" if self.restart is None else "after the restart"
            yield Verdict.FAIL, f"the execution {which} did not complete"
        for execution in self.executions:
            yield from data_reasons(execution)
        if self.restart and self.seconds and not self.check_data:
            yield from _restart_reasons(self.restart)
            yield from ratio_reasons(self.seconds, self.restart.modeled_end_s, self.limits)
        yield from self.fidelity.found


def _no_abort(times: Iterable[FaultTimes]) -> str:
    """Say why a job that aborts when the controller detects a fault did not."""
    if any(fault.detected_ms is not None for fault in times):
        why = "its execution ended before the controller detected the fault; break it earlier"
    else:
        why = "the controller did not detect the fault"
    return f"the job never aborted: {why}"


def _restart_reasons(restart: Restart) -> Iterator[Reason]:
    took_s = restart.back_s - restart.aborted_s
    if took_s > restart.restart_time_s + LATE_S:
        what = f"the job was back {took_s:.3f} s after the abort, not {restart.restart_time_s:g} s"
        yield Verdict.WARN, what


@dataclass(frozen=True)
class Probes:
    """Probed pairs: those that the fault affects, and unaffected ones, which may lose no probe.

    Affected pairs are probed throughout the execution during the fault, unaffected pairs in all
    phases. `skipped` has
    for each prober the share of ticks that it skipped because it was late. `blackout_ms` is the
    longest blackout of the affected pairs that have another path; infinity if no end of it was
    seen, `None` if there are no such pairs. `possible_ms` is an upper bound of it: a late prober
    leaves times unprobed.
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
    """A case, its fault, the fault's place, the job's recovery strategy, and the phases.

    Phases that this fault does not have are `None`. `replay` compares the execution during the
    fault with a model that is told when the paths of that very execution changed: it is not a
    prediction.
    """

    case: str
    fabric: str
    fault: str
    where: str
    strategy: str
    baseline: CaseResult
    during: DuringFault
    degraded: CaseResult | None
    recovered: CaseResult | None
    probes: Probes
    replay: CaseResult | None = None

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """All findings, each with its verdict."""
        return tuple(self._reasons())

    def _reasons(self) -> Iterator[Reason]:
        yield from _probe_reasons(self.probes)
        yield from _labelled("baseline", self.baseline.found)
        yield from _labelled("during fault", self.during.found)
        phases = {"degraded": self.degraded, "replay": self.replay, "recovered": self.recovered}
        for phase, result in phases.items():
            if result is not None:
                yield from _labelled(phase, result.found)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the findings."""
        return worst(verdict for verdict, _ in self.reasons)


def _probe_reasons(probes: Probes) -> Iterator[Reason]:
    if probes.lost_unaffected:
        counts = f"{probes.lost_unaffected} of {probes.sent_unaffected}"
        yield Verdict.FAIL, f"{counts} probes of unaffected pairs are lost"
    if (skipped := max(probes.skipped, default=0.0)) > SKIPPED_ABOVE:
        yield (
            Verdict.WARN,
            f"the prober was late and skipped {skipped:.1%} of its probes: it may have missed a "
            "blackout",
        )
    limit, blackout_ms = probes.blackout_limit_ms, probes.blackout_ms
    if blackout_ms == inf:
        yield Verdict.FAIL, "a pair that has another path was not reached again"
    elif limit is not None and blackout_ms is not None and blackout_ms > limit:
        yield Verdict.FAIL, f"a blackout of {blackout_ms:.0f} ms, more than {limit:g} ms"
    elif limit is not None and probes.possible_ms > limit:
        yield (
            Verdict.WARN,
            f"a blackout of up to {probes.possible_ms:.1f} ms is possible, more than {limit:g} ms: "
            "the prober was late and sent nothing",
        )


def _labelled(phase: str, found: Iterable[Reason]) -> Iterator[Reason]:
    return ((verdict, f"{phase}: {reason}") for verdict, reason in found)
