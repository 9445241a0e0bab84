"""Routing under failures, against independent searches of the graph."""

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise, permutations, product
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.fabric import addressing
from model.fabric.build import build_topology
from model.fabric.health import Health, without
from model.fabric.spec import COMPARED, FabricKind, Planes
from model.fabric.topology import Gpu, Hop, Link, LinkKind, Topology
from model.routing.paths import (
    GPU_TRANSIT,
    LAST_RESORT,
    UNREACHABLE,
    LiveLinks,
    Routing,
    Unreachable,
)
from tests.unit.fabrics import desired_state, destinations, fabrics_with_failures, spec

Case = tuple[Topology, Health]


def path_or_none(routing: Routing, source: Gpu, destination: Gpu) -> tuple[Hop, ...] | None:
    try:
        return routing.path(source, destination)
    except Unreachable:
        return None


def reached(topology: Topology, health: Health, source: Gpu) -> set[str]:
    """All nodes with a path from `source` over live links.

    It leads through any switch, and through GPUs whose HB link is live.
    """
    found, waiting = {source.name}, [source.name]
    while waiting:
        node = waiting.pop()
        gpu = topology.gpu_by_name.get(node, source)
        if gpu != source and not health.is_live(topology.link_of(gpu, LinkKind.HB)):
            continue
        for link in topology.links_of(node):
            neighbour = link.other_end(node)
            if health.is_live(link) and neighbour not in found:
                found.add(neighbour)
                waiting.append(neighbour)
    return found


@given(fabrics_with_failures())
def test_whoever_has_a_path_is_reached_and_nobody_else(case: Case) -> None:
    topology, health = case
    routing = Routing(topology, health)
    for source in topology.gpus:
        there = reached(topology, health, source)
        for destination in topology.gpus:
            if destination != source:
                has_path = path_or_none(routing, source, destination) is not None
                assert has_path == (destination.name in there)


@given(fabrics_with_failures())
def test_paths_use_live_links_one_after_the_other_and_no_node_twice(case: Case) -> None:
    topology, health = case
    routing = Routing(topology, health)
    for source, destination in permutations(topology.gpus, 2):
        hops = path_or_none(routing, source, destination)
        if hops is not None:
            nodes = [source.name, *(hop.receiver for hop in hops)]
            assert nodes[-1] == destination.name
            assert len(set(nodes)) == len(nodes)
            assert all(before.receiver == hop.sender for before, hop in pairwise(hops))
            assert all(health.is_live(hop.link) for hop in hops)


@given(fabrics_with_failures())
def test_a_pair_whose_path_works_keeps_it(case: Case) -> None:
    topology, health = case
    before, after = Routing(topology), Routing(topology, health)
    for source, destination in permutations(topology.gpus, 2):
        hops = before.path(source, destination)
        # Where GPUs are missing, switches send to transit GPUs; such flows are dealt out anew.
        by_transit = any(
            hop.sender in topology.switch_by_name
            and hop.receiver in topology.gpu_by_name
            and hop.receiver != destination.name
            for hop in hops
        )
        if not by_transit and all(health.is_live(hop.link) for hop in hops):
            assert after.path(source, destination) == hops


@given(fabrics_with_failures())
def test_a_backup_is_another_live_link_that_leads_as_near(case: Case) -> None:
    topology, health = case
    routing = Routing(topology, health)
    for switch, destination in product(topology.openflow_switches, topology.gpus):
        ports = routing.ports(switch, destination)
        next_hop = routing.selection.port(switch, destination, ports)
        backup = routing.selection.backup(switch, destination, ports)
        assert (backup is not None) == (len(ports.next_hops) > 1)
        if next_hop is not None and backup is not None:
            assert backup[0].link != next_hop[0].link
            assert health.is_live(backup[0].link)
            assert backup in ports.next_hops


def require_rules_behind_groups(topology: Topology, health: Health) -> None:
    """Both ports of a group for an HB address lead to nodes that have a rule for it, or to GPUs."""
    rules = desired_state(topology, health).rules
    for switch, each in rules.items():
        behind = {k.port_of(switch).number: k.other_end(switch) for k in topology.links_of(switch)}
        for rule in each:
            if rule.destination.subnet_of(addressing.HB_NETWORK):
                nodes = [behind[port] for port in (rule.port, rule.backup) if port is not None]
                for node in rules.keys() & nodes:
                    assert any(other.destination == rule.destination for other in rules[node])


@given(fabrics_with_failures())
def test_switches_behind_both_ports_of_a_group_have_rules_for_hb_addresses(case: Case) -> None:
    """So packets arrive if a group fails over while no controller is there."""
    require_rules_behind_groups(*case)


def test_a_spine_that_only_a_group_fails_over_to_leads_on_for_hb_addresses() -> None:
    """Its next hop is another lane than that of the spine of all paths, which has lost a link."""
    topology = build_topology(spec(FabricKind.RAIL_OPTIMIZED, 4, 2, 2, ports=2))
    hb = topology.link_of(topology.gpu_at[0, 0], LinkKind.HB).name
    require_rules_behind_groups(topology, without(topology, links=[hb, "rail0p0--spine0"]))


def test_a_lost_nic_of_the_only_domain_has_rules() -> None:
    topology = build_topology(spec(FabricKind.RAIL_OPTIMIZED, 1, 5, 2))
    links = topology.link_of(topology.gpu_at[0, 0], LinkKind.HB).name, "d0g3--rail3"
    require_rules_behind_groups(topology, without(topology, links=links))


def distances(topology: Topology, health: Health, destination: Gpu) -> dict[str, int]:
    """Dijkstra's algorithm over all nodes: a transit GPU costs more than all links together.

    A transit GPU forwards between the HB domain and a NIC link, not between two NIC links. With
    PXN, an uplink costs more than all of that.
    """
    of_kind = {LinkKind.HB_TRUNK: 0}
    if topology.spec.nic.pxn:
        of_kind[LinkKind.UPLINK] = LAST_RESORT
    settled: dict[str, int] = {}
    seen = set[tuple[str, bool]]()
    waiting = [(0, destination.name, False)]
    while waiting:
        cost, node, by_nic = heapq.heappop(waiting)
        is_transit = node in topology.gpu_by_name and node != destination.name
        if (node, by_nic and is_transit) in seen:
            continue
        seen.add((node, by_nic and is_transit))
        settled.setdefault(node, cost)
        for link in topology.links_of(node):
            is_nic = link.kind is LinkKind.NIC
            if health.is_live(link) and not (is_transit and by_nic and is_nic):
                more = GPU_TRANSIT * is_transit + of_kind.get(link.kind, 1)
                heapq.heappush(waiting, (cost + more, link.other_end(node), is_nic))
    return settled


@given(fabrics_with_failures(5, 4))
def test_distances_are_those_of_a_plain_search(case: Case) -> None:
    """Distances are computed for representative domains only; equivalent domains share them.

    HB switches that reach each other are as near: trunks count nothing.
    """
    topology, health = case
    live = LiveLinks(topology, health)
    for destination in topology.gpus:
        if topology.holder(destination) != destination:
            continue  # the NIC that it shares counts as its own
        plain = distances(topology, health, destination)
        found = live.distances_to(destination)
        for switch in topology.openflow_switches:
            assert found.get(switch, UNREACHABLE) == plain.get(switch, UNREACHABLE)
        for gpu, crossbar in live.crossbar.items():
            expected = UNREACHABLE if crossbar is None else plain.get(crossbar, UNREACHABLE)
            assert live.distance_from_crossbar(gpu, destination) == expected


@given(st.data(), st.integers(2, 4), st.integers(1, 4), st.integers(1, 4), st.sampled_from([1, 2]))
def test_pxn_has_the_paths_of_rail_only_and_spines_where_that_has_none(
    data: st.DataObject, y: int, x: int, spines: int, ports: int
) -> None:
    plain = build_topology(spec(FabricKind.RAIL_ONLY, y, x, spines, ports=ports))
    pxn = build_topology(spec(FabricKind.RAIL_OPTIMIZED, y, x, spines, ports=ports, pxn=True))
    links = st.sampled_from([link.name for link in plain.links])
    lost = data.draw(st.lists(links, max_size=6, unique=True))
    by_rails, routing = (Routing(each, without(each, links=lost)) for each in (plain, pxn))
    for source, destination in permutations(plain.gpus, 2):
        expected = by_rails.path_if_any(source, destination)
        hops = routing.path_if_any(source, destination) or ()
        if expected is not None:
            named = [[(hop.link.name, hop.sender) for hop in path] for path in (hops, expected)]
            assert named[0] == named[1]
        elif hops:
            assert LinkKind.UPLINK in {hop.link.kind for hop in hops}


@pytest.mark.parametrize("kind", COMPARED)
def test_domains_that_lack_different_gpus_do_not_share_distances(kind: FabricKind) -> None:
    """All GPUs share the NIC of the first one, so that no link tells which ones are missing."""
    fabric = replace(spec(kind, 3, 4, nics=1), missing=((0, 1), (1, 2), (2, 3)))
    live = LiveLinks(build_topology(fabric), Health())
    assert live.equivalent == [0, 1, 2]
    assert all(live.representative(gpu) == gpu for gpu in live.topology.gpus)


def nic_loads(topology: Topology, health: Health) -> Counter[tuple[Link, str]]:
    """Flows of a direct all-to-all, by all lanes, on each direction of the NIC links."""
    routing = Routing(topology, health)
    loads: Counter[tuple[Link, str]] = Counter()
    for source, destination in product(topology.gpus, destinations(topology)):
        if source.domain != destination.domain:
            hops = routing.path(source, destination)
            loads.update((h.link, h.sender) for h in hops if h.link.kind is LinkKind.NIC)
    return loads


def domain_loads(topology: Topology, health: Health, domain: int) -> tuple[list[int], list[int]]:
    """Flows that each live NIC link of a domain sends, and those that it receives."""
    loads = nic_loads(topology, health)
    links = [link for gpu in topology.domain(domain) for link in topology.nic_links(gpu)]
    live = [link for link in links if health.is_live(link)]
    sent = [loads[link, link.lower.node] for link in live]
    return sent, [loads[link, link.upper.node] for link in live]


def spread(topology: Topology, health: Health, domain: int) -> int:
    """Largest difference in flows between live NIC links of a domain, in either direction."""
    return max(max(each) - min(each) for each in domain_loads(topology, health, domain))


DOMAINS, SIZES = st.integers(2, 6), st.integers(2, 5)


@given(st.sampled_from(COMPARED), st.data(), DOMAINS, SIZES, st.integers(1, 6))
def test_a_lost_rail_is_shared_by_the_others_within_one_flow(
    kind: FabricKind, data: st.DataObject, y: int, x: int, spines: int
) -> None:
    topology = build_topology(spec(kind, y, x, spines))
    rail, domain = data.draw(st.integers(0, x - 1)), data.draw(st.integers(0, y - 1))
    assert spread(topology, without(topology, [f"rail{rail}"]), domain) <= 1


@given(st.sampled_from(COMPARED), st.data(), DOMAINS, SIZES)
def test_a_lost_nic_link_is_shared_by_the_others_of_its_domain_within_one_flow(
    kind: FabricKind, data: st.DataObject, y: int, x: int
) -> None:
    """There are as many spines as domains; fewer spines would be shared less evenly."""
    topology = build_topology(spec(kind, y, x, spines=y))
    lost = data.draw(st.sampled_from(topology.gpus))
    link = topology.link_of(lost, LinkKind.NIC)
    assert spread(topology, without(topology, links=[link.name]), lost.domain) <= 1


@given(DOMAINS, SIZES, st.integers(2, 5), st.integers(0, 3))
def test_the_others_share_the_destinations_of_a_lost_spine_within_one(
    y: int, x: int, spines: int, seed: int
) -> None:
    topology = build_topology(spec(FabricKind.RAIL_OPTIMIZED, y, x, spines, seed))
    lost, *others = topology.spine_switches
    routings = Routing(topology), Routing(topology, without(topology, [lost]))
    for switch in topology.rail_switches:
        rail, moved = topology.switch_by_name[switch].rail, Counter[str]()
        for gpu in (gpu for gpu in topology.gpus if gpu.rail != rail):
            before, after = (routing.next_hop(switch, gpu) for routing in routings)
            if before and after and before[0].receiver == lost:
                moved[after[0].receiver] += 1
        assert max(moved[one] for one in others) <= min(moved[one] for one in others) + 1


def without_nics(topology: Topology, gpus: Iterable[Gpu]) -> Health:
    """The health of a fabric in which these GPUs have lost all their NIC links."""
    return without(topology, links=[k.name for gpu in gpus for k in topology.nic_links(gpu)])


@pytest.mark.parametrize("kind", COMPARED)
@pytest.mark.parametrize(
    ("y", "x", "lost", "busiest"),
    [(2, 8, (1, 7), 11), (2, 8, (0, 1), 11), (4, 4, (1, 3), 24), (6, 4, (0, 2), 40)],
)
def test_several_lost_nics_are_shared_by_the_others_of_their_domain(
    kind: FabricKind, y: int, x: int, lost: tuple[int, ...], busiest: int
) -> None:
    """The busiest carries its even share: (y-1)x flows times x/(x-k), rounded up."""
    topology = build_topology(spec(kind, y, x, spines=y))
    health = without_nics(topology, [topology.gpu_at[0, rail] for rail in lost])
    assert [max(each) for each in domain_loads(topology, health, 0)] == [busiest, busiest]


@given(
    st.sampled_from(COMPARED),
    st.data(),
    DOMAINS,
    st.integers(2, 8),
    st.integers(1, 6),
    st.sampled_from([1, 2]),
    st.sampled_from(Planes),
)
def test_the_busiest_nic_has_at_most_the_flows_of_a_spine_to_a_lane_over_its_even_share(
    kind: FabricKind, data: st.DataObject, y: int, x: int, spines: int, ports: int, planes: Planes
) -> None:
    topology = build_topology(spec(kind, y, x, spines, ports=ports, planes=planes))
    gpus = topology.domain(data.draw(st.integers(0, y - 1)))
    lost = data.draw(st.lists(st.sampled_from(gpus), min_size=1, max_size=x - 1, unique=True))
    health = without_nics(topology, lost)
    of_a_spine = ceil(len(lost) * (y - 1) / spines)
    for each in domain_loads(topology, health, gpus[0].domain):
        assert max(each) <= ceil(sum(each) / len(each)) + of_a_spine
