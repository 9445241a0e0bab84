"""The platform's time, on paper: its rates, latencies and framing, without terms of the emulation.

A step costs the latency of its path once: a rank goes on when its last transfer has arrived.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from model.arrays import Floats, Ints
from model.fabric.shaping import ETHERNET_HEADER_BYTES, TCP_IP_HEADER_BYTES, Sizes
from model.fabric.topology import Hop, LinkKind, Topology
from model.fabric.transport import BTH_BYTES, HEADERS_BYTES, ICRC_BYTES, RETH_BYTES, Roce
from model.prediction.fluid import arrivals_s, busiest
from model.prediction.network import OF_HB, Network, Terms, healthy_network
from model.workload.transfers.columns import Transfers

# With frame check, preamble and gap of an Ethernet packet (IEEE 802.3): its rate counts them.
ETHERNET_BYTES = ETHERNET_HEADER_BYTES + 4 + 8 + 12
# Local route header and variant CRC of InfiniBand (IBTA specification, volume 1, 7.7 and 7.8.2).
LOCAL_ROUTE_BYTES, VARIANT_CRC_BYTES = 8, 2
INFINIBAND_BYTES = LOCAL_ROUTE_BYTES + BTH_BYTES + ICRC_BYTES + VARIANT_CRC_BYTES
LinkLatencies = Mapping[LinkKind, float]
"""Seconds of each kind of link, in one direction."""


@dataclass(frozen=True)
class Framing:
    """The packets of a message on NIC links: payload bytes of a full one, header bytes of each.

    The first one has `first_bytes` more. The last one is as short as its payload.
    """

    payload_bytes: int
    header_bytes: int
    first_bytes: int = 0

    @property
    def efficiency(self) -> float:
        """The share of a link's rate that is left for payload, in full packets."""
        return self.payload_bytes / (self.payload_bytes + self.header_bytes)

    def wire_bytes(self, payload_bytes: Sizes) -> Sizes:
        """Return the bytes that a NIC link carries for each message; none for an empty one."""
        packets = -(-payload_bytes // self.payload_bytes)
        first_bytes = self.first_bytes * (payload_bytes > 0)
        return payload_bytes + packets * self.header_bytes + first_bytes

    def transfer_bytes(self, payload_bytes: Sizes, roce: Roce) -> Sizes:
        """Return the bytes that a NIC link carries for each transfer: those of its messages."""
        return sum(self.wire_bytes(part) for part in roce.parts(payload_bytes))


# By MTU: of RoCEv2 (IBTA specification, annex A17), and of InfiniBand within a subnet, the payload
# of a packet, whose first one has the header of a WRITE (there, volume 1, 9.3.2); of TCP with
# timestamps (RFC 7323) Ethernet's, with the headers of IP and TCP.
FRAMINGS: Mapping[str, Callable[[int], Framing]] = {
    "roce": lambda mtu: Framing(mtu, ETHERNET_BYTES + HEADERS_BYTES, RETH_BYTES),
    "infiniband": lambda mtu: Framing(mtu, INFINIBAND_BYTES, RETH_BYTES),
    "tcp": lambda mtu: Framing(mtu - TCP_IP_HEADER_BYTES, ETHERNET_BYTES + TCP_IP_HEADER_BYTES),
    "none": lambda mtu: Framing(mtu, 0),
}
# What a platform has unless it is said.
USUAL_FRAMING: Final = "roce"
USUAL_MTU = 4096


@dataclass(frozen=True)
class PlatformTerms(Terms):
    """No term of the emulation; transfers that cross a NIC have its `framing` on all of their path.

    Others keep to HB links, whose rates are taken as they are: no framing of NVLink is published.
    """

    bursts: bool = False
    last_segment: bool = False
    acknowledgements: bool = False
    probes: bool = False
    confirmations: bool = False
    windows: bool = False
    framing: Framing = Framing(USUAL_MTU, 0)

    def size(self, payload_bytes: Ints, pair: Ints, net: Network) -> Floats:
        """Return the bytes that a link carries for each transfer."""
        crosses = np.array([not OF_HB.issuperset(kinds) for kinds in net.classes])
        framed = self.framing.transfer_bytes(payload_bytes, net.roce)
        return np.where(crosses[net.class_of][pair], framed, payload_bytes).astype(np.float64)


@dataclass(frozen=True)
class PlatformTime:
    """Seconds of the platform, of a schedule that begins at once everywhere.

    `lower_bound_s` is what the busiest link needs for its bytes, `latency_s` the latencies of the
    chain that ends last: each transfer is the last that the next one waits for. Neither link nor
    bound is known of too many transfers, nor `arrival_s`, the end of each, where they are not
    followed.
    """

    completion_s: float
    latency_s: float
    lower_bound_s: float | None = None
    busiest: Hop | None = None
    arrival_s: Floats | None = field(default=None, compare=False, repr=False)


def platform_time(
    transfers: Transfers, topology: Topology, latencies: LinkLatencies, framing: Framing
) -> PlatformTime:
    """Follow each transfer on a healthy fabric of real rates; raises `Unreachable`."""
    pair, net = healthy_network(transfers, topology)
    terms, net = PlatformTerms(framing=framing), replace(net, added_s=0.0)
    latency_s = {path: sum(latencies[kind] for kind in path) for path in net.classes}
    arrival_s = arrivals_s(transfers, pair, [net], latency_s, terms)
    sizes = terms.size(transfers.size_bytes, pair, net)
    chain = np.array([*transfers.last_chain(arrival_s)])
    sent = chain[~transfers.is_compute[chain]]
    chain_s = float(net.travel_s(latency_s)[pair[sent]].sum())
    return PlatformTime(float(arrival_s.max()), chain_s, *busiest(sizes, pair, net), arrival_s)


def with_busiest(
    time: PlatformTime, transfers: Transfers, topology: Topology, framing: Framing
) -> PlatformTime:
    """Add the busiest link to a time that is known from a closed form."""
    pair, net = healthy_network(transfers, topology)
    sizes = PlatformTerms(framing=framing).size(transfers.size_bytes, pair, net)
    lower_bound_s, hop = busiest(sizes, pair, net)
    return replace(time, lower_bound_s=lower_bound_s, busiest=hop)
