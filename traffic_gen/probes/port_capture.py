"""Capture probes at switch ports, in the order in which each port receives and sends them.

A packet socket (packet(7)) in the switches' namespace gets a copy of every frame at their ports.
Probes are recognized by their headers, so other traffic on the links does not matter.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import NamedTuple

from model.errors import EmulationError
from model.fabric.topology import BETWEEN_SWITCHES, Hop, Topology

ETH_P_ALL = 3
PACKET_OUTGOING = 4
SOL_PACKET, PACKET_STATISTICS = 263, 6
SO_RCVBUFFORCE = 33
# Room for thousands of short frames, each with 768 bytes of kernel overhead.
BUFFER_BYTES = 32 * 1024 * 1024
# Ethernet, IPv4 without options (RFC 791), the ports of UDP (RFC 768).
HEADERS = struct.Struct("!12xH B8xB2x4s4s HH")
IPV4, WITHOUT_OPTIONS, UDP = 0x0800, 0x45, 17


class Flow(NamedTuple):
    """The header fields of a probe that stay the same along its path."""

    source: IPv4Address
    destination: IPv4Address
    source_port: int


def parse_flow(frame: bytes, port: int) -> Flow | None:
    """Return the flow of a frame that carries UDP to destination `port`; `None` for any other."""
    if len(frame) < HEADERS.size:
        return None
    ethertype, version, protocol, source, destination, own, other = HEADERS.unpack_from(frame)
    if (ethertype, version, protocol, other) != (IPV4, WITHOUT_OPTIONS, UDP, port):
        return None
    return Flow(IPv4Address(source), IPv4Address(destination), own)


@dataclass(frozen=True)
class PortCapture:
    """A running capture of frames at the ports of all switches."""

    port: int
    _socket: socket.socket
    _hops: dict[tuple[str, bool], Hop]

    def read(self) -> Iterator[tuple[Flow, Hop]]:
        """Yield (flow, hop) of the probes since the last call, in order; raise if any were lost."""
        while (received := self._receive()) is not None:
            frame, (interface, _, kind, *_) = received
            hop = self._hops.get((interface, kind == PACKET_OUTGOING))
            flow = parse_flow(frame, self.port)
            if hop is not None and flow is not None:
                yield flow, hop
        self._check_that_nothing_is_missing()

    def _receive(self) -> tuple[bytes, tuple[str, int, int]] | None:
        try:
            return self._socket.recvfrom(HEADERS.size)
        except BlockingIOError:
            return None

    def _check_that_nothing_is_missing(self) -> None:
        """Raise `EmulationError` if the kernel has dropped frames, as the buffer was full."""
        counted = self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
        _, dropped = struct.unpack("=II", counted)
        if dropped:
            raise EmulationError(f"{dropped} frames at the switches' ports were not read in time")


@contextmanager
def port_capture(topology: Topology, port: int) -> Iterator[PortCapture]:
    """Capture UDP to `port` at the ports of the switches, which are in the current namespace."""
    hops = dict(_hops_seen(topology))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as opened:
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        opened.setblocking(False)
        yield PortCapture(port, opened, hops)


def _hops_seen(topology: Topology) -> Iterator[tuple[tuple[str, bool], Hop]]:
    """Yield (interface, whether the frame is outgoing) with the hop that such a frame takes.

    A hop between switches is seen only where it arrives: a frame lost on the link did not take it.
    """
    for link in topology.links:
        upwards, downwards = Hop(link, link.lower.node), Hop(link, link.upper.node)
        yield (link.upper.interface, False), upwards
        if link.kind in BETWEEN_SWITCHES:
            yield (link.lower.interface, False), downwards
        else:
            yield (link.upper.interface, True), downwards
