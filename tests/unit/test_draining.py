"""Drains: which slow links are drained, and that no pair becomes unreachable by it."""

from itertools import permutations
from math import isclose

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from model.fabric.build import build_topology
from model.fabric.health import HEALTHY, Health, without
from model.fabric.spec import COMPARED, FabricKind
from model.fabric.topology import Gpu, Link, LinkKind, Topology
from model.fabric.wiring import Wire
from model.faults import Component, Fault, FaultMode, health_under
from model.routing.drain import drain
from model.routing.paths import LiveLinks, Routing, Unreachable
from tests.unit.fabrics import fabrics_with_failures, spec, wired
from tests.unit.test_update_plan import assert_nobody_is_lost, some_switches

Case = tuple[Topology, Health]
SHARES = st.sampled_from([0.05, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99])


def slowed(topology: Topology, shares: dict[str, float], failed: Health = HEALTHY) -> Health:
    links = topology.link_by_name
    rates = {name: round(share * links[name].rate_bps) for name, share in shares.items()}
    return Health(failed.failed, rates)


@st.composite
def slow_fabrics(draw: st.DrawFn, max_size: int = 4) -> Case:
    """A fabric with some failed links and some slow ones."""
    topology, failed = draw(fabrics_with_failures(4, max_size))
    names = st.sampled_from([link.name for link in topology.links])
    return topology, slowed(topology, draw(st.dictionaries(names, SHARES, max_size=6)), failed)


def tier_of(topology: Topology, health: Health, link: Link) -> list[Link]:
    """Return a link and its alternatives, computed from the topology without `drain`."""
    if link.kind is LinkKind.UPLINK:
        near = topology.links_of(link.lower.node)
        return [other for other in near if other.kind is LinkKind.UPLINK and health.is_live(other)]
    if link.kind is LinkKind.HB_TRUNK:
        return [link]
    crossbar = LiveLinks(topology, health).crossbar
    own = topology.gpu_by_name[link.lower.node]
    if topology.spec.lanes > 1:
        return [nic for nic in topology.nic_links(own) if health.is_live(nic)]
    gpus = [gpu for gpu in topology.domain(own.domain) if crossbar[gpu] == crossbar[own]]
    pairs = [topology.links_of(gpu.name) for gpu in gpus]
    live = [pair for pair in pairs if all(map(health.is_live, pair))]
    return [other for pair in live for other in pair if other.kind is LinkKind.NIC]


def pace(health: Health, links: list[Link]) -> float:
    """Rate of a tier whose links share evenly: number of links times the slowest link's rate."""
    return len(links) * min(health.rates_bps.get(link.name, link.rate_bps) for link in links)


def reaches(topology: Topology, health: Health) -> set[tuple[Gpu, Gpu]]:
    """Return the ordered pairs of GPUs that have a path."""
    routing, found = Routing(topology, health), set()
    for pair in permutations(topology.gpus, 2):
        try:
            routing.path(*pair)
        except Unreachable:
            continue
        found.add(pair)
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("kind", COMPARED)
def test_one_slow_nic_link_is_drained_below_the_share_of_the_others(
    kind: FabricKind, size: int
) -> None:
    topology = build_topology(spec(kind, 2, size, 2))
    link = next(link for link in topology.links if link.kind is LinkKind.NIC)
    for percent in range(5, 100, 5):
        seen = slowed(topology, {link.name: percent / 100})
        worthwhile = size > 1 and percent * size < 100 * (size - 1)
        assert drain(topology, seen).drained == ({link.name} if worthwhile else set()), percent


@pytest.mark.parametrize(
    ("kind", "leaves"), [(FabricKind.RAIL_ONLY, 2), (FabricKind.RAIL_OPTIMIZED, 1)]
)
@pytest.mark.parametrize("spines", [1, 2, 4])
def test_one_slow_uplink_is_drained_below_the_share_of_the_others(
    kind: FabricKind, leaves: int, spines: int
) -> None:
    topology = build_topology(spec(kind, 4, 2, spines, rail_leaves=leaves))
    link = next(link for link in topology.links if link.kind is LinkKind.UPLINK)
    for percent in (10, 49, 51, 74, 76, 98):
        seen = slowed(topology, {link.name: percent / 100})
        worthwhile = spines > 1 and percent * spines < 100 * (spines - 1)
        assert drain(topology, seen).drained == ({link.name} if worthwhile else set()), percent


@pytest.mark.parametrize("kind", COMPARED)
def test_a_link_to_the_only_rail_of_a_peer_is_drained_where_spines_join_the_rails(
    kind: FabricKind,
) -> None:
    topology = build_topology(spec(kind, 2, 3, 2))
    failed = Health(frozenset({"d1g1--rail1", "d1g2--rail2"}))
    seen = slowed(topology, {"d0g0--rail0": 0.1}, failed)
    joined = kind is FabricKind.RAIL_OPTIMIZED
    assert drain(topology, seen).drained == ({"d0g0--rail0"} if joined else set())


@pytest.mark.parametrize("kind", COMPARED)
def test_an_hb_link_is_never_drained(kind: FabricKind) -> None:
    topology = build_topology(spec(kind, 2, 4, 2))
    seen = slowed(topology, {k.name: 0.05 for k in topology.links if k.kind is LinkKind.HB})
    assert drain(topology, seen) == seen


def test_a_link_is_kept_if_all_the_others_are_as_slow() -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 4))
    seen = slowed(topology, {k.name: 0.25 for k in topology.links if k.kind is LinkKind.NIC})
    assert drain(topology, seen) == seen


def test_two_very_slow_links_go_together() -> None:
    """With either link in use, all links run at a quarter; without both, two at full rate."""
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 4))
    names = {"d0g0--rail0", "d0g2--rail2"}
    assert drain(topology, slowed(topology, dict.fromkeys(names, 0.25))).drained == names


def test_only_rails_that_work_are_alternatives() -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 3))
    slow = {"d0g0--rail0": 0.6}
    assert drain(topology, slowed(topology, slow)).drained
    for lost in ("d0g1--hb0", "d0g1--rail1"):
        failed = without(topology, links=[lost])
        assert not drain(topology, slowed(topology, slow, failed)).drained


def test_a_rail_that_the_other_domain_has_lost_is_no_alternative() -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 2))
    seen = slowed(topology, {"d0g0--rail0": 0.05}, without(topology, links=["d1g1--rail1"]))
    assert not drain(topology, seen).drained


def test_a_gpu_without_its_hb_link_needs_its_peers_on_the_rail() -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 3))
    failed = without(topology, links=["d1g0--hb1"])
    assert not drain(topology, slowed(topology, {"d0g0--rail0": 0.05}, failed)).drained
    assert not drain(topology, slowed(topology, {"d1g0--rail0": 0.05}, failed)).drained


def test_the_slowest_tier_goes_first_where_not_all_can() -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 2))
    seen = slowed(topology, {"d0g0--rail0": 0.4, "d1g1--rail1": 0.3})
    assert drain(topology, seen).drained == {"d1g1--rail1"}


def test_a_link_of_two_rail_switches_stays() -> None:
    """Leaf 1 has no other one; leaf 2 has, but its link is in the tier of leaf 0, too."""
    of_gpus = [(gpu, f"leaf{gpu[-1]}") for gpu in spec(FabricKind.RAIL_ONLY, 2, 3).gpu_names]
    ends = [*of_gpus, ("leaf0", "leaf1"), ("leaf0", "leaf2"), ("leaf0", "agg"), ("leaf2", "agg")]
    fabric = wired(spec(FabricKind.RAIL_ONLY, 2, 3), [Wire(*pair, 4 * 10**11) for pair in ends])
    shares = {"leaf0--leaf1": 0.1, "leaf0--leaf2": 0.1}
    topology = build_topology(fabric)
    assert not drain(topology, slowed(topology, shares)).drained


def test_a_link_that_is_still_the_fastest_stays() -> None:
    """Half of the traffic is on a link of 100 Gbit/s anyway."""
    ends = [(f"d{d}g{g}", f"s{g}", (400 - 300 * g) * 10**9) for d in range(3) for g in range(2)]
    fabric = wired(spec(FabricKind.RAIL_ONLY, 3, 2), [Wire(*wire) for wire in ends])
    topology = build_topology(fabric)
    assert not drain(topology, slowed(topology, {"d0g0--s0": 0.375})).drained
    assert drain(topology, slowed(topology, {"d0g0--s0": 0.1})).drained == {"d0g0--s0"}


def test_the_only_way_through_several_tiers_stays() -> None:
    """The other uplink leads to a switch that has none."""
    gpus = [("d0g0", "e0"), ("d1g0", "e0"), ("d2g0", "e1"), ("d3g0", "e1")]
    ends = [*gpus, ("e0", "a0"), ("e0", "a1"), ("e1", "b0"), ("a0", "c0"), ("b0", "c0")]
    fabric = wired(spec(FabricKind.RAIL_ONLY, 4, 1), [Wire(*pair, 4 * 10**11) for pair in ends])
    topology = build_topology(fabric)
    assert not drain(topology, slowed(topology, {"e0--a0": 0.25})).drained


@given(slow_fabrics())
def test_draining_is_never_worse_than_keeping(case: Case) -> None:
    topology, seen = case
    found = drain(topology, seen)
    for name in found.drained:
        link = topology.link_by_name[name]
        # Tiers are independent: compare the rates of a tier with and without its drained links.
        whole, rest = tier_of(topology, seen, link), tier_of(topology, found, link)
        assert link in whole
        assert link.kind not in (LinkKind.HB, LinkKind.HB_TRUNK)
        assert pace(seen, rest) > pace(seen, whole)


@given(slow_fabrics(), st.data())
def test_a_single_slow_link_goes_by_the_two_costs(case: Case, data: st.DataObject) -> None:
    """Draining costs m/(m-1), keeping nominal/rate: a drain is never the dearer choice."""
    topology, seen = case
    assume(seen.rates_bps)
    name = data.draw(st.sampled_from(sorted(seen.rates_bps)))
    assume(name not in seen.failed)
    link = topology.link_by_name[name]
    seen = Health(seen.failed, {name: seen.rates_bps[name]})
    tier = tier_of(topology, seen, link)
    assume(len({other.rate_bps for other in tier}) == 1)
    found, m = drain(topology, seen), len(tier)
    keeping = link.rate_bps / seen.rates_bps[name]
    if found.drained:
        assert m > 1
        assert m / (m - 1) < keeping or isclose(m / (m - 1), keeping)
    assert found.drained <= {name}


@given(slow_fabrics())
def test_nobody_is_cut_off_by_draining(case: Case) -> None:
    topology, seen = case
    assert reaches(topology, drain(topology, seen)) == reaches(topology, seen)


@given(slow_fabrics())
def test_every_slow_link_is_failed_drained_or_kept_at_its_rate(case: Case) -> None:
    topology, seen = case
    found = drain(topology, seen)
    assert found.broken == seen.failed
    assert found.drained == found.failed - seen.failed
    assert found.drained | found.rates_bps.keys() == seen.rates_bps.keys() - seen.failed
    assert all(found.rates_bps[name] == seen.rates_bps[name] for name in found.rates_bps)
    assert drain(topology, Health(found.broken, seen.rates_bps)) == found


@settings(deadline=None)
@given(slow_fabrics(max_size=3), st.data())
def test_nobody_is_lost_while_a_link_is_drained(case: Case, data: st.DataObject) -> None:
    """A drained link still works, so the make-before-break order loses no packet."""
    topology, seen = case
    some = some_switches(topology)
    assert_nobody_is_lost(topology, seen, drain(topology, seen), seen, lambda: data.draw(some))


def test_a_fault_that_slows_a_link_down_is_judged_alike() -> None:
    """The model's health under a degrade fault equals the controller's drain decision."""
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 4))
    link = topology.link_by_name["d0g0--rail0"]
    fault = Fault(Component.NIC_LINK, FaultMode.DEGRADE, link.name, rate_bps=link.rate_bps // 4)
    assert health_under(topology, [fault]) == drain(topology, slowed(topology, {link.name: 0.25}))
    assert health_under(topology, [fault]).drained == {link.name}
