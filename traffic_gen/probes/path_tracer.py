"""Trace paths: send probes between GPUs, observe them at switch ports and at the receivers.

A packet socket (packet(7)) in the switches' namespace gets a copy of every frame at their ports.
Probes are recognized by their headers, so other traffic on the links does not matter.
"""

import select
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import NamedTuple

from linux.network.namespaces import namespace_of
from linux.network.socket_options import ETH_P_ALL, PACKET_OUTGOING, SO_RCVBUFFORCE, dropped_frames
from model.errors import EmulationError
from model.fabric.addressing import HB_NETWORK, ends, gpu_at, hb_address, nic_address
from model.fabric.topology import BETWEEN_SWITCHES, Gpu, Hop, Topology
from model.fabric.transport import IP_HEADER_BYTES
from model.measurement.records import ProbePath
from traffic_gen.probes.packet import PROBE_PORT, probe_packet

# As with real RoCE, flows of a pair differ in their source ports, which reveals ECMP by hashing.
SOURCE_PORTS = range(49152, 49168)
# The probes in flight to this many destinations fit into every queue and every socket's buffer.
DESTINATIONS_AT_ONCE = 8
# Missing probes are lost when nothing has arrived for this long.
IDLE_TIMEOUT_S = 0.5
DEADLINE_S = 10
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
        with suppress(BlockingIOError):
            while True:
                frame, (interface, _, kind, *_) = self._socket.recvfrom(HEADERS.size)
                hop = self._hops.get((interface, kind == PACKET_OUTGOING))
                flow = parse_flow(frame, self.port)
                if hop is not None and flow is not None:
                    yield flow, hop
        if dropped := dropped_frames(self._socket):
            what = "frames at switch ports dropped by the kernel: capture buffer full"
            raise EmulationError(f"{dropped} {what}")


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


@dataclass(frozen=True)
class PathProbes:
    """A sending and a receiving socket in each proxy's namespace, and a capture of switch ports.

    Other domains are probed by all `lanes`.
    """

    lanes: int
    senders: Mapping[Gpu, socket.socket]
    receivers: Mapping[Gpu, socket.socket]
    capture: PortCapture

    def traces(self, source: Gpu) -> Iterator[tuple[Gpu, tuple[ProbePath, ...]]]:
        """Yield each other GPU, in other domains by each lane, with the traces of all probes."""
        others = [
            gpu.by(lane)
            for gpu in self.receivers
            if gpu != source
            for lane in range(self.lanes if gpu.domain != source.domain else 1)
        ]
        for first in range(0, len(others), DESTINATIONS_AT_ONCE):
            yield from self._traces(source, others[first : first + DESTINATIONS_AT_ONCE])

    def trace(self, source: Gpu, destination: Gpu) -> tuple[ProbePath, ...]:
        """The traces of all probes of one pair."""
        ((_, traces),) = self._traces(source, [destination])
        return traces

    def _traces(
        self, source: Gpu, destinations: Sequence[Gpu]
    ) -> Iterator[tuple[Gpu, tuple[ProbePath, ...]]]:
        flows = {gpu: _flows(source, gpu) for gpu in destinations}
        for of_pair in flows.values():
            self._send(source, of_pair)
        arrived = self._arrivals({flow for of_pair in flows.values() for flow in of_pair})
        hops = defaultdict[Flow, list[Hop]](list)
        for flow, hop in self.capture.read():
            hops[flow].append(hop)
        for gpu in destinations:
            yield gpu, tuple(ProbePath(tuple(hops[flow]), flow in arrived) for flow in flows[gpu])

    def _send(self, source: Gpu, flows: Sequence[Flow]) -> None:
        """Send a probe for each flow. Scapy builds only the first, as it takes 1 ms per packet."""
        packet = probe_packet(*flows[0])
        behind_port = packet[IP_HEADER_BYTES + 2 :]
        for flow in flows:
            probe = packet[:IP_HEADER_BYTES] + flow.source_port.to_bytes(2, "big") + behind_port
            with suppress(OSError):  # the proxy has no route: the probe is lost
                self.senders[source].sendto(probe, (str(flow.destination), 0))

    def _arrivals(self, expected: set[Flow]) -> set[Flow]:
        """Return the flows that arrive; wait for all, at most `IDLE_TIMEOUT_S` for the next."""
        poll, arrived = select.poll(), set[Flow]()
        owners = {receiver.fileno(): gpu for gpu, receiver in self.receivers.items()}
        for descriptor in owners:
            poll.register(descriptor, select.POLLIN)
        end_s = time.monotonic() + DEADLINE_S
        while arrived != expected and time.monotonic() < end_s:
            if not (ready := poll.poll(IDLE_TIMEOUT_S * 1000)):
                break
            for descriptor, _ in ready:
                arrived |= expected.intersection(self._received(owners[descriptor]))
        return arrived

    def _received(self, gpu: Gpu) -> Iterator[Flow]:
        with suppress(BlockingIOError):
            while True:
                _, (address, port) = self.receivers[gpu].recvfrom(1)
                origin = IPv4Address(address)
                own = nic_address(gpu.by(gpu_at(origin).lane))
                yield Flow(origin, hb_address(gpu) if origin in HB_NETWORK else own, port)


def _flows(source: Gpu, destination: Gpu) -> list[Flow]:
    own, target = ends(source, destination)
    return [Flow(own, target, port) for port in SOURCE_PORTS]


@contextmanager
def path_probes(topology: Topology, process_ids: Mapping[str, int]) -> Iterator[PathProbes]:
    """Open the sockets in the GPU proxies' namespaces; `process_ids` are by GPU name."""
    with ExitStack() as stack:
        senders, receivers = {}, {}
        for gpu in topology.gpus:
            with namespace_of(process_ids[gpu.name]):
                sender = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
                receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            senders[gpu] = stack.enter_context(sender)
            receivers[gpu] = stack.enter_context(receiver)
            receiver.setblocking(False)
            receiver.bind(("", PROBE_PORT))
        capture = stack.enter_context(port_capture(topology, PROBE_PORT))
        yield PathProbes(topology.spec.lanes, senders, receivers, capture)
