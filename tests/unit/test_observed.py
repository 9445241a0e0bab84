"""The observed fabric: failures from ports, probes and processes, and moved NIC links."""

from dataclasses import replace

import pytest

from controller.detection.fabric_state import HOLD_DOWN_S, ObservedFabric
from model.fabric.build import build_topology
from model.fabric.health import HEALTHY
from model.fabric.link_probes import LOST_PROBES
from model.fabric.spec import FabricKind, Spares
from model.fabric.topology import Gpu, LinkKind
from tests.unit.fabrics import spec

# Two rails and a spare rail switch.
SPEC = replace(spec(FabricKind.RAIL_ONLY, 2, 2), spares=Spares(rail_switches=1))
LATER_S = 100.0


@pytest.fixture
def fabric() -> ObservedFabric:
    return ObservedFabric(build_topology(SPEC))


def nic_leads_to(fabric: ObservedFabric, domain: int, rail: int) -> str:
    return fabric.topology.link_of(Gpu(domain, rail), LinkKind.NIC).upper.node


def test_a_port_that_loses_carrier_and_has_it_again(fabric: ObservedFabric) -> None:
    link = "d0g0--rail0"
    assert fabric.port("rail0", "to-d0g0", 1, False, 1) == [{"link": link, "failed": "carrier"}]
    assert fabric.health(1).failed == {link}
    assert fabric.port("rail0", "to-d0g0", 1, False, 1) == []
    assert fabric.port("rail0", "to-d0g0", 1, True, 2) == []
    assert fabric.health(2).failed == {link}
    assert fabric.look(2 + 1.01 * HOLD_DOWN_S) == [{"link": link, "usable": "carrier"}]
    assert fabric.health(3) == HEALTHY


def test_an_uplink_has_a_port_at_either_end() -> None:
    fabric = ObservedFabric(build_topology(spec(FabricKind.RAIL_OPTIMIZED, 2, 2, 2)))
    failed = [{"link": "rail1--spine0", "failed": "carrier"}]
    assert fabric.port("spine0", "spine0-r1", 1, False, 1) == failed
    assert fabric.port("rail1", "rail1-s0", 1, False, 1) == []
    assert fabric.port("spine0", "spine0-r1", 1, True, 2) == []
    assert fabric.health(LATER_S).failed == {"rail1--spine0"}
    fabric.port("rail1", "rail1-s0", 1, True, LATER_S)
    assert fabric.health(2 * LATER_S) == HEALTHY


def test_a_link_that_is_drained_is_not_used_and_not_broken(fabric: ObservedFabric) -> None:
    link = "d0g0--rail0"
    assert fabric.drained("to-d0g0", asked=False) == []
    assert fabric.drained("to-d0g0", asked=True) == [{"link": link, "drained": "operator"}]
    assert fabric.health(1).failed == {link}
    assert fabric.health(1).broken == frozenset()
    fabric.port("rail0", "to-d0g0", 1, False, 2)
    assert fabric.health(2).failed == fabric.health(2).broken == {link}
    fabric.port("rail0", "to-d0g0", 1, True, 3)
    assert fabric.look(LATER_S) == []
    assert fabric.health(LATER_S).broken == frozenset()
    assert fabric.drained("to-d0g0", asked=False) == [{"link": link, "usable": "operator"}]
    assert fabric.health(LATER_S) == HEALTHY


def test_the_end_of_a_drain_shortens_no_hold_down(fabric: ObservedFabric) -> None:
    fabric.drained("to-d0g0", asked=True)
    fabric.port("rail0", "to-d0g0", 1, False, 1)
    fabric.port("rail0", "to-d0g0", 1, True, 2)
    assert fabric.drained("to-d0g0", asked=False) == []
    assert fabric.health(2).broken == {"d0g0--rail0"}
    returned = [{"link": "d0g0--rail0", "usable": "carrier"}]
    assert fabric.look(2 + 1.01 * HOLD_DOWN_S) == returned


def test_ports_of_hb_switches(fabric: ObservedFabric) -> None:
    assert fabric.interface("hb1-g0", False, 1) == [{"link": "d1g0--hb1", "failed": "carrier"}]
    assert fabric.health(1).failed == {"d1g0--hb1"}


def test_interfaces_that_are_none_of_ours_say_nothing(fabric: ObservedFabric) -> None:
    assert fabric.port("rail0", "rail0", 1, False, 1) == []
    assert fabric.interface("hb0", False, 1) == []
    assert fabric.health(1) == HEALTHY


def test_kernel_and_switch_must_both_say_that_a_port_is_up(fabric: ObservedFabric) -> None:
    failed = [{"link": "d0g0--rail0", "failed": "carrier"}]
    assert fabric.interface("to-d0g0", False, 1) == failed
    assert fabric.port("rail0", "to-d0g0", 1, False, 2) == []
    fabric.interface("to-d0g0", True, 3)
    assert fabric.health(LATER_S).failed == {"d0g0--rail0"}
    fabric.port("rail0", "to-d0g0", 1, True, LATER_S)
    assert fabric.health(2 * LATER_S) == HEALTHY


def test_lost_probes_are_a_gray_failure(fabric: ObservedFabric) -> None:
    link = fabric.topology.link_by_name["d0g0--rail0"]
    told = [fabric.probed(link, "rail0", False, 1) for _ in range(LOST_PROBES)]
    assert told == [*[[]] * (LOST_PROBES - 1), [{"link": link.name, "failed": "probes"}]]
    fabric.probed(link, "rail0", True, 2)
    assert fabric.look(LATER_S) == [{"link": link.name, "usable": "carrier"}]


def test_a_dead_gpu_takes_both_its_links_along_for_good(fabric: ObservedFabric) -> None:
    links = {"d1g1--hb1", "d1g1--rail1"}
    assert {facts["link"] for facts in fabric.dead("d1g1", 1)} == links
    fabric.port("rail1", "to-d1g1", 2, True, 2)
    fabric.interface("hb1-g1", True, 2)
    assert fabric.health(LATER_S).failed == links


def test_a_nic_link_that_comes_up_at_a_spare_switch_has_moved_there(
    fabric: ObservedFabric,
) -> None:
    fabric.port("rail0", "to-d0g0", 1, False, 1)
    fabric.port("rail2", "to-d0g0", 1, True, 2)
    assert nic_leads_to(fabric, 0, 0) == "rail2"
    assert nic_leads_to(fabric, 1, 0) == "rail0"
    assert fabric.health(2).failed == {"d0g0--rail2"}
    assert fabric.look(LATER_S) == [{"link": "d0g0--rail2", "usable": "carrier"}]
    assert fabric.topology == build_topology(SPEC, (((2, 0), (1, 0)), ((0, 1), (1, 1))))


def test_probes_that_were_lost_before_a_link_moved_do_not_count_after(
    fabric: ObservedFabric,
) -> None:
    for _ in range(LOST_PROBES):
        fabric.probed(fabric.topology.link_by_name["d0g0--rail0"], "rail0", False, 1)
    fabric.port("rail2", "to-d0g0", 1, True, 2)
    fabric.probed(fabric.topology.link_by_name["d0g0--rail2"], "rail2", True, 3)
    assert fabric.health(LATER_S) == HEALTHY


def test_a_whole_rail_can_move_and_move_back(fabric: ObservedFabric) -> None:
    for domain in range(2):
        fabric.port("rail2", f"to-d{domain}g0", domain + 1, True, 1)
    assert fabric.topology == build_topology(SPEC, (((2, 0), (1, 0)), ((2, 1), (1, 1))))
    for domain in range(2):
        fabric.port("rail0", f"to-d{domain}g0", domain + 1, True, 2)
    assert fabric.topology == build_topology(SPEC)


def test_two_links_of_a_domain_may_change_places(fabric: ObservedFabric) -> None:
    for rail in range(2):
        fabric.port(f"rail{rail}", f"to-d0g{rail}", 1, False, 1)
    fabric.port("rail1", "to-d0g0", 1, True, 2)
    fabric.port("rail0", "to-d0g1", 1, True, 2)
    assert (nic_leads_to(fabric, 0, 0), nic_leads_to(fabric, 0, 1)) == ("rail1", "rail0")
    assert fabric.health(LATER_S) == HEALTHY


def test_links_of_two_domains_may_change_places(fabric: ObservedFabric) -> None:
    for domain in range(2):
        fabric.port("rail0", f"to-d{domain}g0", domain + 1, False, 1)
    fabric.port("rail0", "to-d0g0", 2, True, 2)
    fabric.port("rail0", "to-d1g0", 1, True, 2)
    ports = [fabric.topology.link_of(Gpu(d, 0), LinkKind.NIC).upper.number for d in range(2)]
    assert ports == [2, 1]
    assert fabric.health(LATER_S) == HEALTHY


def test_what_the_former_switch_says_late_is_of_no_account(fabric: ObservedFabric) -> None:
    """Each switch has its own connection: the new switch's notification may come first."""
    fabric.port("rail2", "to-d0g0", 1, True, 1)
    assert fabric.port("rail0", "to-d0g0", 1, False, 2) == []
    assert nic_leads_to(fabric, 0, 0) == "rail2"
    assert fabric.health(LATER_S) == HEALTHY
