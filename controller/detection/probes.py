"""Probes on every link, in both directions, to detect gray failures: carrier, but no traffic.

A probe is an Ethernet frame for the next device only (IEEE 802.1Q, table 8-1: no bridge forwards
01-80-C2-00-00-0E) with an EtherType for experiments (IEEE 802, section 9.2.3). It leaves in the
class of acknowledgements, so that no data delays it.
"""

import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Protocol

from linux.network.ethertype_socket import ethertype_socket
from linux.network.namespaces import namespace_of
from model.fabric.link_probes import (
    DETECTION_ROUNDS,
    LOST_PROBES,
    PROBE_BYTES,
    probe_interval_s,
)
from model.fabric.topology import Link, Topology

NEAREST_BRIDGE = bytes.fromhex("0180c200000e")
OUR_ADDRESS = bytes.fromhex("020300000001")
ETHERTYPE = 0x88B5
HEADER = struct.Struct("!6s6sHI")
FRAME = struct.Struct(f"{HEADER.format}{PROBE_BYTES - HEADER.size}x")
# The links' shapers put packets of this priority in the class of acknowledgements (tc-htb(8)).
PRIORITY_CLASS = 0x1_0003
# All probes of a round arrive at once; those beyond the buffer are lost, as if the link had failed.
SO_RCVBUFFORCE = 33
RECEIVE_BUFFER_BYTES = 8 * 1024 * 1024


class Heard(Protocol):
    """Callback for each direction of each link: whether its last probe arrived."""

    def __call__(self, link: Link, sender: str, arrived: bool) -> None:
        """Report one direction of one link."""


class LinkProbes:
    """Probe sockets: one in the current namespace, the switches', and one in each proxy's."""

    def __init__(self, topology: Topology, process_ids: Mapping[str, int]) -> None:
        self._switches = _open_socket()
        self._proxies = {name: _open_in(pid) for name, pid in process_ids.items()}
        self._round = 0
        self.watch(topology)

    def watch(self, topology: Topology) -> None:
        """Probe the links of this topology from now on."""
        self._topology = topology
        self._sent: list[tuple[Link, str]] = []
        # Node and link by namespace (a GPU's name, or "" for all switches) and interface.
        self._ends = {
            (port.node if port.node in topology.gpu_by_name else "", port.interface): (
                port.node,
                link.name,
            )
            for link in topology.links
            for port in (link.lower, link.upper)
        }

    @property
    def converged(self) -> bool:
        """Whether enough rounds have passed to detect a gray failure."""
        return self._round > DETECTION_ROUNDS

    @property
    def interval_s(self) -> float:
        """Time between two probes of a link."""
        return probe_interval_s(self._topology)

    def close(self, gpu: str) -> None:
        """Release the namespace of a proxy that has died."""
        self._proxies.pop(gpu).close()

    def round(self, heard: Heard) -> None:
        """Report on which links probes have arrived since the last round, and send the next ones.

        A probe that is late is not lost: where the machine pauses, all may be a round late.
        """
        arrived = set(self._arrivals())
        for link, sender in self._sent:
            heard(link, sender, (link.other_end(sender), link.name) in arrived)
        self._sent = list(self._send())

    def _send(self) -> Iterator[tuple[Link, str]]:
        self._round += 1
        frame = FRAME.pack(NEAREST_BRIDGE, OUR_ADDRESS, ETHERTYPE, self._round)
        for link in self._topology.links:
            for port in (link.lower, link.upper):
                sock = self._socket(port.node)
                if sock is not None:
                    with suppress(OSError):  # an interface that is down: the probe is lost
                        sock.sendto(frame, (port.interface, ETHERTYPE))
                yield link, port.node

    def _socket(self, node: str) -> socket.socket | None:
        if node in self._topology.gpu_by_name:
            return self._proxies.get(node)
        return self._switches

    def _arrivals(self) -> Iterator[tuple[str, str]]:
        """Receiving node and link of each probe that has arrived."""
        for namespace, sock in (*self._proxies.items(), ("", self._switches)):
            for interface in self._drain(sock):
                if (namespace, interface) in self._ends:
                    yield self._ends[namespace, interface]

    def _drain(self, sock: socket.socket) -> Iterator[str]:
        """The interfaces at which probes have arrived that are not older than a failure."""
        while True:
            try:
                frame, address = sock.recvfrom(FRAME.size)
            except BlockingIOError:
                return
            except OSError:  # an interface went down: reported once by the kernel
                continue
            if len(frame) == FRAME.size and FRAME.unpack(frame)[3] > self._round - LOST_PROBES:
                yield address[0]


def _open_socket() -> socket.socket:
    sock = ethertype_socket(ETHERTYPE)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, PRIORITY_CLASS)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    return sock


def _open_in(process_id: int) -> socket.socket:
    with namespace_of(process_id):
        return _open_socket()
