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
        self.hb = {gpu: self._live(gpu, LinkKind.HB) for gpu in topology.gpus}
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

    @cached_property
    def transit_gpus(self) -> dict[str, dict[int, list[Gpu]]]:
        """Possible transit GPUs (both links live), by the switch of their NIC and by domain."""
        found: dict[str, dict[int, list[Gpu]]] = defaultdict(lambda: defaultdict(list))
        for gpu, nic in self.nic.items():
            if nic is not None and self.hb[gpu] is not None:
                found[nic.upper.node][gpu.domain].append(gpu)
        return found

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

    def _live_links(self, domain: int) -> Iterator[tuple[bool, str]]:
        """Yield for each GPU whether its HB link is live, and the switch of its live NIC link."""
        for gpu in self.topology.domain(domain):
            nic = self.nic[gpu]
            yield self.hb[gpu] is not None, "" if nic is None else nic.upper.node


class Distances:
    """Distances in links from switches to GPUs; equivalent domains share a representative's."""

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

    def from_hb_switch(self, domain: int, destination: Gpu) -> int:
        """Distance from an HB switch to `destination`; `UNREACHABLE` if there is no path.

        Distances are cached for a representative domain; if asked about that one, swap the two.
        """
        here, there = destination.domain, self._live.equivalent[destination.domain]
        domain = {here: there, there: here}.get(domain, domain)
        switch = self.topology.hb_switches[domain]
        return self.from_openflow_switches(destination).get(switch, UNREACHABLE)

    def _measured(self, destination: Gpu) -> dict[str, int]:
        """Compute distances by Dijkstra's algorithm, starting at the destination."""
        links = self._live.hb[destination], self._live.nic[destination]
        found = {link.upper.node: 1 for link in links if link is not None}
        waiting = sorted((cost, switch) for switch, cost in found.items())
        while waiting:
            cost, switch = heapq.heappop(waiting)
            if cost > found[switch]:
                continue
            for more, neighbour in self._neighbours[switch]:
                if cost + more < found.get(neighbour, UNREACHABLE):
                    found[neighbour] = cost + more
                    heapq.heappush(waiting, (cost + more, neighbour))
        return found

    @cached_property
    def _neighbours(self) -> dict[str, list[tuple[int, str]]]:
        """Adjacent switches with costs: over an uplink, or through a transit GPU.

        The destination itself may count as a transit GPU: its switches are nearest anyway.
        """
        found: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for switch, hops in self._live.uplinks.items():
            found[switch] += [(1, hop.receiver) for hop in hops]
        for switch, domains in self._live.transit_gpus.items():
            for domain, gpus in domains.items():
                hb_switch = self.topology.hb_switches[domain]
                found[hb_switch] += [(GPU_TRANSIT + 2, switch)] * len(gpus)
                found[switch] += [(GPU_TRANSIT + 2, hb_switch)] * len(gpus)
        return found
