"""The result of a run, and its JSON object, with ratios between cases that have the same work.

Rail-only over rail-optimized, another generator over the agents, a job among others over it alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose
from pathlib import Path
from typing import Any

from model.fabric.spec import FabricKind
from model.workload.generator import Generator
from results.store.records import OPTIONAL
from results.store.runs import SCHEMA
from results.verdicts.breakdown import JobTime
from results.verdicts.fault_impact import FaultResult
from results.verdicts.model_comparison import CaseResult
from results.verdicts.summary import MeasuredModeled
from results.verdicts.verdict import Verdict, is_timed, worst

Object = Mapping[str, Any]
# Sizes of the same work, rounded up to whole elements, differ by less than this part.
SAME_SIZE = 0.01


@dataclass(frozen=True)
class Slowdown:
    """A rail-only case against its rail-optimized baseline; 0.1 is 10 % slower."""

    collective: str
    case: str
    baseline: str
    measured: float
    modeled: float


@dataclass(frozen=True)
class Agreement:
    """The median completion time of a case, over that of the same case by the agents."""

    case: str
    by_agents: str
    ratio: float


@dataclass(frozen=True)
class Interference:
    """A job among others, against itself alone; `verdict` is the worse one of both cases.

    `interference` is the time together over that alone; 1.1 is 10 % slower.
    """

    case: str
    alone: str
    job: str
    alone_s: MeasuredModeled
    together_s: MeasuredModeled
    interference: MeasuredModeled
    verdict: Verdict


@dataclass
class RunResult:
    """The object that `run --json` prints and the run folder stores.

    It is what a run measured, and what follows from it. `machine` is the run's environment.
    `scales` lists the values chosen for `auto`: key, value, and reason. `scenario_digest` is that
    of the scenario's file. `paths` and `calibration` are JSON objects already.
    """

    schema: str = field(default=SCHEMA, init=False)
    run_id: str
    scenario: str
    scenario_digest: str | None = field(default=None, kw_only=True, metadata=OPTIONAL)
    verdict: Verdict = field(init=False)
    folder: Path
    cases: Sequence[CaseResult]
    failures: Sequence[FaultResult] = ()
    slowdowns: Sequence[Slowdown] = field(init=False)
    generators: Sequence[Agreement] = field(init=False, metadata=OPTIONAL)
    interference: Sequence[Interference] = field(init=False, metadata=OPTIONAL)
    scales: Sequence[Object] = field(default=(), metadata=OPTIONAL)
    machine: Object | None = field(default=None, metadata=OPTIONAL)
    paths: Object | None = field(default=None, metadata=OPTIONAL)
    calibration: Sequence[Object] = field(default=(), metadata=OPTIONAL)

    def __post_init__(self) -> None:
        """Judge the run, and compare its cases with each other."""
        verdicts = [case.verdict for case in self.cases]
        verdicts += [failure.verdict for failure in self.failures]
        if self.paths:
            verdicts.append(Verdict(self.paths["verdict"]))
        self.verdict = worst(verdicts)
        self.slowdowns = tuple(slowdowns(self.cases))
        self.generators = tuple(agreements(self.cases))
        self.interference = tuple(interferences(self.cases))


def slowdowns(cases: Sequence[CaseResult]) -> Iterator[Slowdown]:
    """Compare each rail-only case with the fastest modeled rail-optimized one of equal work."""
    timed = [case for case in cases if is_timed(vars(case))]
    for case in timed:
        rivals = [other for other in timed if _is_baseline(other, case)]
        # Completion times of request loads are those of arrivals, the same on all fabrics.
        is_load = case.breakdown.inference is not None
        if rivals and not is_load and case.work.fabric.kind is FabricKind.RAIL_ONLY:
            baseline = min(rivals, key=lambda rival: rival.modeled_s)
            yield Slowdown(
                collective=case.work.collective,
                case=case.case,
                baseline=baseline.case,
                measured=case.measured_s.median / baseline.measured_s.median - 1,
                modeled=case.modeled_s / baseline.modeled_s - 1,
            )


def _is_baseline(other: CaseResult, case: CaseResult) -> bool:
    return (
        other.work.fabric.kind is FabricKind.RAIL_OPTIMIZED
        and other.work.collective == case.work.collective
        # The algorithm of other work than a collective names the work.
        and (case.algbw_gbyte_per_s is not None or other.work.algorithm == case.work.algorithm)
        and other.work.generator is case.work.generator
        and other.work.variant == case.work.variant
        # Each algorithm rounds up to whole elements of each of its slices.
        and isclose(other.work.bytes, case.work.bytes, rel_tol=SAME_SIZE)
    )


def agreements(cases: Sequence[CaseResult]) -> Iterator[Agreement]:
    """Yield the agreement of each timed case that a run has with both generators."""
    timed = [case for case in cases if is_timed(vars(case))]
    by_agents = {case.case: case for case in timed if case.work.generator is Generator.AGENT}
    for case in timed:
        # The generator is a part of a case's name, unless it is the agents.
        other = by_agents.get(case.case.replace(f"/{case.work.generator}", ""))
        if other is not None and other is not case:
            ratio = case.measured_s.median / other.measured_s.median
            yield Agreement(case.case, other.case, ratio)


def interferences(cases: Sequence[CaseResult]) -> Iterator[Interference]:
    """Yield the interference of each job that a run has timed both alone and among others."""
    alone, among_others = dict[object, tuple[CaseResult, JobTime]](), []
    for case in (one for one in cases if is_timed(vars(one))):
        jobs = case.breakdown.jobs
        if len(jobs) == 1:
            alone[case.work.fabric, jobs[0].digest] = case, jobs[0]
        else:
            among_others += [(case, job) for job in jobs]
    for case, job in among_others:
        if (case.work.fabric, job.digest) in alone:
            other, by_itself = alone[case.work.fabric, job.digest]
            alone_s = MeasuredModeled(by_itself.measured_s.median, by_itself.modeled_s)
            together_s = MeasuredModeled(job.measured_s.median, job.modeled_s)
            slower = MeasuredModeled(
                together_s.measured / alone_s.measured, together_s.modeled / alone_s.modeled
            )
            verdict = worst((other.verdict, case.verdict))
            yield Interference(case.case, other.case, job.job, alone_s, together_s, slower, verdict)
