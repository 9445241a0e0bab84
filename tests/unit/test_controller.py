"""The controller's pure functions, executed by a small multi-switch pipeline."""

from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.planner import Planner, difference
from execution.path_check import rails_of
from model.fabric import addressing
from model.fabric.build import build_topology
from model.fabric.health import HEALTHY, Health
from model.fabric.spec import FabricKind, SpineSelection
from model.fabric.topology import Topology
from model.routing.paths import Routing, Unreachable
from tests.unit.fabrics import (
    by_roce,
    desired_state,
    destinations,
    fabrics_with_failures,
    spec,
    topologies,
)
from tests.unit.pipeline import Pipeline

# Packets to a GPU without its NIC cross spine switches on the way to its peer.
DETOURED = build_topology(spec(FabricKind.RAIL_OPTIMIZED, 4, 2, spines=2))


@settings(deadline=None)
@given(
    fabrics_with_failures(),
    st.integers(1, 5),
    st.sampled_from(SpineSelection),
    st.integers(0, 7),
)
@example((DETOURED, Health(frozenset({"d0g0--rail0"}))), 3, SpineSelection.HASH, 1)
def test_rules_and_routes_give_exactly_the_paths_that_the_model_charges(
    case: tuple[Topology, Health],
    queue_pairs: int,
    selection: SpineSelection,
    entropy: int,
) -> None:
    """Packets of RoCE, by the last bits of their UDP source ports; those without a path are 0."""
    fabric, health = case
    if selection is SpineSelection.SPRAY and fabric.spec.nic.links:
        selection = fabric.spec.nic.spine_selection
    topology = by_roce(fabric, queue_pairs, selection)
    path = entropy & topology.spec.entropy_mask
    path = path if path < topology.spec.entropies else 0
    pipeline, routing = Pipeline(topology, health), Routing(topology, health)
    cut_off = set(pipeline.state.cut_off)
    for source in topology.gpus:
        for destination in destinations(topology):
            if source == destination.gpu or (
                source.domain == destination.domain and destination.lane
            ):
                continue  # within a domain, a GPU has one address
            try:
                # Within a domain, packets are those of TCP.
                by = path if source.domain != destination.domain else 0
                hops = routing.path(source, destination, by)
            except Unreachable:
                assert (source.name, destination.name) in cut_off
                continue
            assert (source.name, destination.name) not in cut_off
            expected = [source.name, *(hop.receiver for hop in hops)]
            assert pipeline.nodes(source, destination, by and 49152 + entropy) == expected


@settings(deadline=None)
@given(fabrics_with_failures(), st.data())
def test_a_planner_that_remembers_says_the_same_as_one_that_begins(
    case: tuple[Topology, Health], data: st.DataObject
) -> None:
    topology, health = case
    planner = Planner(topology)
    links = st.sampled_from([link.name for link in topology.links])
    for _ in range(4):
        state = planner.state(health)
        assert state == desired_state(topology, health)
        changed = data.draw(st.frozensets(links, max_size=3))
        back = data.draw(st.booleans())
        health = Health(changed if back else health.failed ^ changed)


def test_what_a_failure_does_not_change_stays_the_same_object() -> None:
    topology = build_topology(spec(FabricKind.RAIL_OPTIMIZED, 4, 3, 4))
    planner = Planner(topology)
    before = planner.state(HEALTHY)
    after = planner.state(Health(frozenset({"rail1--spine2"})))
    assert all(before.routes[gpu.name] is after.routes[gpu.name] for gpu in topology.gpus)
    changed = {name for name in before.rules if before.rules[name] is not after.rules[name]}
    assert changed == {"rail0", "rail1", "rail2", "spine2"}


@given(topologies())
def test_rail_only_and_pxn_have_no_rule_to_another_rail(topology: Topology) -> None:
    if topology.spec.routed_as is FabricKind.RAIL_ONLY:
        state = desired_state(topology)
        for switch in topology.switches:
            own = [addressing.rail_network(rank) for rank in rails_of(topology, switch.name)]
            for rule in state.rules[switch.name]:
                assert any(rule.destination.subnet_of(network) for network in own)


@given(topologies())
def test_no_two_rules_and_no_two_routes_are_for_the_same(topology: Topology) -> None:
    state = desired_state(topology)
    for rules in state.rules.values():
        assert len({rule.place for rule in rules}) == len(rules)
    for routes in state.routes.values():
        assert len({route.place for route in routes}) == len(routes)


@dataclass(frozen=True)
class Entry:
    place: int
    value: int


tables = st.dictionaries(st.integers(0, 5), st.integers(0, 2)).map(
    lambda values: frozenset(Entry(*item) for item in values.items())
)


@given(tables, tables)
def test_the_difference_makes_the_desired_of_the_installed(
    installed: frozenset[Entry], desired: frozenset[Entry]
) -> None:
    additions, removals = difference(installed, desired)
    table = {entry.place: entry for entry in (*installed, *additions)}
    for entry in removals:
        assert table.pop(entry.place) == entry
    assert set(table.values()) == desired
    assert not additions & installed


def test_spine_switches_need_one_rule_a_rail() -> None:
    topology = build_topology(spec(FabricKind.RAIL_OPTIMIZED, 5, 3, 2))
    assert len(desired_state(topology).rules["spine1"]) == 3
    assert len(desired_state(topology).routes["d0g0"]) == 3 + 2


@pytest.mark.parametrize("kind", [FabricKind.RAIL_ONLY, FabricKind.RAIL_OPTIMIZED])
def test_a_rail_switch_that_takes_over_for_the_other_port_has_the_rules(kind: FabricKind) -> None:
    topology = build_topology(spec(kind, 3, 2, ports=2))
    failed = Health(frozenset(link.name for link in topology.links_of("rail1p0")))
    before, after = desired_state(topology), desired_state(topology, failed)
    for switch in topology.rail_switches:
        assert after.rules[switch] <= before.rules[switch]
    assert before.routes["d0g1"] != after.routes["d0g1"]
