"""The interference of several jobs: the time of each together with the others, over that alone."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from results.verdicts.job_times import JobTime
from results.verdicts.model_comparison import CaseResult
from results.verdicts.summary import Both
from results.verdicts.verdict import Verdict, worst


@dataclass(frozen=True)
class Interference:
    """A job among others, against itself alone; `verdict` is the worse one of both cases."""

    case: str
    alone: str
    job: str
    alone_s: Both
    together_s: Both
    verdict: Verdict

    @property
    def slowdown(self) -> Both:
        """The time together over that alone; 1.1 is 10 % slower."""
        alone, together = self.alone_s, self.together_s
        return Both(together.measured / alone.measured, together.modeled / alone.modeled)

    def plain(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {**asdict(self), "interference": asdict(self.slowdown)}


def interferences(cases: Sequence[CaseResult]) -> Iterator[Interference]:
    """Yield the interference of each job that a run has both alone and among others."""
    alone = {
        _same(case, job): (case, job)
        for case in cases
        for job in case.breakdown.jobs
        if _is_one(case)
    }
    for case in cases:
        for job in () if _is_one(case) else case.breakdown.jobs:
            if found := alone.get(_same(case, job)):
                yield _interference(*found, case, job)


def _is_one(case: CaseResult) -> bool:
    return len(case.breakdown.jobs) == 1


def _same(case: CaseResult, job: JobTime) -> object:
    """Return the properties that the same job on the same fabric has in both cases."""
    return case.work.fabric, job.digest


def _interference(
    alone: CaseResult, by_itself: JobTime, case: CaseResult, job: JobTime
) -> Interference:
    return Interference(
        case=case.name,
        alone=alone.name,
        job=job.job,
        alone_s=Both(by_itself.measured.median, by_itself.modeled_s),
        together_s=Both(job.measured.median, job.modeled_s),
        verdict=worst((alone.verdict, case.verdict)),
    )
