"""An optical switch moves NIC links of a running fabric, and the controller follows."""

from dataclasses import replace

import pytest

from execution.faults.convergence import wait_until_converged
from execution.faults.fault_timeline import break_component
from model.fabric.spec import COMPARED, FabricKind, FabricSpec, Spares
from model.faults import Component, Fault, FaultMode, health_under, nodes
from model.job.placement import RecoveryStrategy, placement_after
from model.workload.transfers.collective import Collective
from testbed.faults.injector import FaultInjector
from testbed.nodes.gpu_proxies import ProxyKind
from tests.integration.fabrics import fabric_up, small_spec
from traffic_gen.workloads.sized_collective import SizedCollective

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]


@pytest.mark.parametrize("kind", COMPARED)
def test_all_gpus_reach_each_other_by_the_spare_rail_switch(kind: FabricKind) -> None:
    spec = replace(small_spec(kind), spares=Spares(rail_switches=1))
    fault = Fault(Component.RAIL_SWITCH, FaultMode.DOWN, "rail0")
    with fabric_up(spec, ProxyKind.PROCESS) as fabric:
        placement = placement_after(fabric.placement, fault, RecoveryStrategy.SPARE_RAIL_SWITCH, 1)
        optical = FaultInjector(fabric.bed)
        optical.set_cross_connects(fabric.topology, placement.topology, 0.025)
        wait_until_converged(fabric.bed, frozenset())
        fabric.rearrange(placement)
        schedule = SizedCollective(Collective.ALL_TO_ALL, "direct", (2, 2), 40_000).steps()
        prediction = fabric.predict(schedule)
        (repeat,) = fabric.repeats(schedule, prediction, 1, check_data=True)
        counters = fabric.bed.links.read_counters().counters
    assert repeat.complete
    assert not repeat.errors
    assert not {link.name for link in placement.topology.links_of("d0g0")} & {"d0g0--rail0"}
    assert counters["d0g0--rail0"].received_bytes > 0


SPARE_SWITCH = replace(small_spec(FabricKind.RAIL_ONLY), spares=Spares(rail_switches=1))
SPARE_GPU = replace(small_spec(FabricKind.RAIL_ONLY), domain_size=3, spares=Spares(gpus=1))
LOST_SWITCH = SPARE_SWITCH, Component.RAIL_SWITCH, "rail0", RecoveryStrategy.SPARE_RAIL_SWITCH
LOST_GPU = SPARE_GPU, Component.GPU, "d0g0", RecoveryStrategy.SPARE_GPU


@pytest.mark.parametrize(
    ("lost", "mode"),
    [
        (LOST_SWITCH, FaultMode.DOWN),
        (LOST_SWITCH, FaultMode.BLACKHOLE),
        (LOST_SWITCH, FaultMode.KILL),
        (LOST_SWITCH, FaultMode.UPGRADE),
        (LOST_GPU, FaultMode.DOWN),
        (LOST_GPU, FaultMode.BLACKHOLE),
    ],
)
def test_links_leave_a_broken_switch_and_stay_with_a_broken_gpu(
    lost: tuple[FabricSpec, Component, str, RecoveryStrategy], mode: FaultMode
) -> None:
    spec, component, target, strategy = lost
    fault = Fault(component, mode, target)
    with fabric_up(spec, ProxyKind.PROCESS) as fabric:
        injector = FaultInjector(fabric.bed)
        undo = break_component(injector, fabric.topology, fault)
        placement = placement_after(fabric.placement, fault, strategy, 1)
        failed = health_under(placement.topology, [fault]).failed
        broken = nodes(fabric.topology, fault)
        injector.set_cross_connects(fabric.topology, placement.topology, 0.025, broken)
        wait_until_converged(fabric.bed, failed)
        fabric.rearrange(replace(placement, health=health_under(placement.topology, [fault])))
        schedule = SizedCollective(Collective.ALL_TO_ALL, "direct", (2, 2), 40_000).steps()
        (repeat,) = fabric.repeats(schedule, fabric.predict(schedule), 1, check_data=True)
        undo()
    assert repeat.complete
    assert not repeat.errors
