"""The central claim: on an undisturbed machine, the measurement agrees with the model.

Schedule, model and shapers are then each changed by 5 % on purpose, which must be detected. Each
change makes executions longer than modeled, so that noise cannot hide it.
"""

from dataclasses import replace

import pytest

from execution.cases.emulation import Experiment
from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.spec import FabricKind, FabricSpec
from model.faults import FaultMode
from model.prediction.fluid import Prediction, predict
from model.workload.schedule import Schedule
from model.workload.transfers.collective import Collective
from testbed.faults.injector import FaultInjector
from testbed.nodes.gpu_proxies import ProxyKind
from tests.integration.agreement import agreeing_attempt, undisturbed_attempt
from tests.integration.fabrics import fabric_up, slowed_down, small_spec
from traffic_gen.workloads.sized_collective import SizedCollective

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

# An error of 5 % is outside; every measurement on a machine with headroom was inside.
AGREES_WITHIN = 0.03
DOMAINS, SIZE = 3, 3
# About two seconds each at 20 Mbit/s on the NICs.
WORKLOADS = (
    (Collective.ALL_REDUCE, "hierarchical", 9_000_000),
    (Collective.ALL_TO_ALL, "two-step", 5_400_000),
    (Collective.ALL_TO_ALL, "direct", 5_400_000),
)


def full_links(kind: FabricKind) -> FabricSpec:
    return slowed_down(small_spec(kind, DOMAINS, SIZE))


def schedule_of(collective: Collective, algorithm: str, size_bytes: float) -> Schedule:
    return SizedCollective(collective, algorithm, (DOMAINS, SIZE), round(size_bytes)).steps()


@pytest.mark.parametrize(
    ("kind", "workloads"),
    [(FabricKind.RAIL_ONLY, WORKLOADS), (FabricKind.RAIL_OPTIMIZED, WORKLOADS[2:])],
)
def test_measured_agrees_with_modeled(
    kind: FabricKind, workloads: tuple[tuple[Collective, str, int], ...]
) -> None:
    with fabric_up(full_links(kind), ProxyKind.PROCESS) as fabric:
        for workload in workloads:
            schedule = schedule_of(*workload)
            prediction = fabric.predict(schedule)
            found = agreeing_attempt(fabric, schedule, prediction, AGREES_WITHIN)
            assert found.agrees(AGREES_WITHIN), (workload, found)


def turn_shapers_down(fabric: Experiment) -> None:
    """Reduce the rate of every link by 5 %."""
    faults = FaultInjector(fabric.bed)
    for link in fabric.topology.links:
        faults.break_link(link, FaultMode.DEGRADE, link.rate_bps * 95 // 100)


def model_of_faster_links(fabric: Experiment, schedule: Schedule) -> Prediction:
    """Predict a schedule for links that are 5 % faster than those built."""
    spec = fabric.topology.spec
    faster = build_topology(replace(spec, bandwidth_scale=spec.bandwidth_scale / 1.05))
    return predict(schedule, [Epoch(faster)], fabric.path_latencies_s(schedule))


def test_five_percent_of_anything_is_found() -> None:
    workload = WORKLOADS[1]
    schedule = schedule_of(*workload)
    larger = schedule_of(*workload[:2], workload[2] * 1.05)
    with fabric_up(full_links(FabricKind.RAIL_ONLY), ProxyKind.PROCESS) as fabric:
        right = fabric.predict(schedule)
        by_schedule = undisturbed_attempt(fabric, larger, right)
        by_model = undisturbed_attempt(fabric, schedule, model_of_faster_links(fabric, schedule))
        turn_shapers_down(fabric)
        by_shaper = undisturbed_attempt(fabric, schedule, right)
    for found in (by_schedule, by_model, by_shaper):
        assert found.ratio > 1 + AGREES_WITHIN
