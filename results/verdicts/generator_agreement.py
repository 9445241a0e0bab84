"""Compare the times of other generators with those of the agents, for the same case of a run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from model.workload.generator import Generator
from results.verdicts.model_comparison import CaseResult


@dataclass(frozen=True)
class Agreement:
    """The median completion time of a case, over that of the same case by the agents."""

    case: str
    by_agents: str
    ratio: float


def agreements(cases: Sequence[CaseResult]) -> Iterator[Agreement]:
    """Yield the agreement of each timed case that a run has with both generators."""
    by_agents = {case.name: case for case in cases if case.work.generator is Generator.AGENT}
    for case in cases:
        # The generator is a part of a case's name, unless it is the agents.
        other = by_agents.get(case.name.replace(f"/{case.work.generator}", ""))
        if other is not None and other is not case and case.work.generator.is_timed:
            ratio = case.measured_s / other.measured_s
            yield Agreement(case.name, other.name, ratio)
