"""A trace is replayed on a real fabric: every byte, in its order, in the time that is modeled."""

from pathlib import Path

import pytest

from execution.cases.emulation import Experiment
from model.workload.schedule import Steps
from scenarios.library_files import LIBRARY
from scenarios.load import load
from testbed.nodes.gpu_proxies import ProxyKind
from tests.integration.agreement import agreeing_attempt
from tests.integration.fabrics import fabric_up
from tests.unit.pytorch_files import communication, kernel, kineto

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


def test_a_profile_of_pytorch_is_replayed_as_modeled(tmp_path: Path) -> None:
    """Kernels compute before others communicate, and meanwhile."""
    all_four = "[0, 1, 2, 3]"
    for rank in range(4):
        events = (
            kernel(0, 40),
            communication(40, 30, "all_gather_into_tensor", 2_000_000, ranks=all_four),
            kernel(40, 25),
            communication(70, 10, "allreduce", 1_000_000, ranks=all_four),
        )
        (tmp_path / f"{rank}.pt.trace.json").write_bytes(kineto(rank, *events, ranks=4))
    (tmp_path / "x.yaml").write_text(
        "fabric: {domains: 2, domain_size: 2, platform: dgx-h100, bandwidth_scale: 20000, "
        f"kinds: [rail-only]}}\nworkloads:\n  - {{trace: {tmp_path}, size_scale: 20}}\n"
    )
    scenario = load(tmp_path / "x.yaml")
    (spec,), (case,) = scenario.fabrics, scenario.cases
    with fabric_up(spec, ProxyKind.PROCESS) as fabric:
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
    confirmed = {record.transfer: record.confirmed_ns for record in repeat.records}
    assert repeat.complete
    assert sum(repeat.sent_bytes) == sum(repeat.received_bytes) == steps.transfers.size_bytes.sum()
    for step in steps.transfers:
        here = steps.transfers.destination == step.source
        left = confirmed if step.is_compute else sent
        done = (arrived[number] if here[number] else left[number] for number in step.after)
        assert begun[step.id] >= max(done, default=0)
