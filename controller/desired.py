"""What should be installed: rules on the switches and host routes of the proxies.

A pure function of topology and health, derived from `model.routing.Routing` alone.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network

from model import addressing
from model.health import HEALTHY, Health
from model.routing import Routing, Step, bits
from model.topology import Gpu, LinkKind, NodeKind, Topology


@dataclass(frozen=True)
class Rule:
    """An OpenFlow rule: IPv4 packets to `destination` leave by `port`.

    `hardware_address` is what the last switch before a GPU writes into the Ethernet header.
    When `port` has no link, the switch takes `backup` by itself (a fast-failover group). With
    `in_port`, the rule is for what came in there alone.
    """

    destination: IPv4Network
    port: int
    hardware_address: str | None = None
    backup: int | None = None
    in_port: int | None = None

    @property
    def place(self) -> tuple[IPv4Network, int | None]:
        """What a rule is for: a switch has one rule for each place."""
        return self.destination, self.in_port


@dataclass(frozen=True)
class Route:
    """A host route of a proxy: packets to `destination` go to `gateway` over `interface`.

    Without a gateway the destination is cut off: the proxy says so to whoever sends.
    """

    destination: IPv4Network
    gateway: IPv4Address | None = None
    interface: str = ""
    source: IPv4Address | None = None

    @property
    def place(self) -> IPv4Network:
        """What a route is for: a proxy has one route for each place."""
        return self.destination


@dataclass(frozen=True)
class DesiredState:
    """All rules by switch, all routes by GPU, and the pairs of GPUs that have no way."""

    rules: dict[str, frozenset[Rule]]
    routes: dict[str, frozenset[Route]]
    cut_off: tuple[tuple[str, str], ...]


def desired_state(topology: Topology, health: Health = HEALTHY) -> DesiredState:
    """What should be installed on a fabric of this health."""
    return _Plan(Routing(topology, health)).state()


# For every switch and rail: the domains whose GPUs it has to know, bit d for domain d.
Needs = defaultdict[tuple[str, int], int]


@dataclass
class _Plan:
    """The desired state, being worked out: first the hosts, then what they hand to switches."""

    routing: Routing
    rules: defaultdict[str, set[Rule]] = field(default_factory=lambda: defaultdict(set))
    routes: defaultdict[str, set[Route]] = field(default_factory=lambda: defaultdict(set))
    cut_off: list[tuple[str, str]] = field(default_factory=list)
    needs: Needs = field(default_factory=lambda: defaultdict(int))

    @property
    def topology(self) -> Topology:
        """The fabric."""
        return self.routing.topology

    @cached_property
    def _rails(self) -> range:
        return range(self.topology.spec.domain_size)

    def state(self) -> DesiredState:
        """Work it out."""
        for gpu in self.topology.gpus:
            for rail in self._rails:
                self._route_to_rail(gpu, rail, self.routing.steps_to_rail(gpu, rail))
        self._plan_switches()
        self._plan_detours_of_domains()
        return DesiredState(
            {name: frozenset(self.rules[name]) for name in self.topology.openflow_switches},
            {gpu.name: frozenset(self.routes[gpu.name]) for gpu in self.topology.gpus},
            tuple(self.cut_off),
        )

    # Host routes

    def _route_to_rail(self, gpu: Gpu, rail: int, steps: list[tuple[Step | None, int]]) -> None:
        """One route for the whole rail, and one for each GPU that is reached otherwise."""
        most, _ = max(steps, key=lambda item: item[1].bit_count(), default=(None, 0))
        for step, domains in steps:
            self._note_needs(rail, step, domains)
            if step is None:
                to = (self.topology.gpu(domain, rail).name for domain in bits(domains))
                self.cut_off.extend((gpu.name, name) for name in to)
            if step is not most:
                for domain in bits(domains):
                    address = addressing.nic_address(self.topology.gpu(domain, rail))
                    self.routes[gpu.name].add(self._route(gpu, IPv4Network(address), step))
        if steps:
            self.routes[gpu.name].add(self._route(gpu, addressing.rail_network(rail), most))

    def _note_needs(self, rail: int, step: Step | None, domains: int) -> None:
        if step is not None and self.topology.kind_of(step[-1].receiver) is not NodeKind.GPU:
            self.needs[step[-1].receiver, rail] |= domains

    def _route(self, gpu: Gpu, destination: IPv4Network, step: Step | None) -> Route:
        source = addressing.nic_address(gpu)
        if step is None:
            return Route(destination)
        peer = self.topology.gpu_by_name.get(step[-1].receiver)
        gateway = addressing.GATEWAY if peer is None else addressing.hb_address(peer)
        return Route(destination, gateway, step[0].link.lower.interface, source)

    # Rules

    def _plan_switches(self) -> None:
        """Plan what is needed, and what that needs of further switches, until nothing is new."""
        done: Needs = defaultdict(int)
        while self.needs:
            (switch, rail), domains = self.needs.popitem()
            new = domains & ~done[switch, rail]
            done[switch, rail] |= new
            for domain in bits(new):
                self._plan_rule(switch, self.topology.gpu(domain, rail))
        for (switch, rail), domains in done.items():
            self._aggregate(switch, rail, domains)

    def _plan_rule(self, switch: str, gpu: Gpu) -> None:
        address = addressing.nic_address(gpu)
        for came_from in ("", *self._origins(switch, gpu)):
            step = self.routing.step(switch, gpu, came_from)
            backup = self.routing.backup(switch, gpu, came_from) if step else None
            if step is not None:
                self.rules[switch].add(self._rule(address, gpu, step, backup, came_from))
            for onward in (step, backup):
                self._note_needs(gpu.rail, onward, 1 << gpu.domain)

    def _origins(self, switch: str, gpu: Gpu) -> list[str]:
        """The GPUs whose traffic the switch has to tell apart."""
        if not self.routing.spreads_by_origin(switch, gpu):
            return []
        nics = (k for k in self.topology.links_of(switch) if k.kind is LinkKind.NIC)
        return [link.lower.node for link in nics if link.lower.node != gpu.name]

    def _rule(
        self, address: IPv4Address, gpu: Gpu, step: Step, backup: Step | None, came_from: str
    ) -> Rule:
        (hop,) = step
        last = self.topology.gpu_by_name.get(hop.receiver)
        return Rule(
            destination=IPv4Network(address),
            port=hop.link.port_of(hop.sender).number,
            hardware_address=addressing.nic_mac(last) if last else None,
            backup=backup[0].link.port_of(hop.sender).number if backup and not last else None,
            in_port=self._port_from(hop.sender, came_from) if came_from else None,
        )

    def _port_from(self, switch: str, neighbour: str) -> int:
        links = self.topology.links_of(switch)
        return next(k.port_of(switch).number for k in links if k.other_end(switch) == neighbour)

    def _aggregate(self, switch: str, rail: int, domains: int) -> None:
        """One rule for a rail that leaves by one port, if all of the rail is needed or cut off."""
        network = addressing.rail_network(rail)
        if not self._all_known(switch, rail, domains):
            return
        mine = {rule for rule in self.rules[switch] if rule.destination.subnet_of(network)}
        ways = {(rule.port, rule.backup, rule.hardware_address, rule.in_port) for rule in mine}
        if len(ways) == 1 and len(mine) > 1:
            port, backup, hardware_address, in_port = ways.pop()
            if hardware_address is None and in_port is None:
                self.rules[switch] -= mine
                self.rules[switch].add(Rule(network, port, None, backup))

    def _all_known(self, switch: str, rail: int, domains: int) -> bool:
        every = range(self.topology.spec.domains)
        return all(
            domains >> d & 1 or self.routing.step(switch, self.topology.gpu(d, rail)) is None
            for d in every
        )

    # Pairs of a domain whose HB links are not all well: their HB addresses are routed, too.

    def _plan_detours_of_domains(self) -> None:
        for source, destination in self._detoured_pairs():
            address = IPv4Network(addressing.hb_address(destination))
            node, came_from = source.name, ""
            while node != destination.name:
                step = self.routing.step(node, destination, came_from)
                gpu = self.topology.gpu_by_name.get(node)
                if gpu is not None:
                    self._route_hb_address(gpu, address, step, destination)
                elif step is not None:
                    self._rule_hb_address(node, address, step, destination)
                if step is None:
                    break
                node, came_from = step[-1].receiver, step[-1].sender

    def _detoured_pairs(self) -> Iterator[tuple[Gpu, Gpu]]:
        for domain in range(self.topology.spec.domains):
            gpus = [self.topology.gpu(domain, rail) for rail in self._rails]
            hb_links = [self.topology.link_of(gpu, LinkKind.HB) for gpu in gpus]
            if all(self.routing.health.is_live(link) for link in hb_links):
                continue
            for source in gpus:
                for destination in gpus:
                    if source != destination and not self._is_direct(source, destination):
                        yield source, destination

    def _is_direct(self, source: Gpu, destination: Gpu) -> bool:
        step = self.routing.step(source.name, destination)
        return step is not None and step[-1].receiver == destination.name

    def _route_hb_address(
        self, gpu: Gpu, address: IPv4Network, step: Step | None, destination: Gpu
    ) -> None:
        on_link = step is not None and step[-1].receiver == destination.name
        if not (on_link and gpu.domain == destination.domain):
            self.routes[gpu.name].add(self._route(gpu, address, step))

    def _rule_hb_address(
        self, switch: str, address: IPv4Network, step: Step, destination: Gpu
    ) -> None:
        backup = self.routing.backup(switch, destination)
        host = address.network_address
        self.rules[switch].add(self._rule(host, destination, step, backup, ""))
