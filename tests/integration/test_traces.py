"""A trace is replayed on a real fabric: every byte, in its order, in the time that is modeled."""

import pytest

from execution.cases.emulation import Experiment
from model.workload.schedule import Steps
from scenarios.library_files import LIBRARY
from scenarios.load import load
from testbed.nodes.gpu_proxies import ProxyKind
from tests.integration.agreement import agreeing_attempt
from tests.integration.fabrics import fabric_up

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

AGREES_WITHIN = 0.05


def test_traces_are_replayed_as_modeled() -> None:
    scenario = load(
        LIBRARY / "traces.yaml", ["fabric.kinds=rail-only", "workloads.1.size_scale=200"]
    )
    (spec,) = scenario.fabrics
    with fabric_up(spec, ProxyKind.PROCESS) as fabric:
        for case in scenario.cases[:2]:
            steps = case.schedule(spec)
            require_replayed(fabric, steps)
        found = agreeing_attempt(fabric, steps, fabric.predict(steps), AGREES_WITHIN)
    assert found.agrees(AGREES_WITHIN), found


def require_replayed(fabric: Experiment, steps: Steps) -> None:
    """Fail unless every byte is delivered, and nothing begins before what it waits for."""
    (repeat,) = fabric.repeats(steps, fabric.predict(steps), 1, check_data=False)
    begun = {record.transfer: record.started_ns for record in repeat.records}
    arrived = {record.transfer: record.arrived_ns for record in repeat.records}
    sent = {record.transfer: record.sent_ns for record in repeat.records}
    assert repeat.complete
    assert sum(repeat.sent_bytes) == sum(repeat.received_bytes) == steps.size_bytes
    for step in steps.transfers:
        here = steps.transfers.destination == step.source
        done = (arrived[number] if here[number] else sent[number] for number in step.after)
        assert begun[step.id] >= max(done, default=0)
