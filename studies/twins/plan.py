"""Plan and measure the twins of the paper's figures; stored points are not run again."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from execution.cases.progress import Listener
from execution.sweep.runner import human_remaining
from model.errors import InputError
from model.sweep import REAL
from results.store.records import reading
from results.store.runs import clock_of, digest_of, read_result, stored_runs
from results.verdicts.verdict import Verdict
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.planning.plan import predicted_profile
from scenarios.scenario import Scenario
from studies.twins.points import Twin

Result = dict[str, Any]
# Seconds until a fabric is up and its links are measured, until a case's idle paths are, and
# between two executions.
FABRIC_S, CASE_S, PAUSE_S = 5.0, 1.0, 0.3
# Phases of a failure experiment: baseline, during fault, degraded, recovered.
PHASES = 4


@dataclass(frozen=True)
class Planned:
    """A twin and its scenario; `stored` is its run, if there is one."""

    twin: Twin
    scenario: Scenario
    stored: Result | None

    @property
    def digest(self) -> str:
        """The digest of its scenario, by which stored runs are found."""
        return digest_of(self.scenario.text)

    @cached_property
    def estimated_s(self) -> float:
        """Estimated duration of its run: modeled times, and the preparations before them."""
        scenario = self.scenario
        executions = scenario.warmup + scenario.repeats.least
        phases = PHASES if scenario.has_faults else 1
        fabrics = len(scenario.cases) if scenario.has_faults else len(scenario.fabrics)
        modeled_s = (
            predicted_profile(case, scenario.spec_of(case.kind)).completion_s
            for case in scenario.cases
        )
        cases_s = (CASE_S + phases * executions * (one + PAUSE_S) for one in modeled_s)
        return fabrics * FABRIC_S + sum(cases_s)


def scenario_of(twin: Twin) -> Scenario:
    """The scenario of a twin, with its changes."""
    return load(LIBRARY / f"{twin.scenario}.yaml", twin.changes)


def planned(twins: Sequence[Twin], store: Path) -> list[Planned]:
    """Plan twins; several may have the same scenario, which runs once.

    A stored run counts if it is complete, its scenario is the same to the letter, and it was
    measured by the real clock on a machine that kept up.
    """
    known, scenarios = dict(_stored(store)), [scenario_of(twin) for twin in twins]
    return [
        Planned(twin, scenario, known.get(digest_of(scenario.text)))
        for twin, scenario in zip(twins, scenarios, strict=True)
    ]


def _stored(store: Path) -> Iterator[tuple[str, Result]]:
    """Yield the scenario's digest and the JSON object of every run that counts, oldest first."""
    for folder in stored_runs(store):
        with suppress(InputError), reading(folder):
            result = read_result(folder)
            if "scenario_digest" in result and clock_of(result) == REAL and _kept_up(result):
                yield result["scenario_digest"], result


def _kept_up(result: Result) -> bool:
    """Whether the fidelity of no case or phase is *fail*, which is judged without the model."""
    of_cases = (case["fidelity"] for case in result["cases"])
    of_phases = (failure["fidelity"].values() for failure in result["failures"])
    return all(judged["verdict"] != Verdict.FAIL for judged in chain(of_cases, *of_phases))


def to_run(plan: Sequence[Planned]) -> dict[str, Planned]:
    """The points that must be run, by digest: one of those with the same scenario."""
    return {point.digest: point for point in plan if point.stored is None}


def measure(
    plan: Sequence[Planned], run: Callable[[Scenario], Result], listener: Listener
) -> list[Result]:
    """Return the JSON object of each point's run: the stored one, or that of a new run."""
    left_s = {digest: point.estimated_s for digest, point in to_run(plan).items()}
    done, points, pace = dict[str, Result](), len(left_s), Pace()
    for point in plan:
        if point.stored is not None:
            listener.step(f"{point.twin.name}: stored as {point.stored['run_id']}")
            done[point.digest] = point.stored
        elif point.digest not in done:
            left = human_remaining(pace.factor * sum(left_s.values()))
            number = points - len(left_s) + 1
            listener.step(f"{point.twin.name}: point {number} of {points} begins; {left}")
            begun_s = time.monotonic()
            done[point.digest] = run(point.scenario)
            pace.add(left_s.pop(point.digest), time.monotonic() - begun_s)
    return [done[point.digest] for point in plan]


@dataclass
class Pace:
    """How much longer points take than estimated: the sums over those that have ended."""

    estimated_s: float = 0.0
    took_s: float = 0.0

    def add(self, estimated_s: float, took_s: float) -> None:
        """Count a point that has ended."""
        self.estimated_s += estimated_s
        self.took_s += took_s

    @property
    def factor(self) -> float:
        """Time taken over estimated time; 1 before a point has ended."""
        return self.took_s / self.estimated_s if self.estimated_s else 1.0
