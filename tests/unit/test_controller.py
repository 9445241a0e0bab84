"""The controller's pure functions, executed by a small multi-switch pipeline."""

from ipaddress import IPv4Address
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.desired import DesiredState, Planner, Route, Rule, desired_state
from controller.reconcile import difference
from model import addressing
from model.fabric import FabricKind
from model.health import HEALTHY, Health
from model.routing import Routing, Unreachable
from model.topology import Gpu, Topology, build_topology
from tests.unit.fabrics import fabrics_with_failures, spec, topologies


class Dropped(Exception):
    """A packet ended before its destination."""


class Pipeline:
    """Executes rules and routes packet by packet, with longest-prefix match and dead links."""

    def __init__(self, topology: Topology, health: Health = HEALTHY) -> None:
        self.topology = topology
        self.health = health
        self.state: DesiredState = desired_state(topology, health)

    def nodes(self, source: Gpu, destination: Gpu) -> list[str]:
        """The nodes that a packet visits, from its source to its destination."""
        address = addressing.address_of(destination, source)
        visited, gpu = [source.name], source
        while gpu != destination:
            visited += self._from_gpu(gpu, address)
            assert len(set(visited)) == len(visited), f"a loop: {visited}"
            gpu = self.topology.gpu_by_name[visited[-1]]
        return visited

    def _from_gpu(self, gpu: Gpu, address: IPv4Address) -> list[str]:
        network = addressing.domain_network(gpu.domain)
        on_link = Route(network, address, "hb0")
        routes = self.state.routes[gpu.name] | {on_link}
        route = longest(frozenset(routes), address)
        if route.gateway is None:
            raise Dropped(f"{gpu.name} says that {address} is unreachable")
        if route.interface == "hb0":
            peer = next(g for g in self.topology.gpus if addressing.hb_address(g) == route.gateway)
            return [self._crossed(gpu.name, f"hb{gpu.domain}", peer.name), peer.name]
        leaf = next(k for k in self.topology.links_of(gpu.name) if k.lower.interface == "nic0")
        return self._through_switches(gpu.name, leaf.upper.node, address)

    def _crossed(self, *nodes: str) -> str:
        """The second node, if the links between these nodes are alive."""
        for one, other in pairwise(nodes):
            link = next(k for k in self.topology.links_of(one) if k.other_end(one) == other)
            if not self.health.is_live(link):
                raise Dropped(f"{link.name} is dead")
        return nodes[1]

    def _through_switches(self, before: str, switch: str, address: IPv4Address) -> list[str]:
        visited = [self._crossed(before, switch)]
        while True:
            links = self.topology.links_of(switch)
            came_in = next(k.port_of(switch).number for k in links if k.other_end(switch) == before)
            rule = best_rule(self.state.rules[switch], address, came_in)
            link = next(k for k in links if k.port_of(switch).number == rule.port)
            following = self._crossed(switch, link.other_end(switch))
            visited.append(following)
            if following in self.topology.gpu_by_name:
                gpu = self.topology.gpu_by_name[following]
                assert rule.hardware_address == addressing.nic_mac(gpu)
                return visited
            assert rule.hardware_address is None
            before, switch = switch, following


def longest(entries: frozenset[Route], address: IPv4Address) -> Route:
    """The entry with the longest prefix that holds the address."""
    matching = [entry for entry in entries if address in entry.destination]
    return max(matching, key=lambda entry: entry.destination.prefixlen)


def best_rule(rules: frozenset[Rule], address: IPv4Address, in_port: int) -> Rule:
    """The rule with the highest priority; a tie would be anyone's guess."""
    matching = [
        rule for rule in rules if address in rule.destination and rule.in_port in (None, in_port)
    ]
    if not matching:
        raise Dropped(f"no rule for {address}")
    ranked = sorted(matching, key=lambda r: (r.destination.prefixlen, r.in_port is not None))
    return ranked[-1]


@settings(deadline=None)
@given(fabrics_with_failures())
def test_rules_and_routes_give_exactly_the_paths_that_the_model_charges(
    case: tuple[Topology, Health],
) -> None:
    topology, health = case
    pipeline, routing = Pipeline(topology, health), Routing(topology, health)
    cut_off = set(pipeline.state.cut_off)
    for source in topology.gpus:
        for destination in topology.gpus:
            if source == destination:
                continue
            try:
                hops = routing.path(source, destination)
            except Unreachable:
                assert (source.name, destination.name) in cut_off
                continue
            assert (source.name, destination.name) not in cut_off
            expected = [source.name, *(hop.receiver for hop in hops)]
            assert pipeline.nodes(source, destination) == expected


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
def test_a_rail_only_fabric_has_no_rule_to_another_rail(topology: Topology) -> None:
    if topology.spec.kind is FabricKind.RAIL_ONLY:
        state = desired_state(topology)
        for switch in topology.switches:
            network = addressing.rail_network(switch.rail or 0)
            assert all(rule.destination.subnet_of(network) for rule in state.rules[switch.name])


@given(topologies())
def test_no_two_rules_and_no_two_routes_are_for_the_same(topology: Topology) -> None:
    state = desired_state(topology)
    for rules in state.rules.values():
        assert len({rule.place for rule in rules}) == len(rules)
    for routes in state.routes.values():
        assert len({route.place for route in routes}) == len(routes)


@given(st.frozensets(st.integers()), st.frozensets(st.integers()))
def test_the_difference_makes_the_desired_of_the_installed(
    installed: frozenset[int], desired: frozenset[int]
) -> None:
    change = difference(installed, desired)
    assert (installed | change.additions) - change.removals == desired
    assert not change.additions & installed
    assert not change.removals & desired


def test_spine_switches_need_one_rule_a_rail() -> None:
    topology = build_topology(spec(FabricKind.RAIL_OPTIMIZED, 5, 3, 2))
    assert len(desired_state(topology).rules["spine1"]) == 3
    assert len(desired_state(topology).routes["d0g0"]) == 3 + 2
