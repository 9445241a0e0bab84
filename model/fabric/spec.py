"""The specification of a fabric, as resolved from a scenario; its flat fields; known platforms."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from operator import attrgetter
from typing import Any

from model.fabric.job_grid import JobGrid, Slot
from model.fabric.shaping import (
    DEFAULT_DEPTH_S,
    DEFAULT_WINDOW,
    LINUX_QUEUE,
    MTU_BYTES,
    SEGMENT_PACKETS,
    UNIMPAIRED,
    USUAL_TIMEOUT_S,
    Impairment,
    SwitchQueue,
    send_buffer_bytes,
)
from model.fabric.transport import DEFAULT_ROCE, MOST_ENTROPIES, Roce, Transport
from model.fabric.wiring import Wiring, longest_delay_s
from model.sentences import counted

GBIT = 1_000_000_000


class FabricKind(StrEnum):
    """The networks that the rail-only paper compares (arXiv 2307.12169, figure 1), and any other.

    A custom fabric has the links of its specification above the NICs.
    """

    RAIL_ONLY = "rail-only"
    RAIL_OPTIMIZED = "rail-optimized"
    CUSTOM = "custom"


COMPARED = (FabricKind.RAIL_ONLY, FabricKind.RAIL_OPTIMIZED)


class Datapath(StrEnum):
    """The Open vSwitch datapath in which rail and spine switches forward packets."""

    KERNEL = "kernel"
    USER_SPACE = "user-space"


class SpineSelection(StrEnum):
    """How a rail switch selects the spine switch of a packet, while all work."""

    DESTINATION = "destination"
    HASH = "hash"
    SPRAY = "spray"


class Planes(StrEnum):
    """How the two rail switches of a rail are joined, to which each NIC has a port.

    Bonded, as dual ToR: the spine switches join all rail switches. Separate: each plane has spine
    switches of its own. Rail-only has none: two switches that nothing joins, in both.
    """

    BONDED = "bonded"
    SEPARATE = "separate"


class Spread(StrEnum):
    """How the flows of two GPUs use their lanes: one by a hash, or all, each with a part."""

    QUEUE_PAIRS = "queue-pairs"
    HASH = "hash"


@dataclass(frozen=True)
class HbNetwork:
    """The network inside each HB domain; `rate_bps` is the real platform's rate of an HB link.

    With `leaves` of 2 or more, each HB domain has that number of leaf HB switches, with equally
    many GPUs each, and a second-level HB switch above them. The trunk of a leaf carries the sum of
    its HB links, divided by `oversubscription`. `impairment` is that of HB links and trunks.
    """

    rate_bps: int
    leaves: int = 1
    oversubscription: float = 1.0
    impairment: Impairment = UNIMPAIRED


@dataclass(frozen=True)
class NicNetwork:
    """The network between HB domains; `rate_bps` is the real platform's rate of a NIC link.

    `spines` and `oversubscription` apply where there are spine switches: the uplinks of a rail
    switch carry the sum of its NIC links, divided by `oversubscription`. With `leaves` of 2 or
    more, each rail of a rail-only fabric is a Clos network of `leaves` leaf and `spines` spine
    switches; leaves with fewer domains have equal uplinks. `spine_selection` is by destination, or
    by a hash of source and destination, with collisions. `impairment` is that of NIC links and
    uplinks, `queue` that of the switches' ports.

    A NIC has `ports`, 1 or 2, which share its rate: port p leads to the rail's switch of plane p.
    `per_domain` is the number of NICs of a domain; `None`: one for each GPU. With `pxn`, packets
    to another rail leave by the NIC of the peer on that rail, as on rail-only.

    A custom fabric has these `links`, of GPUs and switches, instead of rails and spines.
    """

    rate_bps: int
    spines: int
    leaves: int = 1
    oversubscription: float = 1.0
    spine_selection: SpineSelection = SpineSelection.DESTINATION
    impairment: Impairment = UNIMPAIRED
    ports: int = 1
    planes: Planes = Planes.BONDED
    spread: Spread = Spread.QUEUE_PAIRS
    per_domain: int | None = None
    pxn: bool = False
    queue: SwitchQueue = LINUX_QUEUE
    links: Wiring = ()


@dataclass(frozen=True)
class Spares:
    """Idle replacements: the last `domains` domains, and the last `gpus` GPUs of each domain.

    Spare rail switches have ports for all domains, but no GPU until an optical switch moves NIC
    links to them.
    """

    domains: int = 0
    gpus: int = 0
    rail_switches: int = 0


@dataclass(frozen=True)
class FabricSpec:
    """A fabric of `domains` HB domains with `domain_size` GPUs each, spares included.

    The slots of the grid that are `missing` hold no GPU: it has no proxy, and no links.
    Rates are those of the real platform, in bit/s per direction; emulated rates are these divided
    by `bandwidth_scale`. `seed` rotates the choice of spines, reproducibly. `bucket_depth_s` is the
    depth of each link's token bucket, in seconds of its rate. `grain_packets` is the number of
    packets of a full segment, in which flows take turns, `window` the most transfers of a
    connection that were sent and are not confirmed. `datapath` is the requested one; `None` is
    the machine's default. `roce` says how GPUs of different HB domains send by that transport.
    """

    kind: FabricKind
    domains: int
    domain_size: int
    platform: str
    hb: HbNetwork
    nic: NicNetwork
    bandwidth_scale: float
    seed: int = 0
    spares: Spares = Spares()
    bucket_depth_s: float = DEFAULT_DEPTH_S
    grain_packets: int = SEGMENT_PACKETS
    window: int = DEFAULT_WINDOW
    datapath: Datapath | None = None
    transport: Transport = Transport.TCP
    roce: Roce = DEFAULT_ROCE
    missing: tuple[Slot, ...] = ()

    @property
    def job_domains(self) -> int:
        """The number of domains that a job uses, y."""
        return self.domains - self.spares.domains

    @property
    def job_size(self) -> int:
        """The number of GPUs of a domain that a job uses, x."""
        return self.domain_size - self.spares.gpus

    @property
    def job_shape(self) -> tuple[int, int]:
        """The domains that a job uses, and the slots of each."""
        return self.job_domains, self.job_size

    @cached_property
    def grid(self) -> JobGrid:
        """The grid of all GPUs, spares included."""
        gpus_per_nic = max(1, self.domain_size // self.nics)
        return JobGrid(self.domains, self.domain_size, self.missing, gpus_per_nic)

    @property
    def job_grid(self) -> JobGrid:
        """The grid that a job uses; only GPUs of a job can be missing."""
        return replace(self.grid, domains=self.job_domains, size=self.job_size)

    @property
    def gpus(self) -> int:
        """The number of GPUs that a job uses, N."""
        return self.job_grid.gpus

    @property
    def remarks(self) -> str:
        """What it has besides a usual fabric, to be said after the sizes; empty if nothing."""
        spares, several, switches = self.spares, self.nic.ports > 1, self.spares.rail_switches
        said = {
            f"{len(self.missing)} missing": self.missing,
            counted(spares.domains, "spare domain"): spares.domains,
            counted(spares.gpus, "spare GPU", "in each"): spares.gpus,
            f"{switches} spare rail switch{'es' * (switches != 1)}": switches,
            f"{counted(self.nics, 'NIC')} a domain": self.nic.per_domain,
            f"{self.nic.ports} ports a NIC": several,
            "separate planes": several and self.nic.planes is Planes.SEPARATE,
            "PXN": self.nic.pxn,
            "RoCE": self.transport is Transport.ROCE,
        }
        return "".join(f", {words}" for words, holds in said.items() if holds)

    @property
    def nics(self) -> int:
        """The number of NICs of a domain, which is that of its rails."""
        return self.nic.per_domain or self.domain_size

    @cached_property
    def lanes(self) -> int:
        """The number of NIC ports that a GPU uses; GPUs that share a NIC share its ports."""
        return self.nic.ports * max(1, self.nics // self.domain_size)

    @property
    def has_whole_nics(self) -> bool:
        """Whether every GPU has a NIC, and each transfer all of its rate."""
        return self.nics == self.domain_size and self.nic.spread is Spread.QUEUE_PAIRS

    @property
    def link_mtu_bytes(self) -> int:
        """The longest IP packet that links carry: with RoCE, one of its packets."""
        return MTU_BYTES if self.transport is Transport.TCP else self.roce.link_mtu_bytes

    @property
    def retransmission_timeout_s(self) -> float:
        """Emulated seconds after which a queue pair repeats what is not acknowledged.

        By default all other GPUs may have filled all queues of a path, with full windows;
        `model.prediction.timeouts` follows the paths.
        """
        if self.roce.timeout_s is not None:
            return self.roce.timeout_s
        return self.answered_within_s(min(self.emulated_rates_bps.values()))

    def answered_within_s(self, slowest_bps: float, queues_s: float | None = None) -> float:
        """Emulated seconds of a round trip behind the queues of a path, which take `queues_s`.

        By default, all other GPUs have full windows in each, of links of this rate.
        """
        if queues_s is None:
            waiting_bytes = self.roce.window * self.roce.frame_bytes * self.roce.queue_pairs
            others = self.domains * self.domain_size - 1
            queues_s = (2 + self.most_nic_links) * others * waiting_bytes * 8 / slowest_bps
        return max(USUAL_TIMEOUT_S, 2 * self.longest_delay_s + queues_s)

    @property
    def hb_delay_s(self) -> float:
        """Emulated seconds that the links of the longest path in an HB domain delay a packet."""
        return (2 if self.hb.leaves == 1 else 4) * self.hb.impairment.delay_s

    @property
    def most_nic_links(self) -> int:
        """The most NIC links and uplinks of any path without failures.

        It leads up and down the layers of switches. That of a custom fabric may meet each of its
        switches, but none twice.
        """
        return 4 if self.has_spines else max(2, 1 + len({wire.upper for wire in self.nic.links}))

    @property
    def longest_delay_s(self) -> float:
        """Emulated seconds that the links of any path without failures delay a packet at most.

        It leads across the HB domains of both ends.
        """
        wires = self.nic.links
        each_s = self.nic.impairment.delay_s + max((wire.delay_s for wire in wires), default=0.0)
        return 2 * self.hb_delay_s + self.most_nic_links * each_s

    def under_way_bytes(self, *, by_nic: bool) -> float:
        """Bytes that a link of a GPU carries while its packets are delayed to and fro."""
        if not by_nic:
            return 2 * self.hb_delay_s * self.emulated_hb_bps / 8
        rate_bps, delay_s, wires = self.emulated_port_bps, self.longest_delay_s, self.nic.links
        if wires:
            gpus = self.gpu_names
            of_gpus = set(gpus)
            fastest_bps = max(wire.rate_bps for wire in wires if wire.lower in of_gpus)
            rate_bps = fastest_bps / self.bandwidth_scale
            own_s = longest_delay_s(wires, gpus, self.nic.impairment.delay_s)
            delay_s = self.hb_delay_s + own_s
        return 2 * delay_s * rate_bps / 8

    def send_buffer_bytes(self, *, by_nic: bool) -> int:
        """The send buffer to ask for, of a connection of TCP over NICs or HB links."""
        return send_buffer_bytes(self.grain_packets, self.under_way_bytes(by_nic=by_nic))

    @property
    def breaks_after_s(self) -> float:
        """Emulated seconds after which a queue pair without any answer breaks; 0 of TCP."""
        if self.transport is Transport.TCP:
            return 0.0
        return (1 + self.roce.retries) * self.retransmission_timeout_s

    @property
    def has_spines(self) -> bool:
        """Whether there are spine switches, for the whole fabric or for each rail."""
        return self.kind is FabricKind.RAIL_OPTIMIZED or self.nic.leaves > 1

    @property
    def most_spines_used(self) -> int:
        """The most spine switches, of those for a packet to choose from, that all data reaches."""
        by_hash = self.nic.spine_selection is SpineSelection.HASH
        of_domains = self.nic.spines if by_hash else self.domains + self.entropies - 1
        return min(self.nic.spines, of_domains)

    @property
    def keys_without_forms(self) -> tuple[str, ...]:
        """The keys by which flows share links as no closed form knows, by any transport."""
        found = {
            "links": bool(self.nic.links),
            "hb_leaves": self.hb.leaves > 1,
            "rail_leaves": self.nic.leaves > 1,
            "nics_per_domain": self.nics != self.domain_size,
            "spread": self.nic.spread is not Spread.QUEUE_PAIRS,
            "oversubscription": self.has_spines and self.nic.oversubscription != 1,
            "spine_selection": self.has_spines
            and self.nic.spine_selection is not SpineSelection.DESTINATION,
            # Else the spine switches have unequal shares of the domains.
            "spines": self.has_spines and self.domains % self.nic.spines > 0,
            # Forms of NICs and HB links at once: an HB link carries the flows of two NICs.
            "hb_rate": 1 not in self.job_shape and self.hb.rate_bps < 2 * self.nic.rate_bps,
        }
        return tuple(key for key, is_so in found.items() if is_so)

    @property
    def routed_as(self) -> FabricKind:
        """The kind of fabric that has the same paths while nothing has failed."""
        return FabricKind.RAIL_ONLY if self.nic.pxn else self.kind

    @property
    def entropies(self) -> int:
        """Paths over switches between two GPUs, by the UDP source ports of RoCE's packets.

        By hash each queue pair has one; with packet spraying the packets take all in turn.
        """
        if self.transport is Transport.TCP or not (self.has_spines or self.nic.links):
            return 1
        by_selection = {
            SpineSelection.HASH: self.roce.queue_pairs,
            SpineSelection.SPRAY: min(self.nic.spines, MOST_ENTROPIES),
        }
        return by_selection.get(self.nic.spine_selection, 1)

    @property
    def sprays(self) -> bool:
        """Whether the packets of a queue pair take several paths."""
        return self.nic.spine_selection is SpineSelection.SPRAY and self.entropies > 1

    @property
    def ways(self) -> int:
        """Paths over spine switches that a transfer takes at once."""
        return self.entropies if self.sprays or self.roce.split else 1

    @property
    def turns(self) -> int:
        """Queue pairs that the transfers of two GPUs take in turn."""
        return 1 if self.transport is Transport.TCP or self.roce.split else self.roce.queue_pairs

    @property
    def entropy_mask(self) -> int:
        """The last bits of a UDP source port, in which the number of the path is."""
        return (1 << (self.entropies - 1).bit_length()) - 1

    @property
    def is_impaired(self) -> bool:
        """Whether links delay or lose packets."""
        some = any(link.delay_s or link.loss for link in self.nic.links)
        return bool(self.hb.impairment or self.nic.impairment or some)

    @property
    def gpu_names(self) -> tuple[str, ...]:
        """The names of all GPUs, by domain and then by local rank."""
        return tuple(f"d{domain}g{rail}" for domain, rail in self.grid.slots)

    @property
    def emulated_hb_bps(self) -> float:
        """The rate of an emulated HB link, in bit/s."""
        return self.hb.rate_bps / self.bandwidth_scale

    @property
    def emulated_hb_trunk_bps(self) -> float:
        """The rate of an emulated trunk above a leaf HB switch, in bit/s."""
        real_bps = self.domain_size / self.hb.leaves * self.hb.rate_bps / self.hb.oversubscription
        return real_bps / self.bandwidth_scale

    @property
    def emulated_nic_bps(self) -> float:
        """The rate of an emulated NIC, in bit/s: that of all its links."""
        return self.nic.rate_bps / self.bandwidth_scale

    @property
    def emulated_port_bps(self) -> float:
        """The rate of an emulated NIC link, in bit/s."""
        return self.emulated_nic_bps / self.nic.ports

    @property
    def emulated_uplink_bps(self) -> float:
        """The rate of one emulated uplink from a rail switch to a spine switch, in bit/s.

        All leaves of a rail have the uplinks of the one with most domains.
        """
        downlinks_bps = -(-self.domains // self.nic.leaves) * self.emulated_port_bps
        return downlinks_bps / (self.nic.spines * self.nic.oversubscription)

    @property
    def emulated_rates_bps(self) -> dict[str, float]:
        """The rates of all emulated links in bit/s, by what they are."""
        rates = {"an HB link": self.emulated_hb_bps}
        for wire in self.nic.links:
            rates[f"link {wire.lower}--{wire.upper}"] = wire.rate_bps / self.bandwidth_scale
        if not self.nic.links:
            rates["a NIC link"] = self.emulated_port_bps
        if self.has_spines:
            rates["an uplink"] = self.emulated_uplink_bps
        if self.hb.leaves > 1:
            rates["a trunk between HB switches"] = self.emulated_hb_trunk_bps
        return rates


@dataclass(frozen=True)
class Platform:
    """Bandwidths of a GPU in bit/s per direction: to its HB domain (C_F), and of its NIC (C_S).

    An HB domain has `domain_size` GPUs. `hb_link_s` and `nic_link_s` are latencies in seconds: of a
    link into the HB domain, and of a NIC's or a switch's link, by default those of SimAI's topology
    generator (`--nv_latency` and `--latency` of its gen_Topo_Template.py). They are of the network
    alone: what NCCL adds for each step, some microseconds, is not in them.
    """

    name: str
    hb_rate_bps: int
    nic_rate_bps: int
    domain_size: int
    hb_link_s: float = 25e-9
    nic_link_s: float = 500e-9


# Those of arXiv 2307.12169, section II-A. DGX A100: 600 GB/s bidirectional NVLink 3 and HDR
# InfiniBand. Others by their data sheets: DGX H200, with the links of DGX H100; H800, 400 GB/s
# bidirectional NVLink; NVLink 5, 1800 GB/s bidirectional, with ConnectX-7 (DGX B200) or ConnectX-8
# (GB300 NVL72); MI355X, seven links of 153.6 GB/s bidirectional.
PLATFORMS = {
    platform.name: platform
    for platform in (
        Platform("dgx-a100", 2400 * GBIT, 200 * GBIT, 8),
        Platform("dgx-h100", 3600 * GBIT, 400 * GBIT, 8),
        Platform("dgx-h200", 3600 * GBIT, 400 * GBIT, 8),
        Platform("h800", 1600 * GBIT, 400 * GBIT, 8),
        Platform("mi300x", 3600 * GBIT, 400 * GBIT, 8),
        Platform("gh200", 3600 * GBIT, 400 * GBIT, 256),
        Platform("gb200-nvl72", 7200 * GBIT, 400 * GBIT, 72),
        Platform("dgx-b200", 7200 * GBIT, 400 * GBIT, 8),
        Platform("gb300-nvl72", 7200 * GBIT, 800 * GBIT, 72),
        Platform("mi355x", 4300 * GBIT, 400 * GBIT, 8),
    )
}

# The fields in their order, each with its place in the records.
PLACES = {
    "kind": "kind",
    "domains": "domains",
    "domain_size": "domain_size",
    "platform": "platform",
    "hb_rate_bps": "hb.rate_bps",
    "nic_rate_bps": "nic.rate_bps",
    "bandwidth_scale": "bandwidth_scale",
    "spines": "nic.spines",
    "oversubscription": "nic.oversubscription",
    "seed": "seed",
    "rail_leaves": "nic.leaves",
    "spare_domains": "spares.domains",
    "spare_gpus": "spares.gpus",
    "spare_rail_switches": "spares.rail_switches",
    "bucket_depth_s": "bucket_depth_s",
    "grain_packets": "grain_packets",
    "window": "window",
    "datapath": "datapath",
    "hb_delay_s": "hb.impairment.delay_s",
    "hb_loss": "hb.impairment.loss",
    "nic_delay_s": "nic.impairment.delay_s",
    "nic_loss": "nic.impairment.loss",
    "spine_selection": "nic.spine_selection",
    "hb_leaves": "hb.leaves",
    "hb_oversubscription": "hb.oversubscription",
    "nic_ports": "nic.ports",
    "planes": "nic.planes",
    "spread": "nic.spread",
    "nics_per_domain": "nic.per_domain",
    "pxn": "nic.pxn",
    "transport": "transport",
    "mtu": "roce.mtu",
    "queue_pairs": "roce.queue_pairs",
    "split_data": "roce.split",
    "congestion": "roce.congestion",
    "recovery": "roce.recovery",
    "packet_window": "roce.window",
    "retransmission_timeout_s": "roce.timeout_s",
    "retries": "roce.retries",
    "buffer_bytes": "nic.queue.buffer_bytes",
    "ecn": "nic.queue.ecn",
    "kmin_bytes": "nic.queue.kmin_bytes",
    "kmax_bytes": "nic.queue.kmax_bytes",
    "pmax": "nic.queue.pmax",
    "missing": "missing",
    "links": "nic.links",
}


def flat(spec: FabricSpec) -> dict[str, Any]:
    """Return the fields of a specification."""
    return {name: attrgetter(place)(spec) for name, place in PLACES.items()}


def grouped(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields as objects within each other, like the records."""
    nested: dict[str, Any] = {}
    for name, place in PLACES.items():
        *groups, last = place.split(".")
        inside = nested
        for group in groups:
            inside = inside.setdefault(group, {})
        inside[last] = fields[name]
    return nested
