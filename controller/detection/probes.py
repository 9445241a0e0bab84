"""Probes on every link, in both directions, to detect gray failures: carrier, but no traffic.

A probe is an Ethernet frame for the next device only (IEEE 802.1Q, table 8-1: no bridge forwards
01-80-C2-00-00-0E) with an EtherType for experiments (IEEE 802, section 9.2.3). It leaves in the
class of acknowledgements, so that no data delays it.

A round probes every link once, a few links at a time: probes of all links at once would keep a
processor from everything else for milliseconds.
"""

import ctypes
import math
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from linux.network.namespaces import namespace_of
from linux.network.socket_options import (
    ETH_P_ALL,
    PACKET_IGNORE_OUTGOING,
    SO_ATTACH_FILTER,
    SO_RCVBUFFORCE,
    SOL_PACKET,
)
from model.fabric.addressing import NEAREST_BRIDGE
from model.fabric.link_probes import DETECTION_ROUNDS, LOST_PROBES, PROBE_BYTES, probe_interval_s
from model.fabric.shaping import ACKNOWLEDGEMENT_CLASS
from model.fabric.topology import Link, Port, Topology

OUR_ADDRESS = bytes.fromhex("020300000001")
ETHERTYPE = 0x88B5
HEADER = struct.Struct("!6s6sHI")
FRAME = struct.Struct(f"{HEADER.format}{PROBE_BYTES - HEADER.size}x")
LINKS_AT_ONCE = 8
# After a pause, probes arrive at once; those beyond the buffer are lost, as if the link had failed.
RECEIVE_BUFFER_BYTES = 8 * 1024 * 1024
# Classic BPF (linux/filter.h): code, jump if true, jump if false, operand.
INSTRUCTION = struct.Struct("HBBI")
LOAD_HALF_WORD, JUMP_IF_EQUAL, RETURN = 0x28, 0x15, 0x06
ETHERTYPE_OFFSET = 12
WHOLE_FRAME = 0xFFFF

# Callback(link, sending node, whether the last probe of this direction arrived).
ProbeReport = Callable[[Link, str, bool], None]


class LinkProbes:
    """Probe sockets: one for all switches, in the current namespace, and one at each GPU's end.

    A GPU's socket is opened once its interface exists.
    """

    def __init__(self, topology: Topology, process_ids: Mapping[str, int]) -> None:
        self._process_ids = dict(process_ids)
        self._switches = _open_socket()
        # By a GPU's name and its interface.
        self._proxies: dict[tuple[str, str], socket.socket] = {}
        self._rounds = 0
        self.watch(topology)

    def watch(self, topology: Topology) -> None:
        """Probe the links of this topology from now on."""
        self._topology = topology
        # Node and link by the interface at a switch.
        self._ends = {
            port.interface: (port.node, link.name)
            for link in topology.links
            for port in (link.lower, link.upper)
            if port.node not in topology.gpu_by_name
        }
        self._next_link = 0
        self._are_sent = False
        # The latest probe that has arrived, by receiving node and link: the number of its round.
        self._arrived: dict[tuple[str, str], int] = {}
        # The receiving node and link of directions that carried probes when last reported.
        self._carrying: set[tuple[str, str]] = set()

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
        for end in [end for end in self._proxies if end[0] == gpu]:
            self._proxies.pop(end).close()

    def probe(self, report: ProbeReport) -> bool:
        """Report whether the last probes of the next links arrived, and send these links new ones.

        A direction is reported when its last probe is lost, and when probes arrive again. Return
        whether that was the end of a round. A probe that is up to two rounds late is not lost:
        after a pause of the machine, all are late.
        """
        links = self._topology.links[self._next_link : self._next_link + LINKS_AT_ONCE]
        self._receive(links)
        if self._are_sent:
            self._report(links, report)
        self._send(links)
        self._next_link += LINKS_AT_ONCE
        if self._next_link < len(self._topology.links):
            return False
        self._rounds, self._next_link, self._are_sent = self._rounds + 1, 0, True
        return True

    def _report(self, links: Sequence[Link], report: ProbeReport) -> None:
        """Report directions that lose probes, and those whose probes arrive again."""
        oldest = self._rounds - LOST_PROBES  # two rounds late
        for link in links:
            for sender, receiver in ((link.lower, link.upper), (link.upper, link.lower)):
                end = receiver.node, link.name
                arrived = self._arrived.pop(end, -math.inf) >= oldest
                if not arrived or end not in self._carrying:
                    report(link, sender.node, arrived)
                if arrived:
                    self._carrying.add(end)
                else:
                    self._carrying.discard(end)

    def _send(self, links: Sequence[Link]) -> None:
        frame = FRAME.pack(NEAREST_BRIDGE, OUR_ADDRESS, ETHERTYPE, self._rounds)
        for link in links:
            for port in (link.lower, link.upper):
                is_switch = port.node not in self._topology.gpu_by_name
                if sock := self._switches if is_switch else self._proxy_socket(port):
                    with suppress(OSError):  # an interface that is down: the probe is lost
                        sock.sendto(frame, (port.interface, ETHERTYPE))

    def _receive(self, links: Sequence[Link]) -> None:
        """Note the latest probes that have arrived at the GPUs of links, and at all switches."""
        for interface, number in _drain(self._switches):
            if interface in self._ends:
                self._arrived[self._ends[interface]] = number
        for link in links:
            if sock := self._proxy_socket(link.lower):
                for _, number in _drain(sock):
                    self._arrived[link.lower.node, link.name] = number
                    if number == self._rounds - 1:  # the last that was sent
                        break

    def _proxy_socket(self, port: Port) -> socket.socket | None:
        """Return the socket of a GPU's port; `None` if its interface is not there yet, or gone."""
        end = port.node, port.interface
        if end not in self._proxies and port.node in self._process_ids:
            with namespace_of(self._process_ids[port.node]):
                if port.interface in dict(socket.if_nameindex()).values():
                    self._proxies[end] = _open_socket(port.interface)
        return self._proxies.get(end)


def _drain(sock: socket.socket) -> Iterator[tuple[str, int]]:
    """Yield the interface and the number of each probe that has arrived."""
    while True:
        try:
            frame, address = sock.recvfrom(FRAME.size)
        except BlockingIOError:
            return
        except OSError:  # an interface went down: reported once by the kernel
            continue
        if len(frame) == FRAME.size:
            yield address[0], FRAME.unpack(frame)[3]


def _open_socket(interface: str | None = None) -> socket.socket:
    sock = ethertype_socket(ETHERTYPE, interface)
    # The links' shapers put packets of this priority in the class of acknowledgements (tc-htb(8)).
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, ACKNOWLEDGEMENT_CLASS)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    return sock


def ethertype_socket(ethertype: int, interface: str | None = None) -> socket.socket:
    """Open a socket that receives frames of this EtherType, on one interface of the namespace.

    Without `interface`, it receives them on all. Raises `OSError` if there is no such interface.

    A socket bound to an EtherType is served after the receive handler of its interface. A port of
    the kernel's Open vSwitch datapath has a handler that takes every frame, so nothing would
    arrive. Sockets for all protocols are served before it (packet(7)); a filter drops all other
    EtherTypes. Where there are many, each is bound to one interface: Linux before 6.15 offers each
    frame of all namespaces to every socket for all protocols that is bound to none.
    """
    protocol = 0 if interface else socket.htons(ETH_P_ALL)
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, protocol)
    opened.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    _attach_filter(opened, ethertype)
    opened.setblocking(False)
    if interface:
        opened.bind((interface, ETH_P_ALL))
        return opened
    with suppress(BlockingIOError):
        while True:  # frames that were queued before the filter was attached
            opened.recv(1)
    return opened


def _attach_filter(opened: socket.socket, ethertype: int) -> None:
    """Let the kernel drop frames of all other EtherTypes before they are queued."""
    instructions = (
        INSTRUCTION.pack(LOAD_HALF_WORD, 0, 0, ETHERTYPE_OFFSET),
        INSTRUCTION.pack(JUMP_IF_EQUAL, 0, 1, ethertype),
        INSTRUCTION.pack(RETURN, 0, 0, WHOLE_FRAME),
        INSTRUCTION.pack(RETURN, 0, 0, 0),
    )
    code = ctypes.create_string_buffer(b"".join(instructions))
    # struct sock_fprog: the number of instructions, and their address.
    program = struct.pack("HP", len(instructions), ctypes.addressof(code))
    opened.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
