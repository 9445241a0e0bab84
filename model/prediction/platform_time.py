"""The platform's time, on paper: its rates, latencies and framing, without terms of the emulation.

A step costs the latency of its path once: a rank goes on when its last transfer has arrived.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from model.arrays import Ints
from model.fabric.shaping import ETHERNET_HEADER_BYTES, TCP_IP_HEADER_BYTES
from model.fabric.topology import Hop, LinkKind, Topology
from model.prediction.fluid import arrivals_s, busiest
from model.prediction.network import (
    FIRST_LINK,
    OF_HB,
    Network,
    Terms,
    healthy_network,
)
from model.workload.transfers.columns import Transfers

# With frame check, preamble and gap of an Ethernet packet (IEEE 802.3): its rate counts them.
ETHERNET_BYTES = ETHERNET_HEADER_BYTES + 4 + 8 + 12
IPV4_BYTES, UDP_BYTES = 20, 8
# Base transport header and invariant CRC of InfiniBand (IBTA specification, volume 1, 9.2, 7.8.1).
TRANSPORT_BYTES, INVARIANT_CRC_BYTES = 12, 4
# Local route header and variant CRC (there, 7.7 and 7.8.2).
LOCAL_ROUTE_BYTES, VARIANT_CRC_BYTES = 8, 2
LinkLatencies = Mapping[LinkKind, float]
"""Seconds of each kind of link, in one direction."""


@dataclass(frozen=True)
class Framing:
    """The packets on NIC links: payload bytes and header bytes of a full one."""

    payload_bytes: int
    header_bytes: int

    @property
    def efficiency(self) -> float:
        """The share of a link's rate that is left for payload."""
        return self.payload_bytes / (self.payload_bytes + self.header_bytes)


def _roce(mtu: int) -> Framing:
    """RoCEv2 (IBTA specification, annex A17); its MTU is the payload of a packet."""
    headers = IPV4_BYTES + UDP_BYTES + TRANSPORT_BYTES + INVARIANT_CRC_BYTES
    return Framing(mtu, ETHERNET_BYTES + headers)


def _infiniband(mtu: int) -> Framing:
    """InfiniBand within a subnet; its MTU is the payload of a packet."""
    transport = TRANSPORT_BYTES + INVARIANT_CRC_BYTES
    return Framing(mtu, LOCAL_ROUTE_BYTES + transport + VARIANT_CRC_BYTES)


def _tcp(mtu: int) -> Framing:
    """TCP with timestamps (RFC 7323); the MTU is Ethernet's, with the headers of IP and TCP."""
    return Framing(mtu - TCP_IP_HEADER_BYTES, ETHERNET_BYTES + TCP_IP_HEADER_BYTES)


FRAMINGS: Mapping[str, Callable[[int], Framing]] = {
    "roce": _roce,
    "infiniband": _infiniband,
    "tcp": _tcp,
    "none": lambda mtu: Framing(mtu, 0),
}
# What a platform has unless it is said.
USUAL_FRAMING: Final = "roce"
USUAL_MTU = 4096


@dataclass(frozen=True)
class PlatformTerms(Terms):
    """No term of the emulation; `efficiency` is that of the framing on NIC links and uplinks.

    The rates of HB links are taken as they are: no framing of NVLink is published.
    """

    headers: bool = False
    bursts: bool = False
    last_segment: bool = False
    acknowledgements: bool = False
    probes: bool = False
    confirmations: bool = False
    windows: bool = False
    efficiency: float = 1.0

    def applied(self, net: Network) -> Network:
        """Return the network with the rates that are left for payload, and no bursts."""
        framed = np.array([hop.link.kind not in OF_HB for hop in net.hops], bool)
        rate = net.rate.copy()
        rate[FIRST_LINK:][framed] *= self.efficiency
        return replace(super().applied(net), rate=rate)


@dataclass(frozen=True)
class PlatformTime:
    """Seconds of the platform, of a schedule that begins at once everywhere.

    `lower_bound_s` is what the busiest link needs for its bytes, `latency_s` the part of the time
    that no latency would take away. Neither link nor bound is known of too many transfers.
    """

    completion_s: float
    latency_s: float
    lower_bound_s: float | None = None
    busiest: Hop | None = None


def platform_s(
    transfers: Transfers, topology: Topology, latencies: LinkLatencies, framing: Framing
) -> float:
    """Follow each transfer as `platform_time` does, in half its time: seconds until the last."""
    pair, net = healthy_network(transfers, topology)
    terms = PlatformTerms(efficiency=framing.efficiency)
    return _completion_s(transfers, pair, net, latencies, terms)


def platform_time(
    transfers: Transfers, topology: Topology, latencies: LinkLatencies, framing: Framing
) -> PlatformTime:
    """Follow each transfer on a healthy fabric of real rates; raises `Unreachable`."""
    terms = PlatformTerms(efficiency=framing.efficiency)
    pair, net = healthy_network(transfers, topology)
    completion_s, bare_s = (
        _completion_s(transfers, pair, net, some, terms)
        for some in (latencies, dict.fromkeys(LinkKind, 0.0))
    )
    return PlatformTime(
        completion_s, completion_s - bare_s, *busiest(transfers, pair, terms.applied(net))
    )


def with_busiest(
    time: PlatformTime, transfers: Transfers, topology: Topology, framing: Framing
) -> PlatformTime:
    """Add the busiest link to a time that is known from a closed form."""
    pair, net = healthy_network(transfers, topology)
    framed = PlatformTerms(efficiency=framing.efficiency).applied(net)
    lower_bound_s, hop = busiest(transfers, pair, framed)
    return replace(time, lower_bound_s=lower_bound_s, busiest=hop)


def _completion_s(
    transfers: Transfers, pair: Ints, net: Network, latencies: LinkLatencies, terms: Terms
) -> float:
    latency_s = {path: sum(latencies[kind] for kind in path) for path in net.classes}
    bare = replace(net, added_s=0.0)
    return float(arrivals_s(transfers, pair, [bare], latency_s, terms).max())
