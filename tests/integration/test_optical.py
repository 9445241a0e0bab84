"""An optical switch moves NIC links of a running fabric, and the controller follows."""

from dataclasses import replace

import pytest

from execution.faults.convergence import wait_until_converged
from model.fabric.spec import COMPARED, FabricKind, Spares
from model.faults import Component, Fault, FaultMode
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
