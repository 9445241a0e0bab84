"""The result of a run, and its JSON object."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from results.store.runs import SCHEMA
from results.verdicts.case_ratios import (
    Agreement,
    Interference,
    Slowdown,
    agreements,
    interferences,
    slowdowns,
)
from results.verdicts.fault_impact import FaultResult
from results.verdicts.model_comparison import CaseResult
from results.verdicts.record import OPTIONAL, plain
from results.verdicts.verdict import Verdict, worst

Object = Mapping[str, Any]


@dataclass(frozen=True)
class RunResult:
    """What a run measured, and what follows from it; `machine` is the run's environment.

    `scales` lists the values chosen for `auto`: key, value, and reason. `scenario_digest` is that
    of the scenario's file. `paths` and `calibration` are JSON objects already.
    """

    schema: str
    run_id: str
    scenario: str
    scenario_digest: str | None = field(metadata=OPTIONAL)
    verdict: Verdict
    folder: Path
    cases: Sequence[CaseResult]
    failures: Sequence[FaultResult]
    slowdowns: Sequence[Slowdown]
    generators: Sequence[Agreement] = field(metadata=OPTIONAL)
    interference: Sequence[Interference] = field(metadata=OPTIONAL)
    scales: Sequence[Object] = field(metadata=OPTIONAL)
    machine: Object | None = field(metadata=OPTIONAL)
    paths: Object | None = field(metadata=OPTIONAL)
    calibration: Sequence[Object] = field(metadata=OPTIONAL)


def run_object(
    run_id: str,
    scenario: str,
    folder: Path,
    cases: Sequence[CaseResult],
    *,
    failures: Sequence[FaultResult] = (),
    machine: Object | None = None,
    paths: Object | None = None,
    calibration: Sequence[Object] = (),
    scales: Sequence[Object] = (),
    scenario_digest: str | None = None,
) -> dict[str, Any]:
    """Return the object that `run --json` prints and the run folder stores."""
    verdicts = [*(case.verdict for case in cases), *(failure.verdict for failure in failures)]
    result = RunResult(
        schema=SCHEMA,
        run_id=run_id,
        scenario=scenario,
        scenario_digest=scenario_digest,
        verdict=worst([*verdicts, Verdict(paths["verdict"])] if paths else verdicts),
        folder=folder,
        cases=cases,
        failures=failures,
        slowdowns=slowdowns(cases),
        generators=tuple(agreements(cases)),
        interference=tuple(interferences(cases)),
        scales=tuple(scales),
        machine=machine,
        paths=paths,
        calibration=tuple(calibration),
    )
    return plain(result)
