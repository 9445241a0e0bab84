"""Generators on a small fabric: the bytes and paths of iperf3 and of crafted packets."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from execution.cases.emulation import Experiment, executions
from execution.cases.observer import carried
from linux.network.namespaces import processes_beside
from model.fabric.health import Health
from model.fabric.spec import FabricKind
from model.measurement.records import Repeat
from model.workload.generator import OVERHEADS, Generator
from model.workload.schedule import Schedule
from model.workload.transfers.collective import Collective
from results.verdicts.byte_conservation import link_reasons, payload_reasons
from results.verdicts.verdict import Reason
from testbed.nodes.gpu_proxies import ProxyKind
from tests.integration.fabrics import fabric_up, small_spec
from tests.machine import untouched
from traffic_gen.workloads.sized_collective import SizedCollective

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def fabric(without_dead_runs: None) -> Iterator[Experiment]:
    """A fabric; tests together leave the machine as it was."""
    with untouched(), fabric_up(small_spec(FabricKind.RAIL_ONLY), ProxyKind.PROCESS) as running:
        yield running


def execute(
    generator: Generator, fabric: Experiment, schedule: Schedule, count: int
) -> tuple[list[Repeat], list[Reason]]:
    """Execute a schedule; return the executions, and what is wrong with the bytes of all links."""
    prediction = fabric.predict(schedule)
    before = fabric.bed.links.read_counters()
    done = list(executions(generator, fabric, schedule, prediction, count))
    found = carried(fabric, before, fabric.bed.links.read_counters())
    placement, overhead = fabric.placement, OVERHEADS[generator]
    wrong = link_reasons(schedule, placement.epoch, placement.gpus, done, found, overhead)
    return done, [*payload_reasons(schedule, done), *wrong]


@pytest.mark.parametrize(
    ("generator", "size_bytes"), [(Generator.IPERF3, 400_000), (Generator.SCAPY, 40_000)]
)
@pytest.mark.parametrize("algorithm", ["two-step", "direct"])
def test_every_byte_of_a_generator_takes_its_path(
    fabric: Experiment, generator: Generator, size_bytes: int, algorithm: str
) -> None:
    schedule = SizedCollective(Collective.ALL_TO_ALL, algorithm, (2, 2), size_bytes).steps()
    done, wrong = execute(generator, fabric, schedule, 2)
    assert wrong == []
    assert [(repeat.complete, repeat.errors) for repeat in done] == [(True, ())] * 2
    for repeat in done:
        arrived = {record.transfer: record.arrived_ns for record in repeat.records}
        for record, transfer in zip(repeat.records, schedule.transfers, strict=True):
            assert 0 < record.sent_ns <= record.arrived_ns
            assert all(arrived[earlier] <= record.started_ns for earlier in transfer.after)


def test_packets_beside_their_intended_path_are_told(fabric: Experiment) -> None:
    schedule = SizedCollective(Collective.ALL_TO_ALL, "direct", (2, 2), 4_000).steps()
    whole = fabric.placement
    broken = Health(failed=frozenset({"d0g0--rail0"}))
    fabric.placement = replace(whole, health=broken)
    try:
        prediction = fabric.predict(schedule)
        (repeat,) = executions(Generator.SCAPY, fabric, schedule, prediction, 1)
    finally:
        fabric.placement = whole
    assert repeat.complete
    assert any("packets from d0g0 to rail0, must be 0" in error for error in repeat.errors)
    assert not repeat.notes


def test_all_of_iperf3_runs_before_the_first_execution_and_ends_after_the_last(
    fabric: Experiment,
) -> None:
    schedule = SizedCollective(Collective.ALL_GATHER, "ring", (2, 2), 8_000).steps()
    prediction = fabric.predict(schedule)
    agents = list(fabric.bed.process_ids.values())
    beside = []
    with closing(executions(Generator.IPERF3, fabric, schedule, prediction, 2)) as repeats:
        for _ in repeats:
            beside.append(processes_beside(agents))
    assert beside[0] == beside[1]
    # A rank of a ring has the client of one pair, and the server of another.
    assert [len(found) for found in beside[0].values()] == [2] * 4
    assert processes_beside(agents) == {agent: [] for agent in agents}
