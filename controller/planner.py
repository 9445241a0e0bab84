"""The desired rules of switches and host routes of proxies, and what differs in the installed.

The desired state is a pure function of topology and health: `Routing` (`model.routing.paths`) has
the paths, `EcmpSelection` (`model.routing.ecmp`) selects among those of the same distance. The
state is assembled from parts, one for each GPU or switch and rail. The planner caches the parts:
after a failure, only those whose routing changed are recomputed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from functools import reduce
from ipaddress import IPv4Address, IPv4Network
from itertools import permutations, product
from operator import or_
from typing import Generic, NamedTuple, Protocol, TypeVar

from model.fabric import addressing
from model.fabric.health import Health
from model.fabric.topology import Gpu, Link, LinkKind, Topology, lane_of
from model.routing.ecmp import EcmpSelection, Egress, NextHop, Ports
from model.routing.paths import Routing, bits

# A number, and the bits of a UDP source port that must have it.
UdpSource = tuple[int, int]


@dataclass(frozen=True)
class Rule:
    """An OpenFlow rule: IPv4 packets to `destination` leave by `port`.

    The last switch before a GPU writes `hardware_address` into the Ethernet header. If `port` has
    no link, the switch itself uses `backup` (a fast-failover group). With `in_port`, the rule
    matches only packets that arrive on that port; with `udp_source`, those of UDP whose source port
    has the first number in the bits of the second.
    """

    destination: IPv4Network
    port: int
    hardware_address: str | None = None
    backup: int | None = None
    in_port: int | None = None
    udp_source: UdpSource | None = None

    @property
    def place(self) -> tuple[IPv4Network, int | None, UdpSource | None]:
        """The rule's key, all that it matches: a switch has one rule for each."""
        return self.destination, self.in_port, self.udp_source

    @property
    def matches_all(self) -> bool:
        """Whether it matches all packets to its destination."""
        return self.in_port is None and self.udp_source is None


@dataclass(frozen=True)
class Route:
    """A host route of a proxy: packets to `destination` go to `gateway` over `interface`.

    Without a gateway the destination is unreachable: the proxy reports that to senders.
    """

    destination: IPv4Network
    gateway: IPv4Address | None = None
    interface: str = ""
    source: IPv4Address | None = None

    @property
    def place(self) -> IPv4Network:
        """The route's key, its destination: a proxy has one route for each."""
        return self.destination


@dataclass(frozen=True)
class DesiredState:
    """All rules by switch, all routes by GPU, and the unreachable pairs of GPUs (`cut_off`)."""

    rules: dict[str, frozenset[Rule]]
    routes: dict[str, frozenset[Route]]
    cut_off: tuple[tuple[str, str], ...]


class ForwardingAction(NamedTuple):
    """A rule without its destination."""

    port: int
    hardware_address: str | None
    backup: int | None
    in_port: int | None
    udp_source: UdpSource | None

    def rule(self, destination: IPv4Network) -> Rule:
        """The rule that applies this action to a destination."""
        return Rule(destination, *self)


# Routing of a GPU for a lane: the egress for each set of destination domains (bit d for domain d);
# and the egress to that lane in the own domain, `None` if that is the GPU itself.
HostInputs = tuple[tuple[tuple[Egress, int], ...], Egress | None]
# Routing of a switch for a lane: ports for each set of domains that the switch needs rules for.
SwitchInputs = tuple[tuple[Ports, int], ...]
# By switch and lane: the set of destination domains that the switch needs rules for.
Needs = defaultdict[tuple[str, int], int]

# How a GPU sends: over a peer, by its local rank, or by its own port with this lane; or not at all.
Exit = tuple[int | None, int]

NO_EXIT: Exit = None, 0

# Parts of the rules by switch name, and of the routes by GPU name.
RuleSets = defaultdict[str, list[frozenset[Rule]]]
RouteSets = defaultdict[str, list[frozenset[Route]]]


@dataclass(frozen=True)
class HostPart:
    """Routes of a GPU to a lane; `by_port` has the set of domains that each own port serves."""

    routes: frozenset[Route]
    cut_off: tuple[tuple[str, str], ...]
    by_port: dict[int, int]


@dataclass(frozen=True)
class SwitchPart:
    """Rules of a switch for a lane; `onward` maps next-hop switches to their domains."""

    rules: frozenset[Rule]
    onward: dict[str, int]


class Placed(Protocol):
    """A table entry with its place, such as a rule."""

    @property
    def place(self) -> object:
        """The key of the entry: a table has one entry for each place."""


Entry = TypeVar("Entry", bound=Placed)
Place = TypeVar("Place")
Inputs = TypeVar("Inputs")
Result = TypeVar("Result")


def difference(installed: Set[Entry], desired: Set[Entry]) -> tuple[set[Entry], set[Entry]]:
    """Return entries to add, then those to remove; in the reverse order, packets would be lost.

    An addition replaces the entry at its place, which is not to be removed then.
    """
    additions = set(desired - installed)
    taken = {entry.place for entry in additions}
    return additions, {entry for entry in installed - desired if entry.place not in taken}


class LastResultCache(Generic[Place, Inputs, Result]):
    """A pure function of a place and inputs, which keeps the last result for each place.

    Equal inputs return the same object, so comparing results is fast, too.
    """

    def __init__(self, function: Callable[[Place, Inputs], Result]) -> None:
        self._function = function
        self._last: dict[Place, tuple[Inputs, Result]] = {}

    def __call__(self, place: Place, inputs: Inputs) -> Result:
        """Return the result, from the cache if the inputs are unchanged."""
        last = self._last.get(place)
        if last is None or last[0] != inputs:
            last = self._last[place] = inputs, self._function(place, inputs)
        return last[1]


LastUnion = LastResultCache[str, tuple[frozenset[Entry], ...], frozenset[Entry]]


class Planner:
    """Computes desired states of one topology, and caches the parts of the last one."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._numbers = range(topology.spec.domain_size * topology.spec.lanes)
        self._domains = topology.spec.domains
        self._selection = EcmpSelection(topology)
        self._networks = {
            destination: IPv4Network(addressing.nic_address(destination))
            for gpu in topology.gpus
            for destination in map(gpu.by, range(topology.spec.lanes))
        }
        self._host_part = LastResultCache(self._plan_host)
        self._switch_part = LastResultCache(self._plan_switch)
        self._routes: LastUnion[Route] = LastResultCache(_union)
        self._rules: LastUnion[Rule] = LastResultCache(_union)

    def state(self, health: Health) -> DesiredState:
        """Compute the desired state: host routes, then the rules of switches on their paths."""
        routing = Routing(self.topology, health)
        hosts = {gpu: self._host_parts(routing, gpu) for gpu in self.topology.gpus}
        rules, routes = self._detours(routing)
        for (switch, _), part in self._switch_parts(routing, hosts).items():
            rules[switch].append(part.rules)
        for gpu, parts in hosts.items():
            routes[gpu.name] += [part.routes for part in parts]
        return DesiredState(
            {
                name: self._rules(name, tuple(rules[name]))
                for name in self.topology.openflow_switches
            },
            {
                gpu.name: self._routes(gpu.name, tuple(routes[gpu.name]))
                for gpu in self.topology.gpus
            },
            tuple(pair for parts in hosts.values() for part in parts for pair in part.cut_off),
        )

    # Hosts

    def _host_parts(self, routing: Routing, gpu: Gpu) -> list[HostPart]:
        """The parts of a GPU, one for each lane of a domain."""
        parts = []
        for number in self._numbers:
            peer = self.topology.lane_at.get((gpu.domain, number)) or gpu
            within = None if peer.gpu == gpu else routing.egress(gpu, peer)
            outside = routing.egress_to_lane(gpu, number)
            parts.append(self._host_part((gpu, number), (outside, within)))
        return parts

    def _plan_host(self, place: tuple[Gpu, int], inputs: HostInputs) -> HostPart:
        """Plan one route for all of the lane, and one for each GPU with another egress."""
        gpu, number = place
        dealt = self._deal(gpu, number, inputs)
        if not dealt:
            return HostPart(frozenset(), (), {})
        lane = self._lane(number)
        most = max(dealt, key=lambda chosen: dealt[chosen].bit_count())
        routes = {self._route(gpu, addressing.lane_network(lane), most, lane.lane)}
        for chosen in dealt.keys() - {most}:
            for domain in bits(dealt[chosen]):
                network = self._networks[self.topology.lane_at[domain, number]]
                routes.add(self._route(gpu, network, chosen, lane.lane))
        lost = bits(dealt.get(NO_EXIT, 0)) if not lane.lane else ()
        cut_off = tuple((gpu.name, self.topology.lane_at[domain, number].name) for domain in lost)
        by_port = {port: domains for (rank, port), domains in dealt.items() if rank == gpu.rail}
        return HostPart(frozenset(routes), cut_off, by_port)

    def _deal(self, gpu: Gpu, number: int, inputs: HostInputs) -> dict[Exit, int]:
        """Map each exit to its destination domains, `NO_EXIT` to unreachable ones."""
        outside, within = inputs
        own = 1 << gpu.domain
        sets = [(egress, domains & ~own) for egress, domains in outside]
        dealt: defaultdict[Exit, int] = defaultdict(int)
        for egress, domains in sets if within is None else [*sets, (within, own)]:
            if len(egress.ranks) < 2 and domains:
                dealt[(egress.ranks or (None,))[0], egress.port] |= domains
                continue
            for domain in bits(domains):
                destination = self.topology.lane_at[domain, number]
                chosen = self._selection.egress_gpu(gpu, destination, egress)
                dealt[chosen, egress.port] |= 1 << domain
        return dealt

    def _route(self, gpu: Gpu, destination: IPv4Network, chosen: Exit, lane: int = 0) -> Route:
        """The route by an exit, from the GPU's own address of the lane; unreachable without one."""
        rank, port = chosen
        if rank is None:
            return Route(destination)
        source = self._networks[gpu.by(lane)].network_address
        if rank == gpu.rail:
            interface = self.topology.nic_links(gpu)[port].lower.interface
            return Route(destination, addressing.GATEWAY, interface, source)
        interface = self.topology.link_of(gpu, LinkKind.HB).lower.interface
        gateway = addressing.hb_address(self.topology.gpu_at[gpu.domain, rank])
        return Route(destination, gateway, interface, source)

    def _lane(self, number: int) -> Gpu:
        """The destination that stands for a lane's addresses; its GPU may be missing."""
        rail, lane = divmod(number, self.topology.spec.lanes)
        return Gpu(0, rail).by(lane)

    # Switches

    def _switch_parts(
        self, routing: Routing, hosts: dict[Gpu, list[HostPart]]
    ) -> dict[tuple[str, int], SwitchPart]:
        """Plan the needed rules, and those they require on next hops, until nothing is missing."""
        needs = self._first_needs(routing, hosts)
        planned: Needs = defaultdict(int)
        parts: dict[tuple[str, int], SwitchPart] = {}
        while planned != needs:
            for place in [place for place in needs if needs[place] != planned[place]]:
                planned[place] = needs[place]
                inputs = tuple(routing.ports_to_lane(*place, planned[place]))
                parts[place] = self._switch_part(place, inputs)
                for switch, domains in parts[place].onward.items():
                    needs[switch, place[1]] |= domains
        return parts

    def _first_needs(self, routing: Routing, hosts: dict[Gpu, list[HostPart]]) -> Needs:
        """Needs of rail switches, from their hosts' routes, and of spine switches: all GPUs below.

        So a switch that takes over traffic of another needs no new rules: a spine switch, or one at
        another port of the same GPU.
        """
        needs: Needs = defaultdict(int)
        for gpu, parts in hosts.items():
            switches = [link.upper.node for link in routing.live.own_nics[gpu].values()]
            for number, part in enumerate(parts):
                if domains := reduce(or_, part.by_port.values(), 0):
                    for switch in switches:
                        needs[switch, number] |= domains
        for switch in self.topology.spine_switches:
            for number in self._numbers:
                if below := routing.below(switch, number):
                    needs[switch, number] |= below
        return needs

    def _plan_switch(self, place: tuple[str, int], inputs: SwitchInputs) -> SwitchPart:
        """Choose a forwarding action for each domain, and for each origin where it matters."""
        switch, number = place
        actions: defaultdict[ForwardingAction, int] = defaultdict(int)
        onward: defaultdict[str, int] = defaultdict(int)
        for ports, domains in inputs:
            for some in _dealt(ports, domains):
                gpu = self.topology.lane_at[next(bits(some)), number]
                origins = (None, *self._origins(switch, gpu, ports))
                for origin, entropy in product(origins, range(ports.entropies)):
                    next_hops = self._next_hops(switch, gpu, ports, origin, entropy)
                    actions[self._action(next_hops, origin, entropy)] |= some
                    for (hop,) in next_hops:
                        onward[hop.receiver] |= some
        handed = {name: onward[name] for name in onward.keys() & self.topology.switch_by_name}
        return SwitchPart(frozenset(self._rules_of_lane(number, actions)), handed)

    def _rules_of_lane(self, number: int, actions: dict[ForwardingAction, int]) -> Iterator[Rule]:
        """One rule for each GPU; or one for all of the lane, if most share it, and exceptions."""
        most = max(actions, key=lambda action: actions[action].bit_count(), default=None)
        for action, domains in actions.items():
            of_some = action.hardware_address, action.in_port, action.udp_source
            suits_many = of_some == (None, None, None)  # all packets to many GPUs
            if action is most and suits_many and 2 * domains.bit_count() > self._domains:
                yield action.rule(addressing.lane_network(self._lane(number)))
                continue
            for domain in bits(domains):
                yield action.rule(self._networks[self.topology.lane_at[domain, number]])

    def _origins(self, switch: str, gpu: Gpu, ports: Ports) -> list[Link]:
        """NIC links of the other GPUs, if the ECMP selection depends on the origin; else none."""
        if not ports.by_origin:
            return []
        nics = (link for link in self.topology.links_of(switch) if link.kind is LinkKind.NIC)
        return [link for link in nics if link.lower.node != gpu.name]

    def _next_hops(
        self, switch: str, gpu: Gpu, ports: Ports, origin: Link | None, entropy: int = 0
    ) -> tuple[NextHop, ...]:
        """The selected next hop, and its backup if both are switches (no address rewrite)."""
        came_from = origin.lower.node if origin else ""
        chosen = self._selection.port(switch, gpu, ports, came_from, entropy)
        backup = self._selection.backup(switch, gpu, ports, came_from, entropy)
        next_hops = tuple(next_hop for next_hop in (chosen, backup) if next_hop is not None)
        to_gpu = any(next_hop[0].receiver in self.topology.gpu_by_name for next_hop in next_hops)
        return next_hops[:1] if to_gpu else next_hops

    def _action(
        self, next_hops: tuple[NextHop, ...], origin: Link | None, entropy: int = 0
    ) -> ForwardingAction:
        """The action for an origin and an entropy; that of entropy 0 is also for all others."""
        port, *backup = (hop.link.port_of(hop.sender).number for (hop,) in next_hops)
        link = next_hops[0][0].link
        last = self.topology.gpu_by_name.get(next_hops[0][0].receiver)
        return ForwardingAction(
            port,
            addressing.nic_mac(last.by(lane_of(link))) if last else None,
            backup[0] if backup else None,
            origin.upper.number if origin else None,
            (entropy, self.topology.spec.entropy_mask) if entropy else None,
        )

    # In a domain with a failed HB link, the HB addresses of affected pairs are routed, too.

    def _detours(self, routing: Routing) -> tuple[RuleSets, RouteSets]:
        """The rules and routes for HB addresses, along the paths of all affected pairs."""
        rules: RuleSets = defaultdict(list)
        routes: RouteSets = defaultdict(list)
        for source, destination in self._detoured_pairs(routing):
            address = addressing.hb_address(destination)
            for node, came_from, _ in routing.walk(source, destination):
                gpu = self.topology.gpu_by_name.get(node)
                if gpu is None:
                    for switch, rule in self._detour_rules(routing, node, came_from, destination):
                        rules[switch].append(frozenset({rule}))
                elif not routing.live.share_crossbar(gpu, destination):
                    egress = routing.egress(gpu, destination)
                    chosen = self._selection.egress_gpu(gpu, destination, egress)
                    route = self._route(gpu, IPv4Network(address), (chosen, egress.port))
                    routes[gpu.name].append(frozenset({route}))
        return rules, routes

    def _detoured_pairs(self, routing: Routing) -> Iterator[tuple[Gpu, Gpu]]:
        for domain in range(self._domains):
            gpus = self.topology.domain(domain)
            if all(routing.live.share_crossbar(gpus[0], gpu) for gpu in gpus):
                continue
            for source, destination in permutations(gpus, 2):
                if not routing.live.share_crossbar(source, destination):
                    yield source, destination

    def _detour_rules(
        self, routing: Routing, switch: str, came_from: str, destination: Gpu
    ) -> Iterator[tuple[str, Rule]]:
        """Yield the rule of a switch, and those of all switches behind the ports of its group."""
        ports = routing.ports(switch, destination)
        origins = self._origins(switch, destination, ports)
        origin = next((link for link in origins if link.lower.node == came_from), None)
        next_hops = self._next_hops(switch, destination, ports, origin)
        address = IPv4Network(addressing.hb_address(destination))
        yield switch, self._action(next_hops, origin).rule(address)
        for (hop,) in next_hops:
            if hop.receiver in self.topology.switch_by_name:
                yield from self._detour_rules(routing, hop.receiver, switch, destination)


def _dealt(ports: Ports, domains: int) -> Iterator[int]:
    """Sets of domains with a common next hop: all if there is one port, else each by itself."""
    if len(ports.next_hops) == 1:
        yield domains
    elif ports.next_hops:
        yield from (1 << domain for domain in bits(domains))


def _union(_name: str, parts: tuple[frozenset[Entry], ...]) -> frozenset[Entry]:
    return frozenset().union(*parts)
