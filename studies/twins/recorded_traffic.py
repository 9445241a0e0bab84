"""The traffic of an iteration that was executed, from the records of its transfers."""

from pathlib import Path
from typing import Any

import numpy as np

from model.arrays import Ints
from model.errors import InputError, Problem
from model.training.steps import DIMENSIONS, IterationSteps
from model.training.traffic import Flows, Traffic
from results.store.runs import folder_name
from results.store.tables import CASE, TRANSFERS, read_table
from scenarios.load import load_of_run
from scenarios.scenario import Case, Scenario
from traffic_gen.workloads.training_iteration import Iteration


def recorded_traffic(run: Path, case_name: str | None = None) -> tuple[str, Traffic]:
    """Return the name of a run's iteration, and the traffic of its last whole execution.

    Bytes are the real platform's. Raises `InputError` if the run has no such iteration.
    """
    scenario = load_of_run(run)
    case = _iteration(run, scenario, case_name)
    spec = scenario.spec_of(case.kind)
    steps = case.schedule(spec)
    assert isinstance(steps, IterationSteps)
    executions = read_table(run, TRANSFERS)
    sent = _last_whole(executions, case.name, len(steps.transfers))
    if sent is None:
        raise InputError(
            Problem(str(run), f"{case.name} has no complete execution", "run it again")
        )
    # The machine may choose another scale today: the file alone does not tell the run's.
    scale = case.size_scale * steps.transfers.size_bytes.sum() / max(1, sent.sum())
    return case.name, Traffic(spec.gpus, spec.job_size, _flows(steps, sent * scale))


def _iteration(run: Path, scenario: Scenario, name: str | None) -> Case:
    """The case of this name, or the first one that is an iteration."""
    iterations = [case for case in scenario.cases if isinstance(case.task, Iteration)]
    for case in iterations:
        if name in (None, case.name):
            return case
    names = ", ".join(case.name for case in iterations)
    what = "has no training iteration" if name is None else f"unknown iteration {name!r}"
    hint = f"known: {names}" if iterations else "name a run of one"
    raise InputError(Problem(str(run), what, hint))


def _last_whole(records: dict[str, Any], case: str, steps: int) -> "Ints | None":
    """The bytes of each step in the last execution in which every transfer arrived.

    In a run that was cut off, a case has the name of its folder.
    """
    mine = np.isin(records[CASE], (case, folder_name(case)))
    for repeat in np.unique(records["repeat"][mine])[::-1]:
        these = mine & (records["repeat"] == repeat)
        order = np.argsort(records["transfer"][these])
        if these.sum() == steps and (records["arrived_ns"][these] > 0).all():
            return np.asarray(records["size_bytes"][these])[order]
    return None


def _flows(steps: IterationSteps, sent: Any) -> dict[Any, Flows]:
    transfers, flows = steps.transfers, {}
    for number, dimension in enumerate(DIMENSIONS):
        these = steps.dimensions == number
        flows[dimension] = Flows(transfers.source[these], transfers.destination[these], sent[these])
    return flows
