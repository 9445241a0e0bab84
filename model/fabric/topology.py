"""Nodes and links of a fabric: the only source of names, ports and link rates."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cached_property
from itertools import chain, groupby, product
from typing import Any

from model.fabric.job_grid import Slot
from model.fabric.shaping import (
    DEFAULT_DEPTH_S,
    LINUX_QUEUE,
    SWITCH_BURST_BYTES,
    UNIMPAIRED,
    Impairment,
    Shaper,
    least_timeout_s,
)
from model.fabric.spec import PLACES, FabricKind, FabricSpec, NicNetwork, Planes, flat
from model.fabric.transport import Transport
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

    def port_of(self, node: str) -> Port:
        """The link's port on `node`."""
        return self.lower if self.lower.node == node else self.upper

    def other_end(self, node: str) -> str:
        """The node at the other end."""
        return self.upper.node if self.lower.node == node else self.lower.node


@dataclass(frozen=True)
class Hop:
    """One direction of a link: from `sender` over `link`."""

    link: Link
    sender: str

    @property
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


def hb_switch_name(domain: int) -> str:
    """The name of an HB domain's switch, of the second level where there are leaves below it."""
    return f"hb{domain}"


def rail_switch_name(rail: int) -> str:
    """The name of a rail's switch."""
    return f"rail{rail}"


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


# A port of the OCS to a rail switch: the rail, and the domain that the port is for.
OcsPort = tuple[int, int]
# OCS cross-connects: the port of each NIC link, by domain and then by NIC and its port.
CrossConnects = tuple[tuple[OcsPort, ...], ...]


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
    def switch_by_name(self) -> dict[str, OpenFlowSwitch]:
        """Rail and spine switches by their names."""
        return {switch.name: switch for switch in self.switches}

    @cached_property
    def gpu_at(self) -> dict[Slot, Gpu]:
        """GPUs by their domain and rail."""
        return {(gpu.domain, gpu.rail): gpu for gpu in self.gpus}

    def gpu(self, domain: int, rail: int) -> Gpu:
        """The GPU of a domain and a rail."""
        return self.gpu_at[domain, rail]

    def lane(self, domain: int, number: int) -> Gpu:
        """The destination with this number in a domain: its GPUs in order, each by all lanes."""
        rail, lane = divmod(number, self.spec.lanes)
        return self.gpu(domain, rail).by(lane)

    def lane_if_any(self, domain: int, number: int) -> Gpu | None:
        """The same; `None` where the GPU is missing."""
        is_there = (domain, number // self.spec.lanes) in self.gpu_at
        return self.lane(domain, number) if is_there else None

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
        sharing = _sharing(
            self.spec, gpu.domain, gpu.rail * self.spec.nics // self.spec.domain_size
        )
        return next(self.gpu_at[slot] for slot in sharing if slot in self.gpu_at)

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

    def uplinks_of(self, switch: str) -> list[Link]:
        """The links of a switch that lead up, in the order of their ports."""
        return [link for link in self._links_by_node[switch] if link.lower.node == switch]

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
        """A number for each NIC link, by its name: rail switch by rail switch, in their order."""
        links = chain.from_iterable(map(self.links_below, self.rail_switches))
        nics = (link.name for link in links if link.kind is LinkKind.NIC)
        return {name: number for number, name in enumerate(nics)}

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
        return least_timeout_s(self.slowest_bps, spec.domains, len(self.gpus), spec.grain_packets)

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


# What a fabric has that asks for nothing else; its digest has none of these.
USUAL: dict[str, object] = {
    "missing": FabricSpec.missing,
    "nic_ports": NicNetwork.ports,
    "planes": NicNetwork.planes,
    "spread": NicNetwork.spread,
    "nics_per_domain": NicNetwork.per_domain,
    "buffer_bytes": LINUX_QUEUE.buffer_bytes,
    "ecn": LINUX_QUEUE.ecn,
    "kmin_bytes": LINUX_QUEUE.kmin_bytes,
    "kmax_bytes": LINUX_QUEUE.kmax_bytes,
    "pmax": LINUX_QUEUE.pmax,
    "links": NicNetwork.links,
}
ABSENT = object()
# What only a fabric with RoCE has in its digest.
BY_ROCE = {"transport", *(name for name, place in PLACES.items() if place.startswith("roce."))}


def _fields_of(part: Any) -> dict[str, object]:
    if isinstance(part, FabricSpec):
        fields_of = flat(part).items()
        left_out = BY_ROCE if part.transport is Transport.TCP else set[str]()
        return {
            name: value
            for name, value in fields_of
            if value != USUAL.get(name, ABSENT) and name not in left_out
        }
    return {field.name: getattr(part, field.name) for field in fields(part)}


def straight_cross_connects(spec: FabricSpec) -> CrossConnects:
    """Return the initial cross-connects: each NIC link leads to its own rail and plane."""
    domains, rails = range(spec.domains), range(spec.nics * spec.nic.ports)
    return tuple(tuple((rail, domain) for rail in rails) for domain in domains)


def exchanged(cross_connects: CrossConnects, gpu: Gpu, ocs_port: OcsPort) -> CrossConnects:
    """Move a GPU's NIC link to an OCS port, and the link that was there to the old port."""
    before = cross_connects[gpu.domain][gpu.rail]
    moved = {ocs_port: before, before: ocs_port}
    return tuple(tuple(moved.get(old, old) for old in of_domain) for of_domain in cross_connects)


def build_topology(spec: FabricSpec, cross_connects: CrossConnects | None = None) -> Topology:
    """Build the fabric of `spec` with these cross-connects, by default the initial ones."""
    cross_connects = cross_connects or straight_cross_connects(spec)
    slots = product(range(spec.domains), range(spec.domain_size))
    gpus = tuple(Gpu(*slot) for slot in slots if slot not in spec.missing)
    switches = tuple(_switches(spec))
    return Topology(
        spec=spec,
        gpus=gpus,
        hb_switches=tuple(hb_switch_name(domain) for domain in range(spec.domains)),
        hb_leaves=tuple(_hb_leaf_name(spec, *place) for place in _hb_leaf_places(spec)),
        switches=switches,
        links=(
            *_hb_links(spec, gpus),
            *(
                _custom_links(spec)
                if spec.nic.links
                else (*_nic_links(spec, gpus, cross_connects), *_uplinks(spec, switches))
            ),
        ),
    )


def _switches(spec: FabricSpec) -> Iterator[OpenFlowSwitch]:
    """Rail switches first, then spine switches."""
    if spec.nic.links:
        yield from _custom_switches(spec)
        return
    rails = range(spec.nics + spec.spares.rail_switches)
    for rail in rails:
        for leaf in range(spec.nic.leaves * spec.nic.ports):
            yield OpenFlowSwitch(_leaf_name(spec, rail, leaf), NodeKind.RAIL_SWITCH, rail, leaf)
    if spec.kind is FabricKind.RAIL_OPTIMIZED:
        for index in range(spec.nic.spines * _spine_planes(spec)):
            plane, spine = divmod(index, spec.nic.spines)
            name = f"spine{spine}" + (f"p{plane}" if _spine_planes(spec) > 1 else "")
            yield OpenFlowSwitch(name, NodeKind.SPINE_SWITCH, None, index)
    elif spec.nic.leaves > 1:
        for rail in rails:
            for spine in range(spec.nic.spines):
                name = f"{rail_switch_name(rail)}s{spine}"
                yield OpenFlowSwitch(name, NodeKind.SPINE_SWITCH, rail, spine)


def _leaf_name(spec: FabricSpec, rail: int, leaf: int) -> str:
    """Name of a leaf switch or of a plane's; a rail's only switch has the rail's name."""
    if spec.nic.ports > 1:
        return f"{rail_switch_name(rail)}p{leaf}"
    return rail_switch_name(rail) + (f"l{leaf}" if spec.nic.leaves > 1 else "")


def _spine_planes(spec: FabricSpec) -> int:
    """The number of planes that have spine switches of their own."""
    return spec.nic.ports if spec.nic.planes is Planes.SEPARATE else 1


def ocs_port_at(rail: int, port: int) -> OcsPort:
    """The OCS port that leads to a port (numbered from 1) of a rail's switch."""
    return rail, port - 1


def leaf_of_domain(spec: FabricSpec, domain: int) -> int:
    """Index of the leaf switch that serves a domain in every rail; neighbours share one."""
    return domain * spec.nic.leaves // spec.domains


def _hb_leaf_places(spec: FabricSpec) -> Iterator[tuple[int, int]]:
    """Yield the domain and the number of each leaf below another HB switch."""
    return product(range(spec.domains), range(spec.hb.leaves if spec.hb.leaves > 1 else 0))


def _hb_leaf_name(spec: FabricSpec, domain: int, leaf: int) -> str:
    """Name of a leaf HB switch; a domain's only switch has the domain's name."""
    return hb_switch_name(domain) + (f"l{leaf}" if spec.hb.leaves > 1 else "")


def _hb_links(spec: FabricSpec, gpus: tuple[Gpu, ...]) -> Iterator[Link]:
    """Yield all HB links, then the trunks; neighbouring GPUs share a leaf HB switch."""
    rate_bps, trunk_bps = round(spec.emulated_hb_bps), round(spec.emulated_hb_trunk_bps)
    shaping = spec.bucket_depth_s, spec.hb.impairment
    for gpu in gpus:
        switch = _hb_leaf_name(spec, gpu.domain, gpu.rail * spec.hb.leaves // spec.domain_size)
        lower = Port(gpu.name, 1, "hb0")
        upper = Port(switch, gpu.rail + 1, f"{switch}-g{gpu.rail}")
        yield Link(LinkKind.HB, lower, upper, rate_bps, *shaping)
    for domain, leaf in _hb_leaf_places(spec):
        name, above = _hb_leaf_name(spec, domain, leaf), hb_switch_name(domain)
        lower = Port(name, spec.domain_size + 1, f"{name}-up")
        upper = Port(above, leaf + 1, f"{above}-l{leaf}")
        yield Link(LinkKind.HB_TRUNK, lower, upper, trunk_bps, *shaping)


def _nic_links(
    spec: FabricSpec, gpus: tuple[Gpu, ...], cross_connects: CrossConnects
) -> Iterator[Link]:
    """Name the switch's interface for the GPU: an OCS may move the link to another switch."""
    rate_bps, ports = round(spec.emulated_port_bps), spec.nic.ports
    shaping = switch_depth_s(spec.bucket_depth_s, rate_bps), spec.nic.impairment
    gpu_at = {(gpu.domain, gpu.rail): gpu for gpu in gpus}
    for own, number in product(range(spec.domains), range(spec.nics * ports)):
        sharing = [slot for slot in _sharing(spec, own, number // ports) if slot in gpu_at]
        if not sharing:
            continue
        gpu = gpu_at[sharing[0]]
        lane = number % spec.lanes
        of_switch, domain = cross_connects[own][number]
        rail, plane = divmod(of_switch, ports)
        switch = _leaf_name(spec, rail, plane + leaf_of_domain(spec, domain))
        upper = Port(switch, domain + 1, f"to-{gpu.name}" + (f"p{lane}" if spec.lanes > 1 else ""))
        lower = Port(gpu.name, FIRST_NIC_PORT + lane, f"nic{lane}")
        yield Link(LinkKind.NIC, lower, upper, rate_bps, *shaping)


def _sharing(spec: FabricSpec, domain: int, nic: int) -> Iterator[Slot]:
    """Yield the slots whose GPUs share a NIC; the first one that is there has its links."""
    first = nic * spec.domain_size // spec.nics
    yield from ((domain, first + place) for place in range(max(1, spec.domain_size // spec.nics)))


def lane_of(nic_link: Link) -> int:
    """The lane of a NIC link."""
    return nic_link.lower.number - FIRST_NIC_PORT


def _uplinks(spec: FabricSpec, switches: tuple[OpenFlowSwitch, ...]) -> Iterator[Link]:
    """Yield the links from every rail switch to all spine switches of its rail or the fabric."""
    leaves = [switch for switch in switches if switch.kind is NodeKind.RAIL_SWITCH]
    spines = [switch for switch in switches if switch.kind is NodeKind.SPINE_SWITCH]
    for leaf in leaves:
        for spine in spines:
            if _are_joined(spec, leaf, spine):
                yield _uplink(spec, leaf, spine)


def _are_joined(spec: FabricSpec, leaf: OpenFlowSwitch, spine: OpenFlowSwitch) -> bool:
    if spine.rail is not None:
        return spine.rail == leaf.rail
    return _spine_planes(spec) == 1 or spine.index // spec.nic.spines == leaf.index


def _uplink(spec: FabricSpec, leaf: OpenFlowSwitch, spine: OpenFlowSwitch) -> Link:
    rate_bps = round(spec.emulated_uplink_bps)
    number = spec.domains + spine.index % spec.nic.spines + 1
    below = leaf.index
    if spine.rail is None:
        below += (leaf.rail or 0) * spec.nic.ports
    return Link(
        LinkKind.UPLINK,
        Port(leaf.name, number, f"{leaf.name}-s{spine.index}"),
        Port(spine.name, below + 1, f"{spine.name}-r{below}"),
        rate_bps,
        switch_depth_s(spec.bucket_depth_s, rate_bps),
        spec.nic.impairment,
    )


def _custom_switches(spec: FabricSpec) -> Iterator[OpenFlowSwitch]:
    """Yield the switches of the lowest tier, to which NICs have links, then those above."""
    lowest, *above = tiers(spec.nic.links, spec.gpu_names)
    for index, name in enumerate(lowest):
        yield OpenFlowSwitch(name, NodeKind.RAIL_SWITCH, None, index)
    for index, name in enumerate(chain.from_iterable(above)):
        yield OpenFlowSwitch(name, NodeKind.SPINE_SWITCH, None, index)


def _custom_links(spec: FabricSpec) -> Iterator[Link]:
    """Yield the links of NICs, then those between switches, whose ports are numbered in order."""
    gpus, used = set(spec.gpu_names), Counter[str]()
    for wire in sorted(spec.nic.links, key=lambda wire: wire.lower not in gpus):
        used[wire.upper] += 1
        upper = Port(wire.upper, used[wire.upper], f"{wire.upper}-{used[wire.upper]}")
        lane, number = used[wire.lower], used[wire.lower] + 1
        used[wire.lower] += 1
        lower = Port(wire.lower, number, f"{wire.lower}-{number}")
        kind, rate_bps = LinkKind.UPLINK, round(wire.rate_bps / spec.bandwidth_scale)
        if wire.lower in gpus:
            kind, lower = LinkKind.NIC, Port(wire.lower, FIRST_NIC_PORT + lane, f"nic{lane}")
        own = spec.nic.impairment
        impairment = replace(own, delay_s=own.delay_s + wire.delay_s)
        depth_s = switch_depth_s(spec.bucket_depth_s, rate_bps)
        yield Link(kind, lower, upper, rate_bps, depth_s, impairment)


def switch_depth_s(depth_s: float, rate_bps: int) -> float:
    """Bucket depth in seconds at a software switch: `depth_s`, but at most 64 KiB."""
    return min(depth_s, SWITCH_BURST_BYTES * 8 / rate_bps)
