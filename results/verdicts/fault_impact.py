"""Judge the impact of a fault on a job."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from results.verdicts.fidelity import Fidelity
from results.verdicts.model_comparison import CaseResult
from results.verdicts.verdict import Verdict, worst


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
class Failure:
    """A case with faults. Phases that this fault does not have are `None`.

    Phases: baseline (`healthy`), during the fault (`struck`), degraded (`faulty`), recovered
    (`after`). `struck_s` is the time of the execution during the fault, including the job's
    recovery; `struck` is its fidelity. `blackout_ms` is the longest blackout of the affected pairs
    that have another path; infinity if no end of it was seen, `None` if there are no such pairs.
    """

    case: str
    fault: str
    where: str
    fabric: str
    reaction: str
    healthy: CaseResult
    struck: Fidelity
    struck_s: float | None
    faulty: CaseResult | None
    after: CaseResult | None
    blackout_ms: float | None
    probed_pairs: int
    lost_probes_untouched: int
    untouched_pairs: int
    times: tuple[FaultTimes, ...]
    blackout_limit_ms: float | None
    struck_complete: bool

    @property
    def reasons(self) -> tuple[tuple[Verdict, str], ...]:
        """All findings, each with its verdict."""
        return tuple(self._reasons())

    def _reasons(self) -> Iterator[tuple[Verdict, str]]:
        if not self.struck_complete:
            yield Verdict.FAIL, "the execution in which it happened did not complete"
        if self.lost_probes_untouched:
            yield (
                Verdict.FAIL,
                f"{self.lost_probes_untouched} probes of pairs that it does not touch are lost",
            )
        limit, blackout_ms = self.blackout_limit_ms, self.blackout_ms
        if blackout_ms == inf:
            yield Verdict.FAIL, "a pair that has another way was not reached again"
        elif limit is not None and blackout_ms is not None and blackout_ms > limit:
            yield Verdict.FAIL, f"a blackout of {blackout_ms:.0f} ms, more than {limit:g} ms"
        for phase, fidelity in (("healthy", self.healthy.fidelity), ("struck", self.struck)):
            for verdict, reason in fidelity.found:
                yield verdict, f"{phase}: {reason}"
        for phase, result in (("faulty", self.faulty), ("after", self.after)):
            for verdict, reason in result.found if result is not None else ():
                yield verdict, f"{phase}: {reason}"

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the findings."""
        return worst(verdict for verdict, _ in self.reasons)
