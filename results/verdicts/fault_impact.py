"""Judge the impact of a fault on a job."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

from results.verdicts.fidelity import Fidelity
from results.verdicts.model_comparison import CaseResult
from results.verdicts.verdict import Reason, Verdict, worst


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
class DuringFault:
    """The execution during the fault; its time, in seconds, includes the job's recovery."""

    seconds: float | None
    complete: bool
    fidelity: Fidelity
    times: tuple[FaultTimes, ...]


@dataclass(frozen=True)
class Probes:
    """Probed pairs that the fault affects, and that it does not, of which no probe may be lost.

    `blackout_ms` is the longest blackout of the affected pairs that have another path; infinity if
    no end of it was seen, `None` if there are no such pairs.
    """

    affected_pairs: int
    unaffected_pairs: int
    lost_unaffected: int
    blackout_ms: float | None
    blackout_limit_ms: float | None


@dataclass(frozen=True)
class FaultImpact:
    """A case, the fault in it and where, what the job does about it, and the phases.

    Phases that this fault does not have are `None`.
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

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """All findings, each with its verdict."""
        return tuple(self._reasons())

    def _reasons(self) -> Iterator[Reason]:
        if not self.during.complete:
            yield Verdict.FAIL, "the execution in which it happened did not complete"
        yield from _probe_reasons(self.probes)
        yield from _labelled("baseline", self.baseline.found)
        yield from _labelled("during fault", self.during.fidelity.found)
        for phase, result in (("degraded", self.degraded), ("recovered", self.recovered)):
            if result is not None:
                yield from _labelled(phase, result.found)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the findings."""
        return worst(verdict for verdict, _ in self.reasons)


def _probe_reasons(probes: Probes) -> Iterator[Reason]:
    if probes.lost_unaffected:
        what = f"{probes.lost_unaffected} probes of unaffected pairs are lost"
        yield Verdict.FAIL, what
    limit, blackout_ms = probes.blackout_limit_ms, probes.blackout_ms
    if blackout_ms == inf:
        yield Verdict.FAIL, "a pair that has another path was not reached again"
    elif limit is not None and blackout_ms is not None and blackout_ms > limit:
        yield Verdict.FAIL, f"a blackout of {blackout_ms:.0f} ms, more than {limit:g} ms"


def _labelled(phase: str, found: Iterable[Reason]) -> Iterator[Reason]:
    return ((verdict, f"{phase}: {reason}") for verdict, reason in found)
