"""Replay a schedule packet by packet: every transfer is an RDMA WRITE over RoCEv2.

Nothing is retransmitted: a replay shows that every byte arrived, in order, and over which ports. It
is slow, as each packet is crafted by itself, about a thousand in a second.
"""

import select
import socket
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from linux.network.namespaces import namespace_of
from linux.network.socket_options import SO_RCVBUFFORCE
from model.fabric.addressing import ends
from model.fabric.topology import Gpu, Hop, Topology
from model.measurement.records import Repeat
from model.routing.paths import Routing
from model.workload.schedule import Steps
from model.workload.transfers.columns import Transfer
from traffic_gen.agents.roce.packets import PORT
from traffic_gen.generators.progress import Progress
from traffic_gen.generators.rdma_channel import Channel, Pair, read_packet
from traffic_gen.probes.path_tracer import BUFFER_BYTES, Flow, PortCapture, port_capture

LONGEST_PACKET = 2048
# Seconds without an arrival after which missing packets are lost.
IDLE_TIMEOUT_S = 2.0
SHOWN = 3


@dataclass(frozen=True)
class Endpoint:
    """The raw sockets of a rank."""

    sender: socket.socket
    receiver: socket.socket

    def packets(self) -> Iterator[bytes]:
        """Yield the packets that have come, with their IP headers."""
        with suppress(BlockingIOError):
            while True:
                yield self.receiver.recv(LONGEST_PACKET)


class PacketReplay:
    """Sockets of all ranks, and a capture of all switch ports."""

    def __init__(
        self,
        gpus: Sequence[Gpu],
        routing: Routing,
        endpoints: Sequence[Endpoint],
        capture: PortCapture,
    ) -> None:
        self.gpus, self.routing, self.capture = gpus, routing, capture
        self._endpoints = endpoints
        self._poll = select.poll()
        self._by_descriptor = {one.receiver.fileno(): one for one in endpoints}
        for descriptor in self._by_descriptor:
            self._poll.register(descriptor, select.POLLIN)

    def run(self, schedule: Steps, number: int) -> Repeat:
        """Replay the schedule once; the replay ends when nothing arrives any more."""
        return _Execution(self, schedule).run(number)

    def channels(self, schedule: Steps) -> dict[Pair, Channel]:
        """A queue pair for each pair of ranks with transfers in the schedule."""
        channels: dict[Pair, Channel] = {}
        for pair in dict.fromkeys((t.source, t.destination) for t in schedule.transfers):
            one, other = (self.gpus[rank] for rank in pair)
            channels[pair] = Channel(pair, *ends(one, other), len(channels))
        return channels

    def send(self, channel: Channel) -> None:
        """Send as many packets of a channel as its window allows."""
        sender = self._endpoints[channel.pair[0]].sender
        while (packet := channel.next_packet()) is not None:
            with suppress(OSError):  # the proxy has no route: the packet is lost
                sender.sendto(packet, (str(channel.destination), 0))

    def received(self) -> list[bytes]:
        """Wait for packets, and return those that have come; none after `IDLE_TIMEOUT_S`."""
        ready = self._poll.poll(IDLE_TIMEOUT_S * 1000)
        return [packet for fd, _ in ready for packet in self._by_descriptor[fd].packets()]


class _Execution:
    """One replay: its progress, its channels, and the packets seen at the switches' ports."""

    def __init__(self, replay: PacketReplay, schedule: Steps) -> None:
        self._replay, self._schedule = replay, schedule
        self._progress = Progress(schedule.transfers)
        self._channels = replay.channels(schedule)
        self._by_number = {c.queue_pair: c for c in self._channels.values()}
        self._broken_packets = 0
        deque(replay.capture.read(), maxlen=0)  # earlier packets are not of this replay
        self._seen = Counter[tuple[Flow, Hop]]()

    def run(self, number: int) -> Repeat:
        """Replay, and check packets and paths."""
        start_ns, cpu_s = time.monotonic_ns(), time.thread_time()
        self._start(self._progress.first())
        while not self._progress.is_complete and (packets := self._replay.received()):
            for packet in packets:
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
        notes = () if errors else (self._summary(),)
        return replace(
            repeat,
            agents_cpu_s=cpu_s,
            sent_bytes=tuple(sent),
            received_bytes=tuple(received),
            errors=errors,
            notes=notes,
        )

    def _summary(self) -> str:
        channels = self._channels.values()
        packets = sum(channel.sent_packets for channel in channels)
        size_bytes = sum(channel.received_bytes for channel in channels)
        early = sum(channel.reordered for channel in channels)
        return (
            f"all {packets} packets arrived, with {size_bytes} payload bytes, each over the ports "
            f"of its intended path; {early} arrived out of order"
        )

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
        for hop in {**wanted, **counts}:
            there, due = counts.get(hop, 0), wanted.get(hop, 0)
            if there != due:
                yield f"{there} packets from {hop.sender} to {hop.receiver}, must be {due}"


@contextmanager
def packet_replay(
    topology: Topology, gpus: Sequence[Gpu], routing: Routing, process_ids: Mapping[str, int]
) -> Iterator[PacketReplay]:
    """Open the sockets of all ranks, in their proxies' namespaces; `gpus` are the ranks' GPUs."""
    with ExitStack() as stack:
        endpoints = [_endpoint(stack, process_ids[gpu.name]) for gpu in gpus]
        capture = stack.enter_context(port_capture(topology, PORT))
        yield PacketReplay(gpus, routing, endpoints, capture)


def _endpoint(stack: ExitStack, process_id: int) -> Endpoint:
    """Open the sockets of a rank, and one that holds the UDP port.

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
    port_holder.bind(("", PORT))
    return Endpoint(sender, receiver)
