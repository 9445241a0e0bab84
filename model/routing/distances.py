"""What works of a fabric, and how far every switch is from a GPU over it."""

import heapq
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from model.fabric.health import Health
from model.fabric.topology import Gpu, Hop, Link, LinkKind, Topology

# What it costs to be forwarded by a GPU, in links: more than the longest way over switches.
GPU_TRANSIT = 1000
UNREACHABLE = 1 << 30


class LiveLinks:
    """The links of a fabric that work, by who uses them, and the domains that are alike in them."""

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
    def forwarders(self) -> dict[str, dict[int, list[Gpu]]]:
        """GPUs that can forward, by the switch of their NIC and by their domain."""
        found: dict[str, dict[int, list[Gpu]]] = defaultdict(lambda: defaultdict(list))
        for gpu, nic in self.nic.items():
            if nic is not None and self.hb[gpu] is not None:
                found[nic.upper.node][gpu.domain].append(gpu)
        return found

    def representative(self, gpu: Gpu) -> Gpu:
        """The GPU of the same rail in the first domain that is like this one's."""
        return self.topology.gpu(self.alike[gpu.domain], gpu.rail)

    @cached_property
    def domains_alike(self) -> list[int]:
        """Sets of domains that are alike, bit d for domain d."""
        sets: dict[int, int] = defaultdict(int)
        for number, first in enumerate(self.alike):
            sets[first] |= 1 << number
        return list(sets.values())

    @cached_property
    def alike(self) -> list[int]:
        """For every domain the first one with the same live links to the same switches."""
        first: dict[tuple[object, ...], int] = {}
        return [
            first.setdefault(tuple(self._live_links(domain)), domain)
            for domain in range(self.topology.spec.domains)
        ]

    def _live_links(self, domain: int) -> Iterator[tuple[bool, str]]:
        """What works of each GPU of a domain: its HB link, and its NIC link to which switch."""
        for gpu in self.topology.domain(domain):
            nic = self.nic[gpu]
            yield self.hb[gpu] is not None, "" if nic is None else nic.upper.node


class Distances:
    """From all switches to any GPU, in links. One domain stands for all that are like it."""

    def __init__(self, live: LiveLinks) -> None:
        self.topology = live.topology
        self._live = live
        self._known: dict[Gpu, dict[str, int]] = {}

    def from_openflow_switches(self, destination: Gpu) -> dict[str, int]:
        """By the switch; one that has no way is missing."""
        alike = self._live.representative(destination)
        if alike not in self._known:
            self._known[alike] = self._measured(alike)
        return self._known[alike]

    def from_hb_switch(self, domain: int, destination: Gpu) -> int:
        """`FAR` if there is no way.

        Where the domain that stands for the destination's is itself in question, the two change
        places.
        """
        here, there = destination.domain, self._live.alike[destination.domain]
        domain = {here: there, there: here}.get(domain, domain)
        switch = self.topology.hb_switches[domain]
        return self.from_openflow_switches(destination).get(switch, UNREACHABLE)

    def _measured(self, destination: Gpu) -> dict[str, int]:
        """Dijkstra's algorithm, from the destination on."""
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
        """Switches from which a packet can come: over an uplink, or forwarded by a GPU.

        That the destination would forward to itself does no harm: its switches are nearest anyway.
        """
        found: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for switch, hops in self._live.uplinks.items():
            found[switch] += [(1, hop.receiver) for hop in hops]
        for switch, domains in self._live.forwarders.items():
            for domain, gpus in domains.items():
                hb_switch = self.topology.hb_switches[domain]
                found[hb_switch] += [(GPU_TRANSIT + 2, switch)] * len(gpus)
                found[switch] += [(GPU_TRANSIT + 2, hb_switch)] * len(gpus)
        return found
