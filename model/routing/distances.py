"""Live links of a fabric, and the distance of every switch to a GPU over them."""

import heapq
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from model.fabric.health import Health
from model.fabric.topology import Gpu, Hop, Link, LinkKind, Topology

# Cost of a transit GPU, in links: more than the longest path over switches.
GPU_TRANSIT = 1000
UNREACHABLE = 1 << 30


class LiveLinks:
    """Live links of a fabric by the GPU or switch that uses them, and equivalent domains."""

    def __init__(self, topology: Topology, health: Health) -> None:
        self.topology = topology
        self.health = health
        self.crossbar = {gpu: topology.hb_crossbar(gpu, health.is_live) for gpu in topology.gpus}
        self.nic = {gpu: self._live(gpu, LinkKind.NIC) for gpu in topology.gpus}
        self.uplinks = {
            switch: [
                Hop(link, switch)
                for link in topology.links_of(switch)
                if link.kind is LinkKind.UPLINK and health.is_live(link)
            ]
            for switch in topology.openflow_switches
        }

    def _live(self, gpu: Gpu, kind: LinkKind) -> Link | None:
        link = self.topology.link_of(gpu, kind)
        return link if self.health.is_live(link) else None

    def share_crossbar(self, one: Gpu, other: Gpu) -> bool:
        """Whether two GPUs reach each other over live links of HB switches alone."""
        return self.crossbar[one] is not None and self.crossbar[one] == self.crossbar[other]

    @cached_property
    def transit_gpus(self) -> dict[str, dict[str, list[Gpu]]]:
        """Possible transit GPUs (both links live), by the switch of their NIC and by crossbar."""
        transit: dict[str, dict[str, list[Gpu]]] = defaultdict(lambda: defaultdict(list))
        for gpu, nic in self.nic.items():
            crossbar = self.crossbar[gpu]
            if nic is not None and crossbar is not None:
                transit[nic.upper.node][crossbar].append(gpu)
        return transit

    def representative(self, gpu: Gpu) -> Gpu:
        """The GPU of the same rail in the first equivalent domain (see `equivalent`)."""
        return self.topology.gpu(self.equivalent[gpu.domain], gpu.rail)

    @cached_property
    def equivalent_domains(self) -> list[int]:
        """Sets of domains with the same live links, bit d for domain d."""
        sets: dict[int, int] = defaultdict(int)
        for number, first in enumerate(self.equivalent):
            sets[first] |= 1 << number
        return list(sets.values())

    @cached_property
    def equivalent(self) -> list[int]:
        """For every domain, the first domain with the same live links to the same switches."""
        first: dict[tuple[object, ...], int] = {}
        return [
            first.setdefault(tuple(self._live_links(domain)), domain)
            for domain in range(self.topology.spec.domains)
        ]

    def _live_links(self, domain: int) -> Iterator[tuple[bool, bool, str]]:
        """Yield for each GPU whether its HB link and trunk are live, and its NIC link's switch."""
        whole = self.topology.hb_switches[domain]
        for gpu in self.topology.domain(domain):
            nic, crossbar = self.nic[gpu], self.crossbar[gpu]
            yield crossbar is not None, crossbar == whole, "" if nic is None else nic.upper.node


class Distances:
    """Distances in links from switches to GPUs; equivalent domains share a representative's.

    HB switches that reach each other count as one: any two of their GPUs are equally far.
    """

    def __init__(self, live: LiveLinks) -> None:
        self.topology = live.topology
        self._live = live
        self._known: dict[Gpu, dict[str, int]] = {}

    def from_openflow_switches(self, destination: Gpu) -> dict[str, int]:
        """Distances to `destination` by switch; switches without a path are missing."""
        equivalent = self._live.representative(destination)
        if equivalent not in self._known:
            self._known[equivalent] = self._measured(equivalent)
        return self._known[equivalent]

    def from_crossbar_of(self, gpu: Gpu, destination: Gpu) -> int:
        """Distance from a GPU's HB switch to `destination`; `UNREACHABLE` if there is no path.

        Distances are cached for a representative domain; if asked about that one, swap the two.
        """
        here, there = destination.domain, self._live.equivalent[destination.domain]
        domain = {here: there, there: here}.get(gpu.domain, gpu.domain)
        crossbar = self._live.crossbar[self.topology.gpu(domain, gpu.rail)]
        distances = self.from_openflow_switches(destination)
        return UNREACHABLE if crossbar is None else distances.get(crossbar, UNREACHABLE)

    def _measured(self, destination: Gpu) -> dict[str, int]:
        """Compute distances by Dijkstra's algorithm, starting at the destination."""
        nic, crossbar = self._live.nic[destination], self._live.crossbar[destination]
        switches = (None if nic is None else nic.upper.node, crossbar)
        distance = {switch: 1 for switch in switches if switch is not None}
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
        for switch, hops in self._live.uplinks.items():
            neighbours[switch] += [(1, hop.receiver) for hop in hops]
        for switch, crossbars in self._live.transit_gpus.items():
            for crossbar, gpus in crossbars.items():
                neighbours[crossbar] += [(GPU_TRANSIT + 2, switch)] * len(gpus)
                neighbours[switch] += [(GPU_TRANSIT + 2, crossbar)] * len(gpus)
        return neighbours
