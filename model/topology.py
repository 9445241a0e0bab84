"""The parts of a fabric and how they are joined: the one source of names, ports and capacities."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property

from model.fabric import FabricKind, FabricSpec


class NodeKind(StrEnum):
    """What a node of the fabric is."""

    GPU = "gpu"
    HB_SWITCH = "hb-switch"
    RAIL_SWITCH = "rail-switch"
    SPINE_SWITCH = "spine-switch"


class LinkKind(StrEnum):
    """What a link of the fabric is."""

    HB = "hb-link"
    NIC = "nic-link"
    UPLINK = "uplink"


@dataclass(frozen=True)
class Port:
    """One end of a link: the node, the number of the port (from 1) and its interface's name."""

    node: str
    number: int
    interface: str


@dataclass(frozen=True)
class Link:
    """A full-duplex link. `rate_bps` is the emulated rate of either direction.

    `lower` is the end that is nearer to the GPU.
    """

    kind: LinkKind
    lower: Port
    upper: Port
    rate_bps: int

    @property
    def name(self) -> str:
        """The link's name, as faults and reports use it."""
        return f"{self.lower.node}--{self.upper.node}"

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

    @property
    def name(self) -> str:
        """The GPU proxy's name."""
        return gpu_name(self.domain, self.rail)


def gpu_name(domain: int, rail: int) -> str:
    """The name of the GPU with local rank `rail` in `domain`."""
    return f"d{domain}g{rail}"


def hb_switch_name(domain: int) -> str:
    """The name of an HB domain's switch."""
    return f"hb{domain}"


def rail_switch_name(rail: int) -> str:
    """The name of a rail's switch."""
    return f"rail{rail}"


def spine_switch_name(spine: int) -> str:
    """The name of a spine switch."""
    return f"spine{spine}"


@dataclass(frozen=True)
class Topology:
    """A fabric's nodes and links. GPUs are in rank order: all of domain 0 first."""

    spec: FabricSpec
    gpus: tuple[Gpu, ...]
    hb_switches: tuple[str, ...]
    rail_switches: tuple[str, ...]
    spine_switches: tuple[str, ...]
    links: tuple[Link, ...]

    @property
    def openflow_switches(self) -> tuple[str, ...]:
        """The switches that the controller programs; a switch's place gives its datapath id."""
        return self.rail_switches + self.spine_switches

    def datapath_id(self, switch: str) -> int:
        """The OpenFlow datapath id of a rail or spine switch, from 1."""
        return self.openflow_switches.index(switch) + 1

    def gpu(self, domain: int, rail: int) -> Gpu:
        """The GPU at a place."""
        return self.gpus[domain * self.spec.domain_size + rail]

    @cached_property
    def gpu_by_name(self) -> dict[str, Gpu]:
        """GPUs by their names."""
        return {gpu.name: gpu for gpu in self.gpus}

    @cached_property
    def _link_by_ends(self) -> dict[tuple[str, str], Link]:
        return {(link.lower.node, link.upper.node): link for link in self.links}

    def link_between(self, lower: str, upper: str) -> Link:
        """The link from `lower` up to `upper`."""
        return self._link_by_ends[lower, upper]

    def links_of(self, node: str) -> Iterator[Link]:
        """All links that end at `node`."""
        return (link for link in self.links if node in (link.lower.node, link.upper.node))

    @cached_property
    def digest(self) -> str:
        """A fingerprint: predictions and measurements of different topologies are not compared."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def build_topology(spec: FabricSpec) -> Topology:
    """Lay out the fabric that `spec` describes."""
    gpus = tuple(Gpu(d, r) for d in range(spec.domains) for r in range(spec.domain_size))
    rail_optimized = spec.kind is FabricKind.RAIL_OPTIMIZED
    spines = range(spec.spines if rail_optimized else 0)
    return Topology(
        spec=spec,
        gpus=gpus,
        hb_switches=tuple(hb_switch_name(domain) for domain in range(spec.domains)),
        rail_switches=tuple(rail_switch_name(rail) for rail in range(spec.domain_size)),
        spine_switches=tuple(spine_switch_name(spine) for spine in spines),
        links=(
            *(_hb_link(spec, gpu) for gpu in gpus),
            *(_nic_link(spec, gpu) for gpu in gpus),
            *(_uplink(spec, rail, s) for rail in range(spec.domain_size) for s in spines),
        ),
    )


def _hb_link(spec: FabricSpec, gpu: Gpu) -> Link:
    switch = hb_switch_name(gpu.domain)
    return Link(
        LinkKind.HB,
        Port(gpu.name, 1, "hb0"),
        Port(switch, gpu.rail + 1, f"{switch}-g{gpu.rail}"),
        round(spec.emulated_hb_bps),
    )


def _nic_link(spec: FabricSpec, gpu: Gpu) -> Link:
    switch = rail_switch_name(gpu.rail)
    return Link(
        LinkKind.NIC,
        Port(gpu.name, 2, "nic0"),
        Port(switch, gpu.domain + 1, f"{switch}-d{gpu.domain}"),
        round(spec.emulated_nic_bps),
    )


def _uplink(spec: FabricSpec, rail: int, spine: int) -> Link:
    rail_switch, spine_switch = rail_switch_name(rail), spine_switch_name(spine)
    return Link(
        LinkKind.UPLINK,
        Port(rail_switch, spec.domains + spine + 1, f"{rail_switch}-s{spine}"),
        Port(spine_switch, rail + 1, f"{spine_switch}-r{rail}"),
        round(spec.emulated_uplink_bps),
    )
