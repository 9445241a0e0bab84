"""Every kind of work answers the same questions, whatever it is."""

import numpy as np
import pytest

from scenarios.format.workloads.kinds import KINDS
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.planning.plan import estimate_of, real_task
from scenarios.scenario import Case, Scenario

EXAMPLES = {
    "collective": "quickstart",
    "trace": "traces",
    "iteration": "training-iteration",
    "inference": "inference",
    "jobs": "several-jobs",
}


def cases_of(key: str) -> tuple[Scenario, list[Case]]:
    """A scenario of the library with this kind of workload, and the cases of its tasks."""
    scenario = load(LIBRARY / f"{EXAMPLES[key]}.yaml")
    return scenario, list({case.task: case for case in scenario.cases}.values())[-2:]


def test_every_kind_has_an_example() -> None:
    assert set(EXAMPLES) == {kind.key for kind in KINDS}


@pytest.mark.parametrize("key", EXAMPLES)
def test_a_task_and_its_steps_have_the_same_names(key: str) -> None:
    scenario, cases = cases_of(key)
    for case in cases:
        steps = case.schedule(scenario.spec_of(case.kind))
        assert case.task.name.split("/")[0] == steps.task
        assert case.task.algorithm == steps.algorithm
        assert case.name.startswith(f"{case.kind}/{case.task.name}")
        assert case.task.size_name


@pytest.mark.parametrize("key", EXAMPLES)
def test_transfers_without_a_proof_are_those_of_the_steps(key: str) -> None:
    scenario, cases = cases_of(key)
    for case in cases:
        spec = scenario.spec_of(case.kind)
        steps, sent = case.schedule(spec), case.transfers(spec)
        for one, other in zip(steps.transfers.columns(), sent.columns(), strict=True):
            assert np.array_equal(one, other)


@pytest.mark.parametrize("key", EXAMPLES)
def test_an_estimate_sends_something_in_some_time(key: str) -> None:
    scenario, cases = cases_of(key)
    for case in cases:
        spec = scenario.spec_of(case.kind)
        assert estimate_of(case, spec).completion_s > 0
        assert sum(estimate_of(case, spec).transfers) > 0
        assert real_task(case.task, spec).full_s > 0
        assert case.task.largest_bytes <= case.task.size_bytes
