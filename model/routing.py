"""Where a packet goes next, in any health: the one path function of the controller and the model.

The controller turns `Routing.step` into rules and host routes, the prediction follows it link by
link: forwarding and prediction cannot disagree.

Every step leads nearer to the destination, by a distance on the links that work: so paths end,
without a loop, wherever there is a way at all. A GPU that forwards for others counts more than
any number of switches. Among equally near ways the choice is spread evenly, and never by chance.
"""

import heapq
from collections.abc import Iterable, Iterator
from functools import cached_property

from model.health import HEALTHY, Health
from model.topology import (
    Gpu,
    Hop,
    Link,
    LinkKind,
    NodeKind,
    Topology,
    leaf_of_domain,
)

# One link into the HB domain's switch and one out of it, or a single link.
Step = tuple[Hop, ...]

# What it costs to be forwarded by a GPU, in links: more than the longest way over switches.
GPU_TRANSIT = 1000
FAR = 1 << 30


class Unreachable(Exception):
    """No way leads from a node to a GPU."""


class Routing:
    """The steps of all packets in a fabric of a given health."""

    def __init__(self, topology: Topology, health: Health = HEALTHY) -> None:
        self.topology = topology
        self.health = health
        self._hb = {gpu: self._live(gpu, LinkKind.HB) for gpu in topology.gpus}
        self._nic = {gpu: self._live(gpu, LinkKind.NIC) for gpu in topology.gpus}
        self._members = {
            name: [gpu for gpu in self.topology.domain(number) if self._hb[gpu]]
            for number, name in enumerate(topology.hb_switches)
        }
        self._uplinks = {
            switch: [
                Hop(link, switch)
                for link in topology.links_of(switch)
                if link.kind is LinkKind.UPLINK and health.is_live(link)
            ]
            for switch in topology.openflow_switches
        }
        self._attached: dict[str, list[Gpu]] = {name: [] for name in topology.rail_switches}
        for gpu, link in self._nic.items():
            if link is not None:
                self._attached[link.upper.node].append(gpu)
        self._known_distances: dict[Gpu, dict[str, int]] = {}
        self._known_uplinks: dict[tuple[str, Gpu], list[tuple[int, Step]]] = {}

    def _live(self, gpu: Gpu, kind: LinkKind) -> Link | None:
        link = self.topology.link_of(gpu, kind)
        return link if self.health.is_live(link) else None

    def path(self, source: Gpu, destination: Gpu) -> tuple[Hop, ...]:
        """The hops that a packet takes from `source` to `destination`, or `Unreachable`."""
        hops: list[Hop] = []
        node, came_from = source.name, ""
        while node != destination.name:
            step = self.step(node, destination, came_from)
            if step is None:
                raise Unreachable(f"{source.name} has no way to {destination.name}")
            hops += step
            node, came_from = step[-1].receiver, step[-1].sender
        return tuple(hops)

    def step(self, node: str, destination: Gpu, came_from: str = "") -> Step | None:
        """How `node`, a GPU or an OpenFlow switch, forwards what is for another GPU.

        `came_from` is the node before: a rail switch may spread what is detoured by it
        (see `spreads_by_origin`). `None` if there is no way.
        """
        gpu = self.topology.gpu_by_name.get(node)
        if gpu is not None:
            return self._choose_peer(gpu, destination, self.options(node, destination))
        return self._choose_port(node, destination, came_from, self.options(node, destination))

    def steps_to_rail(self, gpu: Gpu, rail: int) -> list[tuple[Step | None, int]]:
        """The steps of a GPU towards all others of a rail, each with the set of their domains.

        Bit d of a set stands for domain d. Domains that are alike are answered at once.
        """
        found: dict[str, tuple[Step | None, int]] = {}

        def add(step: Step | None, domains: int) -> None:
            receiver = step[-1].receiver if step else ""
            found[receiver] = step, found.get(receiver, (step, 0))[1] | domains

        own = 1 << gpu.domain
        for alike in self._domains_alike:
            domains = alike & ~own
            if domains:
                first = next(bits(domains))
                options = self.options(gpu.name, self.topology.gpu(first, rail))
                for step, chosen in self._deal(gpu, rail, options, domains):
                    add(step, chosen)
        if rail != gpu.rail:
            add(self.step(gpu.name, self.topology.gpu(gpu.domain, rail)), own)
        return list(found.values())

    def _deal(
        self, gpu: Gpu, rail: int, options: list[Step], domains: int
    ) -> Iterator[tuple[Step | None, int]]:
        """The steps to the GPUs of a rail in these domains, for all of which the options hold."""
        if len(options) < 2:
            yield options[0] if options else None, domains
            return
        for domain in bits(domains):
            yield self._choose_peer(gpu, self.topology.gpu(domain, rail), options), 1 << domain

    def backup(self, switch: str, destination: Gpu, came_from: str = "") -> Step | None:
        """The step of a switch whose chosen link has just failed, if it has another as short."""
        options = self.options(switch, destination)
        chosen = self._choose_port(switch, destination, came_from, options)
        others = [step for step in options if step != chosen]
        return self._choose_port(switch, destination, came_from, others)

    def options(self, node: str, destination: Gpu) -> list[Step]:
        """All shortest steps, in a fixed order; a GPU prefers its HB domain to its NIC."""
        gpu = self.topology.gpu_by_name.get(node)
        found = (
            self._steps_of_switch(node, destination)
            if gpu is None
            else self._steps_of_gpu(gpu, destination)
        )
        shortest = min((cost for cost, _ in found), default=FAR)
        steps = [step for cost, step in found if cost == shortest and cost < FAR]
        return [step for step in steps if len(step) == len(steps[0])]

    def spreads_by_origin(self, switch: str, destination: Gpu) -> bool:
        """Whether a rail switch spreads by origin: what another hands to a GPU to forward.

        All of it is for one GPU, whose address alone would keep it together on one link.
        """
        if self.topology.switch_by_name[switch].kind is NodeKind.SPINE_SWITCH:
            return False
        return self.distance(switch, destination) >= GPU_TRANSIT and any(
            step[0].link.kind is LinkKind.UPLINK for step in self.options(switch, destination)
        )

    def distance(self, switch: str, destination: Gpu) -> int:
        """From a switch to a GPU, in links; `FAR` if there is no way.

        One domain stands for all that are like it, and where it is itself in question, it
        changes places with the destination's.
        """
        alike = self._representative(destination)
        if alike not in self._known_distances:
            self._known_distances[alike] = self._distances(alike)
        if alike is not destination:
            here, there = (self.topology.hb_switches[g.domain] for g in (destination, alike))
            switch = {here: there, there: here}.get(switch, switch)
        return self._known_distances[alike].get(switch, FAR)

    def _representative(self, gpu: Gpu) -> Gpu:
        """The GPU of the same rail in the first domain that is like this one's."""
        return self.topology.gpu(self._alike[gpu.domain], gpu.rail)

    @cached_property
    def _domains_alike(self) -> list[int]:
        """Sets of domains that are alike."""
        sets: dict[int, int] = {}
        for number, first in enumerate(self._alike):
            sets[first] = sets.get(first, 0) | 1 << number
        return list(sets.values())

    @cached_property
    def _alike(self) -> list[int]:
        """For every domain the first one with the same live links to the same switches."""
        first: dict[tuple[object, ...], int] = {}
        return [
            first.setdefault(tuple(self._live_links(domain)), domain)
            for domain in range(self.topology.spec.domains)
        ]

    def _live_links(self, domain: int) -> Iterator[tuple[bool, str]]:
        """What works of each GPU of a domain: its HB link, and its NIC link to which switch."""
        for gpu in self.topology.domain(domain):
            nic = self._nic[gpu]
            yield self._hb[gpu] is not None, "" if nic is None else nic.upper.node

    def _distances(self, destination: Gpu) -> dict[str, int]:
        """From every switch to `destination` (Dijkstra's algorithm, from the destination on)."""
        settled: dict[str, int] = {}
        waiting = [(1, switch) for switch in self._switches_at(destination)]
        while waiting:
            cost, switch = heapq.heappop(waiting)
            if switch in settled:
                continue
            settled[switch] = cost
            for more, neighbour in self._neighbours(switch, destination):
                if neighbour not in settled:
                    heapq.heappush(waiting, (cost + more, neighbour))
        return settled

    def _switches_at(self, gpu: Gpu) -> list[str]:
        return [link.upper.node for link in (self._hb[gpu], self._nic[gpu]) if link is not None]

    def _neighbours(self, switch: str, destination: Gpu) -> Iterable[tuple[int, str]]:
        """Switches from which a packet can come: over an uplink, or forwarded by a GPU."""
        for hop in self._uplinks.get(switch, ()):
            yield 1, hop.receiver
        if switch in self._members:
            for gpu in self._members[switch]:
                nic = self._nic[gpu]
                if nic is not None and gpu != destination:
                    yield GPU_TRANSIT + 2, nic.upper.node
        for gpu in self._attached.get(switch, ()):
            if self._hb[gpu] is not None and gpu != destination:
                yield GPU_TRANSIT + 2, self.topology.hb_switches[gpu.domain]

    def _steps_of_gpu(self, gpu: Gpu, destination: Gpu) -> list[tuple[int, Step]]:
        """Over the HB domain to each peer that could forward, and out of the own NIC."""
        found: list[tuple[int, Step]] = []
        hb, nic = self._hb[gpu], self._nic[gpu]
        if hb is not None:
            into = Hop(hb, gpu.name)
            for peer in self._members[hb.upper.node]:
                if peer != gpu:
                    cost = self._cost_by_nic(peer, destination) + GPU_TRANSIT
                    out = Hop(self._link(self._hb[peer]), hb.upper.node)
                    found.append((2 if peer == destination else 2 + cost, (into, out)))
        if nic is not None:
            found.append((self._cost_by_nic(gpu, destination), (Hop(nic, gpu.name),)))
        return found

    def _cost_by_nic(self, gpu: Gpu, destination: Gpu) -> int:
        nic = self._nic[gpu]
        return FAR if nic is None else 1 + self.distance(nic.upper.node, destination)

    def _steps_of_switch(self, switch: str, destination: Gpu) -> list[tuple[int, Step]]:
        """Down to the destination; or over the uplinks, or down to a GPU that forwards."""
        nic = self._nic[destination]
        if nic is not None and nic.upper.node == switch:
            return [(1, (Hop(nic, switch),))]
        found = self._steps_over_uplinks(switch, destination)
        if all(cost >= GPU_TRANSIT for cost, _ in found):
            return [*self._steps_over_gpus(switch, destination), *found]
        return found

    def _steps_over_uplinks(self, switch: str, destination: Gpu) -> list[tuple[int, Step]]:
        """Alike for all destinations that are alike."""
        key = switch, self._representative(destination)
        if key not in self._known_uplinks:
            self._known_uplinks[key] = [
                (1 + self.distance(hop.receiver, destination), (hop,))
                for hop in self._uplinks[switch]
            ]
        return self._known_uplinks[key]

    def _steps_over_gpus(self, switch: str, destination: Gpu) -> list[tuple[int, Step]]:
        """Down to GPUs that forward; no way is shorter than by one of the destination's domain."""
        attached = [(gpu, hb) for gpu in self._attached.get(switch, ()) if (hb := self._hb[gpu])]
        if self._hb[destination] is not None:
            peers = [entry for entry in attached if entry[0].domain == destination.domain]
            attached = peers or attached
        return [
            (
                2 + GPU_TRANSIT + self.distance(hb.upper.node, destination),
                (Hop(self._link(self._nic[gpu]), switch),),
            )
            for gpu, hb in attached
        ]

    @staticmethod
    def _link(link: Link | None) -> Link:
        if link is None:
            raise ValueError("a link that has failed was taken for a live one")
        return link

    def _choose_peer(self, gpu: Gpu, destination: Gpu, options: list[Step]) -> Step | None:
        """Among peers as good as each other: all detours of a domain, dealt out one by one."""
        if len(options) < 2:
            return options[0] if options else None
        peers = {self.topology.gpu_by_name[step[-1].receiver].rail for step in options}
        lost = [rail for rail in range(self.topology.spec.domain_size) if rail not in peers]
        own, wanted = (lost.index(r) if r in lost else 0 for r in (gpu.rail, destination.rail))
        dealt = (self._domains_on(gpu, destination) * len(lost) + own) * len(lost) + wanted
        return options[dealt % len(options)]

    def _domains_on(self, gpu: Gpu, destination: Gpu) -> int:
        """How many domains further the destination is, from 0."""
        return (destination.domain - gpu.domain - 1) % self.topology.spec.domains

    def _choose_port(
        self, switch: str, destination: Gpu, came_from: str, options: list[Step]
    ) -> Step | None:
        """The destination's own spine switch, or else the others in turn."""
        if len(options) < 2:
            return options[0] if options else None
        here = self.topology.switch_by_name[switch]
        if here.kind is NodeKind.SPINE_SWITCH:
            place = here.index + destination.domain + destination.rail
            return options[place % len(options)]
        origin = self.topology.gpu_by_name.get(came_from)
        if origin is not None and self.spreads_by_origin(switch, destination):
            return options[self._domains_on(origin, destination) % len(options)]
        own = self.spine_for(destination)
        for step in options:
            spine = self.topology.switch_by_name.get(step[0].receiver)
            if spine is not None and spine.index == own:
                return step
        return options[self._displaced(switch, destination) % len(options)]

    def spine_for(self, destination: Gpu) -> int:
        """The number of the spine that carries what is for `destination` when all are well.

        The destinations' domains take the spines in turn, from the one that the seed says. So any
        step in which each domain sends to one other loads all uplinks evenly, and with as many
        spines as domains no two flows of a step share a link: what hashing promises only on
        average.
        """
        return (destination.domain + self.topology.spec.seed) % self.topology.spec.spines

    def _displaced(self, switch: str, destination: Gpu) -> int:
        """Deals out the destinations whose own spine is lost.

        By turns of the spines, then by how many rails, or leaf switches, further they are.
        """
        spec, here = self.topology.spec, self.topology.switch_by_name[switch]
        turn = destination.domain // spec.spines
        if spec.rail_leaves > 1:
            return turn + leaf_of_domain(spec, destination.domain) - here.index - 1
        rails = spec.domain_size
        rails_on = (destination.rail - (here.rail or 0) - 1) % rails
        return turn * (rails - 1) + rails_on


def bits(numbers: int) -> Iterator[int]:
    """The numbers in a set whose bits stand for them."""
    while numbers:
        lowest = numbers & -numbers
        yield lowest.bit_length() - 1
        numbers ^= lowest


def path(
    topology: Topology, source: Gpu, destination: Gpu, health: Health = HEALTHY
) -> tuple[Hop, ...]:
    """The hops that a packet takes from `source` to `destination`, or `Unreachable`."""
    return Routing(topology, health).path(source, destination)
