"""Probes on every link, in both directions, to detect gray failures: carrier, but no traffic.

A probe is an Ethernet frame for the next device only (IEEE 802.1Q, table 8-1: no bridge forwards
01-80-C2-00-00-0E) with an EtherType for experiments (IEEE 802, section 9.2.3). It leaves in the
class of acknowledgements, so that no data delays it.

A round probes every link once, a few links at a time: probes of all links at once would keep a
processor from everything else for milliseconds.
"""

import math
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Protocol

from linux.network.ethertype_socket import ethertype_socket
from linux.network.namespaces import namespace_of
from model.fabric.link_probes import (
    DETECTION_ROUNDS,
    LOST_PROBES,
    PROBE_BYTES,
    probe_interval_s,
)
from model.fabric.topology import Link, Port, Topology

NEAREST_BRIDGE = bytes.fromhex("0180c200000e")
OUR_ADDRESS = bytes.fromhex("020300000001")
ETHERTYPE = 0x88B5
HEADER = struct.Struct("!6s6sHI")
FRAME = struct.Struct(f"{HEADER.format}{PROBE_BYTES - HEADER.size}x")
# The links' shapers put packets of this priority in the class of acknowledgements (tc-htb(8)).
PRIORITY_CLASS = 0x1_0003
LINKS_AT_ONCE = 8
# After a pause, probes arrive at once; those beyond the buffer are lost, as if the link had failed.
SO_RCVBUFFORCE = 33
RECEIVE_BUFFER_BYTES = 8 * 1024 * 1024


class Heard(Protocol):
    """Callback for each direction of each link: whether its last probe arrived."""

    def __call__(self, link: Link, sender: str, arrived: bool) -> None:
        """Report one direction of one link."""


class LinkProbes:
    """Probe sockets: one at each end of each link, opened when its interface is there.

    The current namespace is the switches'; each GPU proxy has its own.
    """

    def __init__(self, topology: Topology, process_ids: Mapping[str, int]) -> None:
        self._process_ids = dict(process_ids)
        # By namespace (a GPU's name, or "" for all switches) and interface.
        self._sockets: dict[tuple[str, str], socket.socket] = {}
        self._rounds = 0
        self.watch(topology)

    def watch(self, topology: Topology) -> None:
        """Probe the links of this topology from now on."""
        self._topology = topology
        self._next_link = 0
        self._are_sent = False
        # The latest probe that has arrived, by receiving node and link: the number of its round.
        self._arrived: dict[tuple[str, str], int] = {}

    @property
    def converged(self) -> bool:
        """Whether enough rounds have passed to detect a gray failure."""
        return self._rounds > DETECTION_ROUNDS

    @property
    def interval_s(self) -> float:
        """Time between two calls of `probe`."""
        return probe_interval_s(self._topology) / math.ceil(
            len(self._topology.links) / LINKS_AT_ONCE
        )

    def close(self, gpu: str) -> None:
        """Release the namespace of a proxy that has died."""
        del self._process_ids[gpu]
        for end in [end for end in self._sockets if end[0] == gpu]:
            self._sockets.pop(end).close()

    def probe(self, heard: Heard) -> bool:
        """Report whether the last probes of the next links have arrived, and send their next ones.

        Return whether that was the end of a round. A probe that is late is not lost: where the
        machine pauses, all may be a round late.
        """
        links = self._topology.links[self._next_link :][:LINKS_AT_ONCE]
        self._receive(links)
        if self._are_sent:
            self._report(links, heard)
        self._send(links)
        self._next_link += LINKS_AT_ONCE
        if self._next_link < len(self._topology.links):
            return False
        self._rounds, self._next_link, self._are_sent = self._rounds + 1, 0, True
        return True

    def _report(self, links: Sequence[Link], heard: Heard) -> None:
        """Report both directions of links. A probe older than a failure has not arrived."""
        last = self._rounds - 1
        for link in links:
            for port in (link.lower, link.upper):
                received = link.other_end(port.node), link.name
                number = self._arrived.pop(received, -math.inf)
                heard(link, port.node, number > last - LOST_PROBES)

    def _send(self, links: Sequence[Link]) -> None:
        frame = FRAME.pack(NEAREST_BRIDGE, OUR_ADDRESS, ETHERTYPE, self._rounds)
        for link in links:
            for port in (link.lower, link.upper):
                if sock := self._socket(port):
                    with suppress(OSError):  # an interface that is down: the probe is lost
                        sock.send(frame)

    def _receive(self, links: Sequence[Link]) -> None:
        """Note the latest probes that have arrived at both ends of links."""
        for link in links:
            for port in (link.lower, link.upper):
                if sock := self._socket(port):
                    for number in _drain(sock):
                        self._arrived[port.node, link.name] = number

    def _socket(self, port: Port) -> socket.socket | None:
        """Return the socket of a port; `None` if its interface is not there, or not yet."""
        gpu = port.node if port.node in self._topology.gpu_by_name else ""
        end = gpu, port.interface
        if end not in self._sockets and (not gpu or gpu in self._process_ids):
            with namespace_of(self._process_ids[gpu]) if gpu else nullcontext():
                if opened := _open_socket(port.interface):
                    self._sockets[end] = opened
        return self._sockets.get(end)


def _drain(sock: socket.socket) -> Iterator[int]:
    """Yield the number of each probe that has arrived."""
    while True:
        try:
            frame = sock.recv(FRAME.size)
        except BlockingIOError:
            return
        except OSError:  # the interface went down: reported once by the kernel
            continue
        if len(frame) == FRAME.size:
            yield FRAME.unpack(frame)[3]


def _open_socket(interface: str) -> socket.socket | None:
    """Open the socket of an interface in the current namespace; `None` if it is not there."""
    try:
        socket.if_nametoindex(interface)
    except OSError:
        return None
    sock = ethertype_socket(ETHERTYPE, interface)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, PRIORITY_CLASS)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    return sock
