"""Nodes and links of a fabric: the only source of names, ports and link rates."""

import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property
from itertools import chain, groupby
from typing import Any

from model.fabric.job_grid import Slot
from model.fabric.shaping import DEFAULT_DEPTH_S, UNIMPAIRED, Impairment, Shaper, least_timeout_s
from model.fabric.spec import FabricSpec, flat
from model.fabric.wiring import divisors, tiers


class NodeKind(StrEnum):
    """Kinds of nodes of the fabric."""

    GPU = "gpu"
    HB_SWITCH = "hb-switch"
    RAIL_SWITCH = "rail-switch"
    SPINE_SWITCH = "spine-switch"


class LinkKind(StrEnum):
    """Kinds of links of the fabric."""

    HB = "hb-link"
    HB_TRUNK = "hb-trunk"
    NIC = "nic-link"
    UPLINK = "uplink"


BETWEEN_SWITCHES = (LinkKind.HB_TRUNK, LinkKind.UPLINK)
# The number of a GPU's port to its first NIC link.
FIRST_NIC_PORT = 2


@dataclass(frozen=True)
class Port:
    """One end of a link: the node, the number of the port (from 1) and its interface's name."""

    node: str
    number: int
    interface: str


@dataclass(frozen=True)
class Link:
    """A full-duplex link. `rate_bps` is the emulated rate of either direction.

    `lower` is the end nearer to the GPU. `depth_s` is the depth of its token buckets in seconds.
    """

    kind: LinkKind
    lower: Port
    upper: Port
    rate_bps: int
    depth_s: float = DEFAULT_DEPTH_S
    impairment: Impairment = UNIMPAIRED

    @cached_property
    def shaper(self) -> Shaper:
        """The token bucket of each direction."""
        return Shaper(self.rate_bps, self.depth_s)

    @cached_property
    def name(self) -> str:
        """The link's name, as faults and reports use it."""
        return f"{self.lower.node}--{self.upper.node}"

    def __hash__(self) -> int:
        """Hash the name only: links are dictionary keys when many paths are computed."""
        return hash(self.name)

    @property
    def carrier_end(self) -> Port:
        """The end to take down: a switch's, as a GPU's own end would lose its routes."""
        return self.lower if self.kind in BETWEEN_SWITCHES else self.upper

    def port_of(self, node: str) -> Port:
        """The link's port on `node`."""
        return self.lower if self.lower.node == node else self.upper

    def other_end(self, node: str) -> str:
        """The node at the other end."""
        return self.upper.node if self.lower.node == node else self.lower.node


def lane_of(nic_link: Link) -> int:
    """The lane of a NIC link."""
    return nic_link.lower.number - FIRST_NIC_PORT


@dataclass(frozen=True)
class Hop:
    """One direction of a link: from `sender` over `link`."""

    link: Link
    sender: str

    @cached_property
    def receiver(self) -> str:
        """The node that this direction leads to."""
        return self.link.other_end(self.sender)


@dataclass(frozen=True)
class Gpu:
    """A GPU's place: its HB domain and its local rank there, which is its rail."""

    domain: int
    rail: int

    @cached_property
    def name(self) -> str:
        """The GPU proxy's name."""
        return f"d{self.domain}g{self.rail}"

    @property
    def lane(self) -> int:
        """The lane by which packets to it arrive."""
        return 0

    @property
    def gpu(self) -> "Gpu":
        """The GPU of which this is a lane."""
        return self

    def by(self, lane: int) -> "Gpu":
        """Return the GPU as the destination of packets by one of its lanes."""
        return Lane(self.domain, self.rail, lane) if lane else self.gpu


@dataclass(frozen=True)
class Lane(Gpu):
    """A GPU as a destination by another lane than the first: it has an address of its own.

    A lane is a NIC port of a GPU, at the source and at the destination. While both ports are live,
    packets take them; else other ports of the two GPUs.
    """

    number: int

    @property
    def lane(self) -> int:
        """The lane by which packets to it arrive."""
        return self.number

    @property
    def gpu(self) -> Gpu:
        """The GPU of which this is a lane."""
        return Gpu(self.domain, self.rail)


# The GPU of every rank, in rank order.
RankGpus = tuple[Gpu, ...]


@dataclass(frozen=True)
class OpenFlowSwitch:
    """A switch that the controller programs. A spine switch of the whole fabric has no `rail`.

    `index` counts the spine switches of the fabric, plane by plane, or the spine switches of the
    rail; of a rail switch, it is the number of its leaf or of its plane.
    """

    name: str
    kind: NodeKind
    rail: int | None
    index: int


@dataclass(frozen=True)
class Topology:
    """A fabric's nodes and links. GPUs are ordered by domain, then by local rank.

    `hb_switches` has the HB switch of each domain, that of the second level where there are
    `hb_leaves`: leaf HB switches, ordered by domain.
    """

    spec: FabricSpec
    gpus: tuple[Gpu, ...]
    hb_switches: tuple[str, ...]
    hb_leaves: tuple[str, ...]
    switches: tuple[OpenFlowSwitch, ...]
    links: tuple[Link, ...]

    @cached_property
    def openflow_switches(self) -> tuple[str, ...]:
        """Names of the switches that the controller programs, in the order of datapath ids."""
        return tuple(switch.name for switch in self.switches)

    @cached_property
    def rail_switches(self) -> tuple[str, ...]:
        """Names of the switches that the GPUs' NICs are connected to."""
        return tuple(s.name for s in self.switches if s.kind is NodeKind.RAIL_SWITCH)

    @cached_property
    def spine_switches(self) -> tuple[str, ...]:
        """Names of the switches that connect rail switches."""
        return tuple(s.name for s in self.switches if s.kind is NodeKind.SPINE_SWITCH)

    @cached_property
    def spine_numbers(self) -> dict[str, int]:
        """The index of each spine switch in its plane, by its name."""
        return {
            name: self.switch_by_name[name].index % self.spec.nic.spines
            for name in self.spine_switches
        }

    @cached_property
    def switch_by_name(self) -> dict[str, OpenFlowSwitch]:
        """Rail and spine switches by their names."""
        return {switch.name: switch for switch in self.switches}

    @cached_property
    def gpu_at(self) -> dict[Slot, Gpu]:
        """GPUs by their domain and rail."""
        return {(gpu.domain, gpu.rail): gpu for gpu in self.gpus}

    @cached_property
    def lane_at(self) -> dict[tuple[int, int], Gpu]:
        """Destinations by domain and number: the domain's slots in order, each by all lanes."""
        lanes = self.spec.lanes
        return {
            (gpu.domain, gpu.rail * lanes + lane): gpu.by(lane)
            for gpu in self.gpus
            for lane in range(lanes)
        }

    def domain(self, domain: int) -> tuple[Gpu, ...]:
        """All GPUs of an HB domain."""
        return self._domains[domain]

    @cached_property
    def _domains(self) -> dict[int, tuple[Gpu, ...]]:
        by_domain = groupby(self.gpus, key=lambda gpu: gpu.domain)
        return {domain: tuple(gpus) for domain, gpus in by_domain}

    @cached_property
    def job_gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that a job uses before any is replaced, in rank order."""
        size, domains = self.spec.job_size, self.spec.job_domains
        return tuple(gpu for gpu in self.gpus if gpu.rail < size and gpu.domain < domains)

    @cached_property
    def gpu_by_name(self) -> dict[str, Gpu]:
        """GPUs by their names."""
        return {gpu.name: gpu for gpu in self.gpus}

    @cached_property
    def _links_by_node(self) -> dict[str, list[Link]]:
        links = defaultdict(list)
        for link in self.links:
            links[link.lower.node].append(link)
            links[link.upper.node].append(link)
        return links

    def links_of(self, node: str) -> list[Link]:
        """All links that end at `node`."""
        return self._links_by_node[node]

    def link_of(self, gpu: Gpu, kind: LinkKind) -> Link:
        """A GPU's HB link or its NIC link."""
        return next(link for link in self._links_by_node[gpu.name] if link.kind is kind)

    @cached_property
    def _nic_links(self) -> dict[Gpu, tuple[Link, ...]]:
        return {
            gpu: tuple(link for link in self.links_of(gpu.name) if link.kind is LinkKind.NIC)
            for gpu in self.gpus
        }

    def nic_links(self, gpu: Gpu) -> tuple[Link, ...]:
        """The NIC links of a GPU by lane; none if it shares the NIC of another GPU."""
        return self._nic_links[gpu.gpu]

    def holder(self, gpu: Gpu) -> Gpu:
        """The GPU with the NIC that a GPU uses: itself, or the first of those that share it."""
        return self.gpu_at[self.spec.grid.holders[gpu.domain, gpu.rail]]

    def hb_hops(self, source: Gpu, destination: Gpu) -> tuple[Hop, ...]:
        """The hops between two GPUs of an HB domain, over the second level if leaves differ."""
        into, out = self.link_of(source, LinkKind.HB), self.link_of(destination, LinkKind.HB)
        first, last = into.upper.node, out.upper.node
        up, down = Hop(into, source.name), Hop(out, last)
        if first == last:
            return up, down
        ascent, descent = self.trunks[first], self.trunks[last]
        return up, Hop(ascent, first), Hop(descent, descent.upper.node), down

    @cached_property
    def trunks(self) -> dict[str, Link]:
        """The link of each leaf HB switch to the second level, by the leaf's name."""
        return {link.lower.node: link for link in self.links if link.kind is LinkKind.HB_TRUNK}

    def hb_ports(self, switch: str) -> dict[Port, tuple[Gpu, ...]]:
        """The ports of an HB switch, each with the GPUs that it leads to; a trunk to all others."""
        below = self.links_below(switch)
        ports = {link.upper: self.gpus_below(link) for link in below}
        if switch not in self.trunks:
            return ports
        near = {gpu for gpus in ports.values() for gpu in gpus}
        far = (gpu for gpu in self.domain(next(iter(near)).domain) if gpu not in near)
        return ports | {self.trunks[switch].lower: tuple(far)}

    def uplinks_of(self, switch: str) -> list[Hop]:
        """The hops from a switch to the tier above, and within its own, in the order of ports."""
        hops = (Hop(link, switch) for link in self._links_by_node[switch])
        return [hop for hop in hops if self.tier_of.get(hop.receiver, -1) >= self.tier_of[switch]]

    @cached_property
    def tier_of(self) -> dict[str, int]:
        """The number of each switch's tier, by its name."""
        return {switch: tier for tier, of in enumerate(self.tiers) for switch in of}

    def links_below(self, switch: str) -> list[Link]:
        """The links of a switch that lead down, to GPUs or to other switches."""
        return [link for link in self._links_by_node[switch] if link.upper.node == switch]

    def gpus_below(self, link: Link) -> tuple[Gpu, ...]:
        """The GPUs at the lower end of a link, or below the switch there."""
        node = link.lower.node
        if node in self.gpu_by_name:
            return (self.gpu_by_name[node],)
        return tuple(gpu for lower in self.links_below(node) for gpu in self.gpus_below(lower))

    @cached_property
    def tiers(self) -> tuple[tuple[str, ...], ...]:
        """Names of the rail switches, then of the switches of each tier above them."""
        if self.spec.nic.links:
            return tiers(self.spec.nic.links, self.spec.gpu_names)
        return (self.rail_switches, self.spine_switches)[: 2 if self.spine_switches else 1]

    @cached_property
    def nic_numbers(self) -> dict[str, int]:
        """A number for each NIC link, by its name: lane by lane, and rail switch by rail switch.

        So the flows of one lane, which meet at switches, have consecutive numbers.
        """
        links = chain.from_iterable(map(self.links_below, self.rail_switches))
        nics = sorted((link for link in links if link.kind is LinkKind.NIC), key=lane_of)
        return {link.name: number for number, link in enumerate(nics)}

    @cached_property
    def divisors(self) -> dict[str, int]:
        """Of a custom fabric's switches: see `model.fabric.wiring.divisors`."""
        return divisors(self.spec.nic.links, self.spec.gpu_names)

    @cached_property
    def least_depth_s(self) -> float:
        """Depth of the shallowest bucket in seconds: a shorter pause slows no link down."""
        return min(link.depth_s for link in self.links)

    @cached_property
    def slowest_bps(self) -> int:
        """Nominal rate in bit/s of the slowest link."""
        return min(link.rate_bps for link in self.links)

    @cached_property
    def tcp_timeout_s(self) -> float:
        """Least retransmission timeout of TCP between GPUs."""
        spec = self.spec
        gpus, under_way_bytes = len(self.gpus), spec.under_way_bytes(by_nic=True)
        return least_timeout_s(
            self.slowest_bps, spec.domains, gpus, spec.grain_packets, under_way_bytes
        )

    @cached_property
    def link_by_name(self) -> dict[str, Link]:
        """Links by their names."""
        return {link.name: link for link in self.links}

    @cached_property
    def link_by_interface(self) -> dict[str, Link]:
        """Links by the names of their interfaces at switches."""
        between = (link for link in self.links if link.kind in BETWEEN_SWITCHES)
        upper = {link.upper.interface: link for link in self.links}
        return upper | {link.lower.interface: link for link in between}

    @cached_property
    def digest(self) -> str:
        """First 16 hex digits of the SHA-256 of all fields: equal digests mean equal topologies."""
        text = json.dumps(self, default=_fields_of, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _fields_of(part: Any) -> dict[str, object]:
    if isinstance(part, FabricSpec):
        return flat(part)
    return {field.name: getattr(part, field.name) for field in fields(part)}
