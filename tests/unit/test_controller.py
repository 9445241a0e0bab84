"""The controller's pure functions, executed by a small multi-switch pipeline."""

from ipaddress import IPv4Address
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from controller.desired import Route, Rule, desired_routes, desired_rules
from controller.reconcile import difference
from model import addressing
from model.fabric import FabricKind
from model.routing import path
from model.topology import Gpu, Topology, build_topology
from tests.unit.fabrics import spec, topologies

Entry = TypeVar("Entry", Rule, Route)


class Pipeline:
    """Executes rules and routes packet by packet, with longest-prefix match."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.rules = {name: desired_rules(topology, name) for name in topology.openflow_switches}
        self.routes = {gpu.name: desired_routes(topology, gpu) for gpu in topology.gpus}

    def nodes(self, source: Gpu, destination: Gpu) -> list[str]:
        """The nodes that a packet visits, from its source to where it ends."""
        if source.domain == destination.domain:
            return [source.name, f"hb{source.domain}", destination.name]
        address = addressing.nic_address(destination)
        visited, gpu = [source.name], source
        while gpu != destination:
            steps = self._from_gpu(gpu, address)
            visited += steps
            gpu = self.topology.gpu_by_name[steps[-1]]
        return visited

    def _from_gpu(self, gpu: Gpu, address: IPv4Address) -> list[str]:
        route = longest(self.routes[gpu.name], address)
        if route.interface == "hb0":
            peer = next(g for g in self.topology.gpus if addressing.hb_address(g) == route.gateway)
            return [f"hb{gpu.domain}", peer.name]
        return self._through_switches(f"rail{gpu.rail}", address)

    def _through_switches(self, switch: str, address: IPv4Address) -> list[str]:
        visited = [switch]
        while True:
            rule = longest(self.rules[switch], address)
            link = next(
                k for k in self.topology.links_of(switch) if k.port_of(switch).number == rule.port
            )
            following = link.other_end(switch)
            visited.append(following)
            if following in self.topology.gpu_by_name:
                gpu = self.topology.gpu_by_name[following]
                assert rule.hardware_address == addressing.nic_mac(gpu)
                return visited
            assert rule.hardware_address is None
            switch = following


def longest(entries: frozenset[Entry], address: IPv4Address) -> Entry:
    """The entry with the longest prefix that holds the address."""
    matching = [entry for entry in entries if address in entry.destination]
    return max(matching, key=lambda entry: entry.destination.prefixlen)


@given(topologies(4, 4))
def test_rules_and_routes_give_exactly_the_paths_that_the_model_charges(topology: Topology) -> None:
    pipeline = Pipeline(topology)
    for source in topology.gpus:
        for destination in topology.gpus:
            if source != destination:
                hops = path(topology, source, destination)
                expected = [source.name, *(hop.receiver for hop in hops)]
                assert pipeline.nodes(source, destination) == expected


@given(topologies())
def test_a_rail_only_fabric_has_no_rule_to_another_rail(topology: Topology) -> None:
    if topology.spec.kind is FabricKind.RAIL_ONLY:
        for rail, switch in enumerate(topology.rail_switches):
            network = addressing.rail_network(rail)
            rules = desired_rules(topology, switch)
            assert all(rule.destination.subnet_of(network) for rule in rules)


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
    assert len(desired_rules(topology, "spine1")) == 3
    assert len(desired_routes(topology, topology.gpu(0, 0))) == 3
