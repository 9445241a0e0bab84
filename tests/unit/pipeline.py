"""A small multi-switch pipeline that executes rules and host routes packet by packet."""

from ipaddress import IPv4Address

from controller.planner import DesiredState, Route, Rule
from controller.southbound.openflow import priority
from model.fabric import addressing
from model.fabric.health import HEALTHY, Health
from model.fabric.topology import Gpu, LinkKind, Topology, lane_of
from tests.unit.fabrics import desired_state


class Dropped(Exception):
    """A packet was dropped before its destination."""


class Pipeline:
    """Executes rules and routes packet by packet, with longest-prefix match and dead links."""

    def __init__(
        self, topology: Topology, health: Health = HEALTHY, state: DesiredState | None = None
    ) -> None:
        self.topology = topology
        self.health = health
        self.state = state or desired_state(topology, health)

    def nodes(self, source: Gpu, destination: Gpu, udp_source: int = 0) -> list[str]:
        """The nodes that a packet visits, from its source to its destination."""
        self.udp_source = udp_source
        address = addressing.address_of(destination, source)
        visited, gpu = [source.name], source
        while gpu != destination.gpu:
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
            return self._through_hb_switches(gpu, peer)
        links = self.topology.links_of(gpu.name)
        leaf = next(k for k in links if k.lower.interface == route.interface)
        lane = addressing.gpu_at(address).lane
        assert route.source == addressing.nic_address(gpu.by(lane))
        return self._through_switches(gpu.name, leaf.upper.node, address)

    def _through_hb_switches(self, gpu: Gpu, peer: Gpu) -> list[str]:
        """The nodes behind a GPU on the way to its peer, by the ports that bridges know."""
        node = self.topology.link_of(gpu, LinkKind.HB).upper.node
        visited = [self._crossed(gpu.name, node)]
        while node != peer.name:
            ports = self.topology.hb_ports(node)
            port = next(port for port, gpus in ports.items() if peer in gpus)
            link = next(k for k in self.topology.links_of(node) if k.port_of(node) == port)
            node = self._crossed(node, link.other_end(node))
            visited.append(node)
        return visited

    def _crossed(self, one: str, other: str) -> str:
        """Return the second node; raise `Dropped` if the link between both is dead."""
        link = next(k for k in self.topology.links_of(one) if k.other_end(one) == other)
        if not self.health.is_live(link):
            raise Dropped(f"{link.name} is dead")
        return other

    def _through_switches(self, before: str, switch: str, address: IPv4Address) -> list[str]:
        visited = [self._crossed(before, switch)]
        while True:
            links = self.topology.links_of(switch)
            came_in = next(k.port_of(switch).number for k in links if k.other_end(switch) == before)
            rule = best_rule(self.state.rules[switch], address, came_in, self.udp_source)
            link = next(k for k in links if k.port_of(switch).number == rule.port)
            following = self._crossed(switch, link.other_end(switch))
            visited.append(following)
            if following in self.topology.gpu_by_name:
                gpu = self.topology.gpu_by_name[following]
                assert rule.hardware_address == addressing.nic_mac(gpu.by(lane_of(link)))
                return visited
            assert rule.hardware_address is None
            before, switch = switch, following


def longest(entries: frozenset[Route], address: IPv4Address) -> Route:
    """The entry with the longest prefix that holds the address."""
    matching = [entry for entry in entries if address in entry.destination]
    return max(matching, key=lambda entry: entry.destination.prefixlen)


def best_rule(rules: frozenset[Rule], address: IPv4Address, in_port: int, udp_source: int) -> Rule:
    """Return the rule of the highest priority; ties are undefined."""
    matching = [
        rule
        for rule in rules
        if address in rule.destination
        and rule.in_port in (None, in_port)
        and (rule.udp_source is None or udp_source & rule.udp_source[1] == rule.udp_source[0])
    ]
    if not matching:
        raise Dropped(f"no rule for {address}")
    return max(matching, key=priority)
