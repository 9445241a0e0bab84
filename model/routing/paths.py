"""Next hops in a fabric of any health: the one path function of the controller and the model.

The controller turns the steps of `Routing` into rules and host routes, the prediction follows them
link by link: forwarding and prediction cannot disagree.

Every step decreases the distance to the destination over live links, so packets arrive without a
loop wherever a path exists. A transit GPU costs more than any number of switches. Among equal-cost
next hops, the selection is even and deterministic.
"""

from collections.abc import Iterator

from model.fabric.health import HEALTHY, Health
from model.fabric.topology import Gpu, Hop, Link, NodeKind, Topology
from model.routing.distances import GPU_TRANSIT, UNREACHABLE, Distances, LiveLinks
from model.routing.ecmp import EcmpSelection, Exits, Ports, Step


class Unreachable(Exception):
    """No path leads from a node to a GPU."""


class Routing:
    """Next hops of all packets in a fabric of a given health."""

    def __init__(self, topology: Topology, health: Health = HEALTHY) -> None:
        self.topology = topology
        self.live = LiveLinks(topology, health)
        self.choice = EcmpSelection(topology)
        self._distances = Distances(self.live)
        self._known_exits: dict[tuple[int, int, Gpu], Exits] = {}
        self._known_exits_to_rail: dict[tuple[int, int, int], tuple[tuple[Exits, int], ...]] = {}
        self._known_uplinks: dict[tuple[str, Gpu], tuple[int, Ports]] = {}

    def path(self, source: Gpu, destination: Gpu) -> tuple[Hop, ...]:
        """Return the hops from `source` to `destination`; raise `Unreachable` without a path."""
        hops: list[Hop] = []
        for _, _, step in self.walk(source, destination):
            if step is None:
                raise Unreachable(f"{source.name} has no way to {destination.name}")
            hops += step
        return tuple(hops)

    def walk(self, source: Gpu, destination: Gpu) -> Iterator[tuple[str, str, Step | None]]:
        """Yield each forwarding node, the node before it and its step, `None` without a path."""
        node, came_from = source.name, ""
        while node != destination.name:
            step = self.step(node, destination, came_from)
            yield node, came_from, step
            if step is None:
                return
            node, came_from = step[-1].receiver, step[-1].sender

    def step(self, node: str, destination: Gpu, came_from: str = "") -> Step | None:
        """Return the next step of a packet at `node`, a GPU or an OpenFlow switch.

        `came_from` is the node before (see `Ports`). `None` if there is no path.
        """
        gpu = self.topology.gpu_by_name.get(node)
        if gpu is None:
            return self.choice.port(node, destination, self.ports(node, destination), came_from)
        chosen = self.choice.exit(gpu, destination, self.exits(gpu, destination))
        return None if chosen is None else self._step_by(gpu, chosen)

    # GPUs

    def exits(self, gpu: Gpu, destination: Gpu) -> Exits:
        """Egress GPUs to `destination`, or the destination if the HB domain reaches it.

        Computed once for domains with the same live links.
        """
        if gpu.domain == destination.domain and self.live.hb[gpu] and self.live.hb[destination]:
            return (destination.rail,)
        key = self.live.alike[gpu.domain], gpu.rail, self.live.representative(destination)
        if key not in self._known_exits:
            self._known_exits[key] = self._nearest_exits(gpu, destination)
        return self._known_exits[key]

    def exits_to_rail(self, gpu: Gpu, rail: int) -> tuple[tuple[Exits, int], ...]:
        """Egress GPUs to a rail's GPUs in other domains, each with the set of destination domains.

        Bit d of a set stands for domain d; the GPU's own domain is in one of the sets, too.
        """
        key = self.live.alike[gpu.domain], gpu.rail, rail
        if key not in self._known_exits_to_rail:
            found: dict[Exits, int] = {}
            for domains in self.live.domains_alike:
                first = self.topology.gpu(next(bits(domains)), rail)
                exits = self._nearest_exits(gpu, first)
                found[exits] = found.get(exits, 0) | domains
            self._known_exits_to_rail[key] = tuple(found.items())
        return self._known_exits_to_rail[key]

    def _nearest_exits(self, gpu: Gpu, destination: Gpu) -> Exits:
        """Nearest egress GPUs: peers over the HB domain, or the GPU itself if it is nearer."""
        own_cost = self._cost_by_nic(gpu, destination)
        costs = {}
        if self.live.hb[gpu] is not None:
            peers = (g for g in self.topology.domain(gpu.domain) if g != gpu and self.live.hb[g])
            costs = {g.rail: 2 + GPU_TRANSIT + self._cost_by_nic(g, destination) for g in peers}
        shortest = min(own_cost, *costs.values(), UNREACHABLE)
        peers_exits = tuple(rail for rail, cost in costs.items() if cost == shortest < UNREACHABLE)
        return peers_exits or ((gpu.rail,) if own_cost < UNREACHABLE else ())

    def _cost_by_nic(self, gpu: Gpu, destination: Gpu) -> int:
        nic = self.live.nic[gpu]
        if nic is None:
            return UNREACHABLE
        return 1 + self._distances.from_openflow_switches(destination).get(
            nic.upper.node, UNREACHABLE
        )

    def _step_by(self, gpu: Gpu, exit_rail: int) -> Step:
        if exit_rail == gpu.rail:
            return (Hop(_working(self.live.nic[gpu]), gpu.name),)
        peer = self.topology.gpu(gpu.domain, exit_rail)
        switch = self.topology.hb_switches[gpu.domain]
        into, out = (_working(self.live.hb[end]) for end in (gpu, peer))
        return Hop(into, gpu.name), Hop(out, switch)

    # Switches

    def ports(self, switch: str, destination: Gpu) -> Ports:
        """Ports down to the destination, or over the uplinks, or down to a transit GPU."""
        if self._ends_at(switch, destination):
            return Ports(((Hop(_working(self.live.nic[destination]), switch),),), (-1,))
        cost, ports = self._ports_up(switch, destination)
        return ports if cost < GPU_TRANSIT else self._with_forwarders(switch, destination)

    def ports_to_rail(self, switch: str, rail: int, domains: int) -> list[tuple[Ports, int]]:
        """Ports to a rail's GPUs in a set of domains, each with the domains that they are for."""
        found: list[tuple[Ports, int]] = []
        for alike in self.live.domains_alike:
            first = self.topology.gpu(next(bits(alike)), rail)
            cost, ports = self._ports_up(switch, first)
            if cost < GPU_TRANSIT and not self._ends_at(switch, first):
                _add(found, ports, alike & domains)
                continue
            for domain in bits(alike & domains):
                found.append((self.ports(switch, self.topology.gpu(domain, rail)), 1 << domain))
        return sorted(found, key=lambda item: item[1] & -item[1])

    def _ends_at(self, switch: str, gpu: Gpu) -> bool:
        nic = self.live.nic[gpu]
        return nic is not None and nic.upper.node == switch

    def below(self, spine_switch: str, rail: int) -> int:
        """Set of domains whose GPU of a rail is two links down from a spine switch."""
        found = 0
        for alike in self.live.domains_alike:
            first = self.topology.gpu(next(bits(alike)), rail)
            if self._distances.from_openflow_switches(first).get(spine_switch) == 2:
                found |= alike
        return found

    def _ports_up(self, switch: str, destination: Gpu) -> tuple[int, Ports]:
        """Nearest uplink ports to `destination`, after the distance over them.

        Computed once for destinations with the same representative.
        """
        key = switch, self.live.representative(destination)
        if key not in self._known_uplinks:
            distances = self._distances.from_openflow_switches(destination)
            costs = [
                (1 + distances.get(hop.receiver, UNREACHABLE), hop)
                for hop in self.live.uplinks[switch]
            ]
            shortest = min((cost for cost, _ in costs), default=UNREACHABLE)
            hops = [hop for cost, hop in costs if cost == shortest < UNREACHABLE]
            self._known_uplinks[key] = shortest, self._ports_over(hops)
        return self._known_uplinks[key]

    def _ports_over(self, hops: list[Hop], by_origin: bool = False) -> Ports:
        spines = (self.topology.switch_by_name.get(hop.receiver) for hop in hops)
        numbers = (
            s.index if s is not None and s.kind is NodeKind.SPINE_SWITCH else -1 for s in spines
        )
        return Ports(tuple((hop,) for hop in hops), tuple(numbers), by_origin)

    def _with_forwarders(self, switch: str, destination: Gpu) -> Ports:
        """Ports on paths that need a transit GPU, at this switch or later."""
        cost_up, up = self._ports_up(switch, destination)
        costs = {
            gpu: 2 + GPU_TRANSIT + self._distances.from_hb_switch(gpu.domain, destination)
            for gpu in self._forwarders(switch, destination)
        }
        shortest = min(cost_up, *costs.values(), UNREACHABLE)
        down = [
            Hop(_working(self.live.nic[gpu]), switch)
            for gpu, cost in costs.items()
            if cost == shortest < UNREACHABLE
        ]
        hops_up = [step[0] for step in up.steps if cost_up == shortest]
        from_gpus = self.topology.switch_by_name[switch].kind is NodeKind.RAIL_SWITCH
        return self._ports_over(down + hops_up, by_origin=from_gpus and bool(hops_up))

    def _forwarders(self, switch: str, destination: Gpu) -> list[Gpu]:
        """Transit GPUs at a switch: of the destination's domain (none is nearer), or else all."""
        at_switch = self.live.forwarders.get(switch, {})
        peers = at_switch.get(destination.domain) if self.live.hb[destination] else None
        return peers or [gpu for gpus in at_switch.values() for gpu in gpus]


def _add(found: list[tuple[Ports, int]], ports: Ports, domains: int) -> None:
    """Add domains to the entry with the same ports, or as a new entry."""
    for place, (known, others) in enumerate(found):
        if known == ports:
            found[place] = ports, others | domains
            return
    if domains:
        found.append((ports, domains))


def _working(link: Link | None) -> Link:
    if link is None:
        raise ValueError("a link that has failed was taken for a live one")
    return link


def bits(numbers: int) -> Iterator[int]:
    """Yield the positions of the bits that are set."""
    while numbers:
        lowest = numbers & -numbers
        yield lowest.bit_length() - 1
        numbers ^= lowest


def path(
    topology: Topology, source: Gpu, destination: Gpu, health: Health = HEALTHY
) -> tuple[Hop, ...]:
    """Return the hops from `source` to `destination`; raise `Unreachable` without a path."""
    return Routing(topology, health).path(source, destination)
