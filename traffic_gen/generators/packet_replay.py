"""Replay a schedule packet by packet: every transfer is an RDMA WRITE over RoCEv2.

Scapy crafts the packets. No RDMA adapter receives them: the receivers check every byte by the
invariant CRC (ICRC) that an adapter would check, and put packets in order. Source: InfiniBand
Architecture Specification, volume 1, sections 9.2 to 9.4, and annex A17.

Nothing is retransmitted: a replay shows that every byte arrived, in order, and over which ports. It
is slow, as each packet is crafted by itself, about a thousand in a second.
"""

import random
import select
import socket
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address

from linux.network.namespaces import namespace_of
from linux.network.socket_options import SO_RCVBUFFORCE
from model.fabric.addressing import ends
from model.fabric.topology import Gpu, Hop, Topology
from model.fabric.transport import IP_HEADER_BYTES, UDP_HEADER_BYTES, WORD_BYTES
from model.measurement.records import Repeat
from model.routing.paths import Routing
from model.workload.generator import PATH_MTU_BYTES
from model.workload.schedule import Steps
from model.workload.transfers.columns import Transfer
from traffic_gen.agents.roce import packets
from traffic_gen.agents.roce.packets import Packet
from traffic_gen.generators.progress import Progress
from traffic_gen.probes.packet import roce_packet
from traffic_gen.probes.path_tracer import BUFFER_BYTES, Flow, PortCapture, port_capture

LONGEST_PACKET = 2048
# Seconds without an arrival after which missing packets are lost.
IDLE_TIMEOUT_S = 2.0
SHOWN = 3
Pair = tuple[int, int]
BTH_AT = IP_HEADER_BYTES + UDP_HEADER_BYTES
# Packets of a pair in flight: few enough that no queue is ever full.
WINDOW_PACKETS = 8


def content(transfer: Transfer) -> bytes:
    """The content of a transfer, different from that of any other transfer."""
    return random.Random(transfer.id).randbytes(transfer.size_bytes)


def read_packet(packet: bytes) -> Packet | None:
    """Read a packet as it came, with its IP header; `None` unless its ICRC is right."""
    headers, rest = packet[:BTH_AT], packet[BTH_AT:]
    received = packets.read(rest)
    return received if received and packets.is_intact(rest, packets.headers_crc(headers)) else None


@dataclass
class Channel:
    """The queue pair of two ranks, by a `number`: packets to send, and those that have arrived."""

    pair: Pair
    source: IPv4Address
    destination: IPv4Address
    number: int
    transfers: deque[Transfer] = field(default_factory=deque)
    sent_packets: int = 0
    sent_bytes: int = 0
    received_packets: int = 0
    received_bytes: int = 0
    reordered: int = 0
    sent_ns: dict[int, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    _crafted_psn: int = 0
    _unsent: deque[tuple[int, deque[bytes]]] = field(default_factory=deque)
    _next_psn: int = 0
    _early: dict[int, bytes | memoryview] = field(default_factory=dict)
    _arriving: bytearray = field(default_factory=bytearray)

    @property
    def queue_pair(self) -> int:
        """The number that packets carry."""
        return packets.FIRST_QUEUE_PAIR + self.number

    @property
    def source_port(self) -> int:
        """The UDP source port of all packets."""
        return packets.FIRST_SOURCE_PORT + self.number % packets.SOURCE_PORTS

    def start(self, transfer: Transfer) -> None:
        """Craft the packets of a transfer, and queue them behind the earlier ones."""
        self.transfers.append(transfer)
        self._unsent.append((transfer.id, deque(self.message(content(transfer)))))
        self.sent_bytes += transfer.size_bytes

    def message(self, data: bytes) -> Iterator[bytes]:
        """Yield the IP packets of an RDMA WRITE of these bytes; the last one asks for an answer."""
        payloads = [data[at : at + PATH_MTU_BYTES] for at in range(0, len(data), PATH_MTU_BYTES)]
        opcodes = [packets.ONLY]
        if len(payloads) > 1:
            opcodes = [packets.FIRST, *[packets.MIDDLE] * (len(payloads) - 2), packets.LAST]
        for opcode, payload in zip(opcodes, payloads, strict=True):
            is_first = opcode in (packets.FIRST, packets.ONLY)
            reth = packets.RETH.pack(0, packets.REMOTE_KEY, len(data)) if is_first else b""
            padding = -len(payload) % WORD_BYTES
            yield roce_packet(
                self.source,
                self.destination,
                self.source_port,
                reth + payload + bytes(padding),
                opcode=opcode,
                padcount=padding,
                dqpn=self.queue_pair,
                ackreq=opcode in (packets.LAST, packets.ONLY),
                psn=self._crafted_psn,
            )
            self._crafted_psn = (self._crafted_psn + 1) % packets.PSN_COUNT

    def next_packet(self) -> bytes | None:
        """Take the next packet, if there is one and the window has room."""
        if not self._unsent or self.sent_packets - self.received_packets >= WINDOW_PACKETS:
            return None
        transfer_id, left = self._unsent[0]
        packet = left.popleft()
        self.sent_packets += 1
        if not left:
            self._unsent.popleft()
            self.sent_ns[transfer_id] = time.monotonic_ns()
        return packet

    def receive(self, packet: Packet) -> list[Transfer]:
        """Take a packet; return the transfers that are whole now.

        Packets wait for those before them, as at a receiver of a reliable connection: veth(4) may
        reorder two packets when the thread that sends them changes its core.
        """
        ahead = (packet.psn - self._next_psn) % packets.PSN_COUNT
        if ahead >= WINDOW_PACKETS or packet.psn in self._early:
            self.errors.append(f"duplicate packet {packet.psn}")
            return []
        self.received_packets += 1
        self.received_bytes += len(packet.payload)
        self.reordered += ahead > 0
        self._early[packet.psn] = packet.payload
        while (payload := self._early.pop(self._next_psn, None)) is not None:
            self._arriving += payload
            self._next_psn = (self._next_psn + 1) % packets.PSN_COUNT
        return list(self._whole())

    def _whole(self) -> Iterator[Transfer]:
        """Yield the transfers whose bytes have all arrived; wrong bytes are noted as errors."""
        while self.transfers and len(self._arriving) >= self.transfers[0].size_bytes:
            transfer = self.transfers.popleft()
            if self._arriving[: transfer.size_bytes] != content(transfer):
                self.errors.append(f"transfer {transfer.id}: received bytes differ from those sent")
            del self._arriving[: transfer.size_bytes]
            yield transfer


class PacketReplay:
    """Sockets by which each rank sends and receives, and a capture of all switch ports."""

    def __init__(
        self,
        gpus: Sequence[Gpu],
        routing: Routing,
        sockets: Sequence[tuple[socket.socket, socket.socket]],
        capture: PortCapture,
    ) -> None:
        self.gpus, self.routing, self.capture = gpus, routing, capture
        self._senders = [sender for sender, _ in sockets]
        self._receivers = {receiver.fileno(): receiver for _, receiver in sockets}
        self._poll = select.poll()
        for descriptor in self._receivers:
            self._poll.register(descriptor, select.POLLIN)

    def run(self, schedule: Steps, number: int) -> Repeat:
        """Replay the schedule once; the replay ends when nothing arrives any more."""
        return _Execution(self, schedule).run(number)

    def send(self, channel: Channel) -> None:
        """Send as many packets of a channel as its window allows."""
        sender = self._senders[channel.pair[0]]
        while (packet := channel.next_packet()) is not None:
            with suppress(OSError):  # the proxy has no route: the packet is lost
                sender.sendto(packet, (str(channel.destination), 0))

    def received(self) -> list[bytes]:
        """Wait for IP packets, and return those that have come; none after `IDLE_TIMEOUT_S`."""
        read = list[bytes]()
        for descriptor, _ in self._poll.poll(IDLE_TIMEOUT_S * 1000):
            with suppress(BlockingIOError):
                while True:
                    read.append(self._receivers[descriptor].recv(LONGEST_PACKET))
        return read


class _Execution:
    """One replay: its progress, its channels, and the packets seen at the switches' ports."""

    def __init__(self, replay: PacketReplay, schedule: Steps) -> None:
        self._replay, self._schedule = replay, schedule
        self._progress = Progress(schedule.transfers)
        # A queue pair for each pair of ranks with transfers.
        self._channels: dict[Pair, Channel] = {}
        for pair in dict.fromkeys((t.source, t.destination) for t in schedule.transfers):
            one, other = (replay.gpus[rank] for rank in pair)
            self._channels[pair] = Channel(pair, *ends(one, other), len(self._channels))
        self._by_number = {c.queue_pair: c for c in self._channels.values()}
        self._broken_packets = 0
        deque(replay.capture.read(), maxlen=0)  # earlier packets are not of this replay
        self._seen = Counter[tuple[Flow, Hop]]()

    def run(self, number: int) -> Repeat:
        """Replay, and check packets and paths."""
        start_ns, cpu_s = time.monotonic_ns(), time.thread_time()
        self._start(self._progress.first())
        while not self._progress.is_complete and (read := self._replay.received()):
            for packet in read:
                self._take(packet)
            self._seen.update(self._replay.capture.read())
        self._seen.update(self._replay.capture.read())
        for channel in self._channels.values():
            self._progress.sent_ns.update(channel.sent_ns)
        return self._counted(self._progress.repeat(number, start_ns), time.thread_time() - cpu_s)

    def _start(self, transfers: Iterable[Transfer]) -> None:
        for transfer in transfers:
            channel = self._channels[transfer.source, transfer.destination]
            self._progress.started_ns[transfer.id] = time.monotonic_ns()
            channel.start(transfer)
            self._replay.send(channel)

    def _take(self, packet: bytes) -> None:
        received = read_packet(packet)
        channel = self._by_number.get(received.queue_pair) if received else None
        if received is None or channel is None:
            self._broken_packets += 1
            return
        whole = channel.receive(received)
        self._replay.send(channel)
        for transfer in whole:
            self._start(self._progress.arrived(transfer.id, time.monotonic_ns()))

    def _counted(self, repeat: Repeat, cpu_s: float) -> Repeat:
        sent, received = [0] * self._schedule.gpus, [0] * self._schedule.gpus
        for (source, destination), channel in self._channels.items():
            sent[source] += channel.sent_bytes
            received[destination] += channel.received_bytes
        errors = tuple(self._errors())
        return replace(
            repeat,
            agents_cpu_s=cpu_s,
            sent_bytes=tuple(sent),
            received_bytes=tuple(received),
            errors=errors,
            notes=() if errors else (self._summary(),),
        )

    def _summary(self) -> str:
        channels = self._channels.values()
        count = sum(channel.sent_packets for channel in channels)
        size_bytes = sum(channel.received_bytes for channel in channels)
        early = sum(channel.reordered for channel in channels)
        what = f"all {count} packets arrived, with {size_bytes} payload bytes"
        return f"{what}, each over the ports of its intended path; {early} arrived out of order"

    def _errors(self) -> Iterator[str]:
        if self._broken_packets:
            yield f"{self._broken_packets} packets had a wrong ICRC or an unknown queue pair"
        for pair, channel in self._channels.items():
            name, sent = f"ranks {pair[0]} -> {pair[1]}", channel.sent_packets
            if channel.received_packets != sent:
                yield f"{name}: {channel.received_packets} of {sent} packets arrived"
            yield from (f"{name}: {error}" for error in channel.errors[:SHOWN])
            yield from (f"{name}: {error}" for error in self._strays(channel))

    def _strays(self, channel: Channel) -> Iterator[str]:
        """Name the hops with more or fewer packets than intended."""
        flow = Flow(channel.source, channel.destination, channel.source_port)
        source, destination = (self._replay.gpus[rank] for rank in channel.pair)
        intended = self._replay.routing.path(source, destination)
        wanted = dict.fromkeys(intended, channel.sent_packets)
        counts = {hop: count for (of, hop), count in self._seen.items() if of == flow}
        for hop in wanted | counts:
            there, due = counts.get(hop, 0), wanted.get(hop, 0)
            if there != due:
                yield f"{there} packets from {hop.sender} to {hop.receiver}, must be {due}"


@contextmanager
def packet_replay(
    topology: Topology, gpus: Sequence[Gpu], routing: Routing, process_ids: Mapping[str, int]
) -> Iterator[PacketReplay]:
    """Open the sockets of all ranks, in their proxies' namespaces; `gpus` are the ranks' GPUs."""
    with ExitStack() as stack:
        sockets = [_sockets(stack, process_ids[gpu.name]) for gpu in gpus]
        capture = stack.enter_context(port_capture(topology, packets.PORT))
        yield PacketReplay(gpus, routing, sockets, capture)


def _sockets(stack: ExitStack, process_id: int) -> tuple[socket.socket, socket.socket]:
    """Open the sockets by which a rank sends and receives, and one that holds the UDP port.

    Without that, the kernel would answer each packet with "port unreachable" (RFC 1122).
    """
    with namespace_of(process_id):
        sender = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        receiver = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
        port_holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for opened in (sender, receiver, port_holder):
        stack.enter_context(opened)
    receiver.setblocking(False)
    receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    port_holder.bind(("", packets.PORT))
    return sender, receiver
