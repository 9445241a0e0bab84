"""Next hops in a fabric of any health: the one path function of the controller and the model.

The controller turns the next hops of `Routing` into rules and host routes, the prediction follows
them link by link: forwarding and prediction cannot disagree.

Every next hop decreases the distance to the destination over live links, so packets arrive without
a loop wherever a path exists. A transit GPU costs more than any number of switches. Among
equal-cost next hops, the selection is even and deterministic.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

from model.fabric.health import HEALTHY, Health
from model.fabric.spec import SpineSelection
from model.fabric.topology import Gpu, Hop, Link, LinkKind, NodeKind, Topology, lane_of
from model.routing.ecmp import EcmpSelection, Egress, NextHop, Ports

# Cost of a transit GPU, in links: more than the longest path over switches; and with PXN that of
# an uplink, more than any number of transit GPUs.
GPU_TRANSIT = 1000
LAST_RESORT = GPU_TRANSIT**2
UNREACHABLE = 1 << 30
NO_PORTS = Ports((), ())


class Unreachable(Exception):
    """No path leads from a node to a GPU."""


class LiveLinks:
    """Live links of a fabric by the GPU or switch that uses them, and distances over them.

    Domains are equivalent if they have the same live links to the same switches: they share
    distances. `crossbar` has the highest HB switch that a GPU reaches: its leaf if the trunk is not
    live, `None` without its HB link. GPUs with the same one reach each other over HB switches.
    `nics` has the live NIC links that a GPU uses, by lane: its own, or those of the holder of the
    NIC that it shares, which count as its own.
    """

    def __init__(self, topology: Topology, health: Health) -> None:
        self.topology = topology
        self.health = health
        self.uplink_cost = LAST_RESORT if topology.spec.nic.pxn else 1
        self.crossbar = {gpu: self._crossbar(gpu) for gpu in topology.gpus}
        self.own_nics = {
            gpu: {lane_of(link): link for link in topology.nic_links(gpu) if health.is_live(link)}
            for gpu in topology.gpus
        }
        self.nics = {gpu: self._nics(gpu) for gpu in topology.gpus}
        self.uplinks = {
            switch: [
                Hop(link, switch)
                for link in topology.links_of(switch)
                if link.kind is LinkKind.UPLINK and health.is_live(link)
            ]
            for switch in topology.openflow_switches
        }
        self._known_distances: dict[Gpu, dict[str, int]] = {}

    def _crossbar(self, gpu: Gpu) -> str | None:
        link = self.topology.link_of(gpu, LinkKind.HB)
        if not self.health.is_live(link):
            return None
        trunk = self.topology.trunks.get(link.upper.node)
        whole = trunk is None or self.health.is_live(trunk)
        return self.topology.hb_switches[gpu.domain] if whole else link.upper.node

    def _nics(self, gpu: Gpu) -> dict[int, Link]:
        holder = self.topology.holder(gpu)
        reached = holder == gpu or self.share_crossbar(gpu, holder)
        return self.own_nics[holder] if reached else {}

    def share_crossbar(self, one: Gpu, other: Gpu) -> bool:
        """Whether two GPUs reach each other over live links of HB switches alone."""
        crossbar = self.crossbar[one.gpu]
        return crossbar is not None and crossbar == self.crossbar[other.gpu]

    @cached_property
    def transit_gpus(self) -> dict[str, dict[str, list[Gpu]]]:
        """Possible transit GPUs (both links live), by the switch of their NIC and by crossbar."""
        transit: dict[str, dict[str, list[Gpu]]] = defaultdict(lambda: defaultdict(list))
        for gpu, nics in self.own_nics.items():
            crossbar = self.crossbar[gpu]
            if crossbar is not None:
                for nic in nics.values():
                    transit[nic.upper.node][crossbar].append(gpu)
        return transit

    def representative(self, gpu: Gpu) -> Gpu:
        """The GPU of the same rail in the first equivalent domain, by the same lane."""
        first = self.equivalent[gpu.domain]
        if first == gpu.domain:
            return gpu
        return self.topology.lane_at[first, gpu.rail * self.topology.spec.lanes + gpu.lane]

    @cached_property
    def representatives(self) -> list[list[tuple[Gpu, int]]]:
        """For every lane of a domain, each set of equivalent domains that have it.

        It stands after the lane of the first of them. Bit d of a set stands for domain d.
        """
        sets: dict[int, int] = defaultdict(int)
        for number, first in enumerate(self.equivalent):
            sets[first] |= 1 << number
        numbers = range(self.topology.spec.domain_size * self.topology.spec.lanes)
        return [
            [
                (lane, domains)
                for first, domains in sets.items()
                if (lane := self.topology.lane_at.get((first, number)))
            ]
            for number in numbers
        ]

    @cached_property
    def equivalent(self) -> list[int]:
        """For every domain, the first equivalent domain."""
        first: dict[tuple[object, ...], int] = {}
        return [
            first.setdefault(tuple(self._live_links(domain)), domain)
            for domain in range(self.topology.spec.domains)
        ]

    def _live_links(self, domain: int) -> Iterator[tuple[object, ...]]:
        """Yield rail, whether HB link and trunk are live, and NIC links' switches of each GPU."""
        whole = self.topology.hb_switches[domain]
        for gpu in self.topology.domain(domain):
            crossbar = self.crossbar[gpu]
            switches = tuple((lane, nic.upper.node) for lane, nic in self.own_nics[gpu].items())
            yield gpu.rail, crossbar is not None, crossbar == whole, switches

    # Distances

    def distances_to(self, destination: Gpu) -> dict[str, int]:
        """Distances in links by switch; switches without a path are missing.

        HB switches that reach each other count as one: any two of their GPUs are equally far.
        """
        equivalent = self.representative(destination)
        if equivalent not in self._known_distances:
            self._known_distances[equivalent] = self._measured(equivalent)
        return self._known_distances[equivalent]

    def distance_from_crossbar(self, gpu: Gpu, destination: Gpu) -> int:
        """Distance from a GPU's HB switch to `destination`; `UNREACHABLE` if there is no path.

        Distances are cached for a representative domain; if asked about that one, swap the two.
        """
        here, there = destination.domain, self.equivalent[destination.domain]
        domain = {here: there, there: here}.get(gpu.domain, gpu.domain)
        crossbar = self.crossbar[self.topology.gpu_at[domain, gpu.rail]]
        distances = self.distances_to(destination)
        return UNREACHABLE if crossbar is None else distances.get(crossbar, UNREACHABLE)

    def _measured(self, destination: Gpu) -> dict[str, int]:
        """Compute distances by Dijkstra's algorithm, starting at the destination."""
        crossbar = self.crossbar[destination.gpu]
        distance = {nic.upper.node: 1 for nic in self.nics[destination.gpu].values()}
        if crossbar is not None:
            distance[crossbar] = 1
        waiting = sorted((cost, switch) for switch, cost in distance.items())
        while waiting:
            cost, switch = heapq.heappop(waiting)
            if cost > distance[switch]:
                continue
            for more, neighbour in self._neighbours[switch]:
                if cost + more < distance.get(neighbour, UNREACHABLE):
                    distance[neighbour] = cost + more
                    heapq.heappush(waiting, (cost + more, neighbour))
        return distance

    @cached_property
    def _neighbours(self) -> dict[str, list[tuple[int, str]]]:
        """Adjacent switches with costs: over an uplink, or through a transit GPU.

        The destination itself may count as a transit GPU: its switches are nearest anyway.
        """
        neighbours: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for switch, hops in self.uplinks.items():
            neighbours[switch] += [(self.uplink_cost, hop.receiver) for hop in hops]
        for switch, crossbars in self.transit_gpus.items():
            for crossbar, gpus in crossbars.items():
                neighbours[crossbar] += [(GPU_TRANSIT + 2, switch)] * len(gpus)
                neighbours[switch] += [(GPU_TRANSIT + 2, crossbar)] * len(gpus)
        return neighbours


class Routing:
    """Next hops of all packets in a fabric of a given health."""

    def __init__(self, topology: Topology, health: Health = HEALTHY) -> None:
        self.topology = topology
        self.live = LiveLinks(topology, health)
        self.selection = EcmpSelection(topology)
        self._known_egress: dict[tuple[int, int, Gpu], Egress] = {}
        self._known_egress_to_lane: dict[tuple[int, int, int], tuple[tuple[Egress, int], ...]] = {}
        self._known_uplinks: dict[tuple[str, Gpu], tuple[int, Ports]] = {}
        self._known_ports: dict[tuple[str, ...], Ports] = {}

    def path(self, source: Gpu, destination: Gpu, entropy: int = 0) -> tuple[Hop, ...]:
        """Return the hops from `source` to `destination`; raise `Unreachable` without a path."""
        hops = self.path_if_any(source, destination, entropy)
        if hops is None:
            raise Unreachable(f"{source.name} has no path to {destination.name}")
        return hops

    def path_if_any(
        self, source: Gpu, destination: Gpu, entropy: int = 0
    ) -> tuple[Hop, ...] | None:
        """Return the hops from `source` to `destination`; `None` without a path."""
        hops: list[Hop] = []
        for _, _, next_hop in self.walk(source, destination, entropy):
            if next_hop is None:
                return None
            hops += next_hop
        return tuple(hops)

    def walk(
        self, source: Gpu, destination: Gpu, entropy: int = 0
    ) -> Iterator[tuple[str, str, NextHop | None]]:
        """Yield each forwarding node, the one before it and its next hop, `None` if it has none."""
        node, came_from = source.name, ""
        while node != destination.name:
            next_hop = self.next_hop(node, destination, came_from, entropy)
            yield node, came_from, next_hop
            if next_hop is None:
                return
            node, came_from = next_hop[-1].receiver, next_hop[-1].sender

    def next_hop(
        self, node: str, destination: Gpu, came_from: str = "", entropy: int = 0
    ) -> NextHop | None:
        """Return the next hop of a packet at `node`, a GPU or an OpenFlow switch.

        `came_from` is the node before, `entropy` the number of the path that the packet's UDP
        source port has (see `Ports`). `None` if there is no path.
        """
        gpu = self.topology.gpu_by_name.get(node)
        if gpu is None:
            ports = self.ports(node, destination)
            return self.selection.port(node, destination, ports, came_from, entropy)
        egress = self.egress(gpu, destination)
        chosen = self.selection.egress_gpu(gpu, destination, egress)
        if chosen is None:
            return None
        if chosen == gpu.rail:
            return (Hop(self.live.own_nics[gpu][egress.port], gpu.name),)
        return self.topology.hb_hops(gpu, self.topology.gpu_at[gpu.domain, chosen])

    # GPUs

    def egress(self, gpu: Gpu, destination: Gpu) -> Egress:
        """Return the egress to `destination`: the destination if the HB domain reaches it.

        Computed once for domains with the same live links.
        """
        if self.live.share_crossbar(gpu, destination):
            return Egress((destination.rail,))
        key = self.live.equivalent[gpu.domain], gpu.rail, self.live.representative(destination)
        if key not in self._known_egress:
            self._known_egress[key] = self._nearest_egress(gpu, destination)
        return self._known_egress[key]

    def egress_to_lane(self, gpu: Gpu, number: int) -> tuple[tuple[Egress, int], ...]:
        """Return the egress to a lane in other domains, each with the set of destination domains.

        Bit d of a set stands for domain d; the GPU's own domain is in one of the sets, too.
        """
        key = self.live.equivalent[gpu.domain], gpu.rail, number
        if key not in self._known_egress_to_lane:
            domains_of: dict[Egress, int] = {}
            for first, domains in self.live.representatives[number]:
                egress = self._nearest_egress(gpu, first)
                domains_of[egress] = domains_of.get(egress, 0) | domains
            self._known_egress_to_lane[key] = tuple(domains_of.items())
        return self._known_egress_to_lane[key]

    def _nearest_egress(self, gpu: Gpu, destination: Gpu) -> Egress:
        """Nearest egress GPUs: peers over the HB domain, or the holder of the GPU's own NIC."""
        own_cost, port = self._cost_by_nic(self.live.nics[gpu], destination)
        if own_cost > GPU_TRANSIT:
            domain = (peer for peer in self.topology.domain(gpu.domain) if peer != gpu)
            nics = {p: self.live.own_nics[p] for p in domain if self.live.share_crossbar(gpu, p)}
            costs = {
                peer.rail: 2 + GPU_TRANSIT + self._cost_by_nic(own, destination)[0]
                for peer, own in nics.items()
            }
            shortest = min(own_cost, *costs.values(), UNREACHABLE)
            ranks = tuple(rail for rail, cost in costs.items() if cost == shortest < UNREACHABLE)
            if ranks or own_cost >= UNREACHABLE:
                return Egress(ranks)
        holder = self.topology.holder(gpu)
        return Egress((holder.rail,), port if holder == gpu else 0)

    def _cost_by_nic(self, nics: Mapping[int, Link], destination: Gpu) -> tuple[int, int]:
        """The least distance over these NIC links, and the lane of the one to take.

        That is the packet's own lane if it is as near as any other, else the next one.
        """
        distances, lanes = self.live.distances_to(destination), self.topology.spec.lanes
        costs = (
            (distances.get(nic.upper.node, UNREACHABLE), (lane - destination.lane) % lanes, lane)
            for lane, nic in nics.items()
        )
        distance, _, lane = min(costs, default=(UNREACHABLE, 0, 0))
        return 1 + distance, lane

    # Switches

    def ports(self, switch: str, destination: Gpu) -> Ports:
        """Ports down to the destination, or over the uplinks, or down to a transit GPU."""
        if nic := self._last_link(switch, destination):
            return Ports(((Hop(nic, switch),),), (-1,))
        cost, ports = self._ports_up(switch, destination)
        return ports if cost < GPU_TRANSIT else self._over_transit_gpus(switch, destination)

    def ports_to_lane(self, switch: str, number: int, domains: int) -> list[tuple[Ports, int]]:
        """Ports to a lane in a set of domains, each with its subset of the domains."""
        groups: list[tuple[Ports, int]] = []
        for first, equivalent in self.live.representatives[number]:
            cost, ports = self._ports_up(switch, first)
            if cost < GPU_TRANSIT and not self._last_link(switch, first):
                _add(groups, ports, equivalent & domains)
                continue
            for domain in bits(equivalent & domains):
                groups.append(
                    (self.ports(switch, self.topology.lane_at[domain, number]), 1 << domain)
                )
        return sorted(groups, key=lambda item: item[1] & -item[1])

    def _last_link(self, switch: str, destination: Gpu) -> Link | None:
        """The NIC link by which packets reach their destination from a switch, if it has one."""
        nics = self.live.nics[destination.gpu].values()
        return next((nic for nic in nics if nic.upper.node == switch), None)

    def below(self, spine_switch: str, number: int) -> int:
        """Set of domains whose lane with this number is two links down from a spine switch."""
        reached = 0
        for first, equivalent in self.live.representatives[number]:
            if self.live.distances_to(first).get(spine_switch) == 2:
                reached |= equivalent
        return reached

    def _ports_up(self, switch: str, destination: Gpu) -> tuple[int, Ports]:
        """Nearest uplink ports to `destination`, after the distance over them.

        Computed once for destinations with the same representative.
        """
        key = switch, self.live.representative(destination)
        if key not in self._known_uplinks:
            self._known_uplinks[key] = self._nearest_uplinks(switch, destination)
        return self._known_uplinks[key]

    def _nearest_uplinks(self, switch: str, destination: Gpu) -> tuple[int, Ports]:
        """Return the least distance over uplinks, and the ports of those that have it."""
        distances, uplinks = self.live.distances_to(destination), self.live.uplinks[switch]
        costs = [distances.get(hop.receiver, UNREACHABLE) for hop in uplinks]
        shortest = min(costs, default=UNREACHABLE)
        if shortest >= UNREACHABLE:
            return UNREACHABLE, NO_PORTS
        hops = [hop for hop, cost in zip(uplinks, costs, strict=True) if cost == shortest]
        lanes = self.topology.spec.lanes
        if lanes > 1:
            nics = self.live.nics[destination.gpu].items()
            # Lanes from the destination's on to the one that ends at a switch.
            on = {nic.upper.node: (lane - destination.lane) % lanes for lane, nic in nics}
            hops.sort(key=lambda hop: on.get(hop.receiver, lanes))
        return self.live.uplink_cost + shortest, self._uplink_ports(switch, tuple(hops))

    def _uplink_ports(self, switch: str, hops: tuple[Hop, ...]) -> Ports:
        """Return the ports of these uplinks, computed once for all of their destinations."""
        key = switch, *(hop.receiver for hop in hops)
        if key not in self._known_ports:
            ports = self._ports_over(hops)
            if self.topology.switch_by_name[switch].kind is NodeKind.RAIL_SWITCH and len(hops) > 1:
                by_hash = self.topology.spec.nic.spine_selection is SpineSelection.HASH
                ports = replace(ports, by_origin=by_hash, entropies=self.topology.spec.entropies)
            self._known_ports[key] = ports
        return self._known_ports[key]

    def _ports_over(self, hops: Sequence[Hop], by_origin: bool = False) -> Ports:
        spines = self.topology.spine_numbers
        numbers = tuple(spines.get(hop.receiver, -1) for hop in hops)
        return Ports(tuple((hop,) for hop in hops), numbers, by_origin)

    def _over_transit_gpus(self, switch: str, destination: Gpu) -> Ports:
        """Ports on paths that need a transit GPU, at this switch or later."""
        cost_up, up = self._ports_up(switch, destination)
        costs = {
            gpu: 2 + GPU_TRANSIT + self.live.distance_from_crossbar(gpu, destination)
            for gpu in self._transit_gpus(switch, destination)
        }
        shortest = min(cost_up, *costs.values(), UNREACHABLE)
        down = [
            Hop(nic, switch)
            for gpu, cost in costs.items()
            if cost == shortest < UNREACHABLE
            if (nic := self._last_link(switch, gpu))
        ]
        hops_up = [next_hop[0] for next_hop in up.next_hops if cost_up == shortest]
        from_gpus = self.topology.switch_by_name[switch].kind is NodeKind.RAIL_SWITCH
        ports = self._ports_over(down + hops_up, by_origin=from_gpus and bool(hops_up))
        domain = self.topology.domain(destination.domain)
        return replace(ports, lost=tuple(gpu.rail for gpu in domain if not self.live.nics[gpu]))

    def _transit_gpus(self, switch: str, destination: Gpu) -> list[Gpu]:
        """Transit GPUs at a switch: the destination's peers (none is nearer), or else all."""
        at_switch = self.live.transit_gpus.get(switch, {})
        crossbar = self.live.crossbar[destination.gpu]
        peers = None if crossbar is None else at_switch.get(crossbar)
        return peers or [gpu for gpus in at_switch.values() for gpu in gpus]


def require_connected(topology: Topology, health: Health, job: Sequence[Gpu] = ()) -> None:
    """Raise `Unreachable` if a GPU of a job, by default the fabric's, has no path to another one.

    Links fail in both directions, so a path from each GPU to the next one is enough.
    """
    routing, gpus = Routing(topology, health), tuple(job or topology.job_gpus)
    for pair in pairwise((*gpus, gpus[0])):
        routing.path(*pair)


def _add(groups: list[tuple[Ports, int]], ports: Ports, domains: int) -> None:
    """Add domains to the entry with the same ports, or as a new entry."""
    for place, (known, others) in enumerate(groups):
        if known == ports:
            groups[place] = ports, others | domains
            return
    if domains:
        groups.append((ports, domains))


def bits(numbers: int) -> Iterator[int]:
    """Yield the positions of the bits that are set."""
    while numbers:
        lowest = numbers & -numbers
        yield lowest.bit_length() - 1
        numbers ^= lowest
