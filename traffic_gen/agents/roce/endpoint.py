"""The queue pairs of a rank: their sockets, their timers, and transfers as messages on them.

A transfer is an RDMA WRITE with immediate on one queue pair of its connection, in turn, or a part
on each (NCCL_IB_QPS_PER_CONNECTION, NCCL_IB_SPLIT_DATA_ON_QPS). The last acknowledgement confirms
it. The receiver reports ready-to-receive by a SEND on the first queue pair. A part of the agent: it
needs only Python's standard library.
"""

import collections
import errno
import heapq
import itertools
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

from traffic_gen.agents.roce import packets
from traffic_gen.agents.roce.congestion import Dcqcn, Swift, Window
from traffic_gen.agents.roce.packets import FRAME_BYTES, Packet
from traffic_gen.agents.roce.queue_pair import Message, Receiver, Reliability, RetryExceeded, Sender
from traffic_gen.agents.transfers import Send

# socket(7), ip(7): no UDP checksum, which the ICRC replaces; no fragments.
SO_NO_CHECK, IP_MTU_DISCOVER, IP_PMTUDISC_DO = 11, 10, 2
# Codepoints of ECN (RFC 3168, section 5), in the last two bits of the type of service.
ECN_CAPABLE, CONGESTION_EXPERIENCED = 2, 3
ANCILLARY_BYTES, LARGEST_BYTES, RECEIVE_BUFFER_BYTES = 64, 4200, 1 << 20
# Packets of a queue pair in the queue of its link: some on the wire, and those that follow. A
# socket takes one more, as its buffer has room left (sock_alloc_send_pskb in net/core/sock.c).
QUEUED_PACKETS = 4
# An `sk_buff` (struct sk_buff in linux/skbuff.h) of a packet counts for at most this much more.
PACKET_OVERHEAD_BYTES = 1024
# Datagrams that are read before others get their turn.
AT_ONCE = 32
# A receiver notifies a sender at most this often (Zhu et al., SIGCOMM 2015, section 3.1).
NOTIFICATION_INTERVAL_NS = 50_000
# Queue pairs are sampled this often, while packets keep the agent awake.
SAMPLE_NS = 100_000_000
# Bits of a queue pair's number that tell connections from those before a reset.
GENERATIONS, GENERATION_AT = 8, 21
# Errors of a packet that is lost on the way out (ip(7)): no route, or no room in a queue.
LOST = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.ENOBUFS, errno.EPERM}
Settings = dict[str, Any]
Handlers = dict[int, Callable[[int], None]]
Parts = tuple[bytes | memoryview, ...]
# The addresses of both ends of a connection, the own one first; their ranks, the sender's first.
Ends = tuple[str, str]
Ranks = tuple[int, int]
# Time in ns; bytes sent, notifications, packets repeated so far; rate in bit/s, window in packets,
# DCQCN's alpha.
Sample = tuple[int, int, int, int, float | None, float, float | None]


class Events(Protocol):
    """What an endpoint tells its agent, at a time in ns."""

    def left(self, send: Send, now_ns: int) -> None:
        """All packets of a transfer have left."""

    def confirmed(self, send: Send, now_ns: int) -> None:
        """A transfer has arrived whole, as its acknowledgements say."""

    def ready(self, number: int, now_ns: int) -> None:
        """The receiver of a transfer is ready for it."""

    def written(self, number: int, offset: int, size: int, content: bytes) -> None:
        """A message with bytes of a transfer has arrived; its content only where it is needed."""

    def broken(self, peer: int, number: int, why: str) -> None:
        """A queue pair of the connection with a peer is broken."""


def send_parts(sock: socket.socket, parts: Parts, there: str) -> None:
    """Send a packet, or lose it; raises `BlockingIOError` if the socket's buffer is full."""
    try:
        sock.sendmsg(parts, (), 0, (there, packets.PORT))
    except OSError as error:
        if error.errno not in LOST:
            raise


@dataclass(eq=False)
class QueuePair:
    """One end of a queue pair: its peer and its number there, with the addresses of both ends.

    Its packets take the sockets, each with a source port, in turn: packet spraying if there are
    several.
    """

    socks: list[socket.socket]
    here: str
    there: str
    peer: int
    number: int
    sender: Sender
    receiver: Receiver
    # The packet that found no room, and the socket that is polled for room.
    pending: Parts = ()
    waits: socket.socket | None = None
    due_ns: float = inf
    notified_ns: float = -inf
    notifications: int = 0
    samples: list[Sample] = field(default_factory=list)
    # The message that is arriving: where it begins, its bytes so far.
    offset: int = 0
    size: int = 0
    content: list[bytes | memoryview] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.turns = itertools.cycle([(sock, sock.getsockname()[1]) for sock in self.socks])
        self.sock = self.socks[0]

    def sample(self, now_ns: int) -> None:
        """Add a sample; of equal ones in a row, the first and the last are kept."""
        sender, control, kept = self.sender, self.sender.control, self.samples
        control.tick(now_ns)
        rate_bps = None if control.rate_bps == inf else control.rate_bps
        counts = sender.sent_bytes, self.notifications, sender.repeated
        sample = now_ns, *counts, rate_bps, control.window, getattr(control, "alpha", None)
        if len(kept) > 1 and kept[-2][1:] == kept[-1][1:] == sample[1:]:
            kept.pop()
        kept.append(sample)

    def put(self, packet: Packet) -> None:
        """Send a packet by the next socket; keep it if the socket's buffer is full."""
        self.sock, port = next(self.turns)
        self.pending = packet.parts(self.here, self.there, port)
        self.flush()

    def flush(self) -> None:
        """Send the packet that was kept, if any, unless the buffer is still full."""
        if self.pending:
            with suppress(BlockingIOError):
                send_parts(self.sock, self.pending, self.there)
                self.pending = ()


class Connection:
    """The queue pairs to one peer, and the transfers that wait for room in the window."""

    def __init__(self, pairs: list[QueuePair]) -> None:
        self.pairs, self.turn = pairs, 0
        self.queue: collections.deque[Send] = collections.deque()
        self.unconfirmed = 0

    def parts(self, send: Send, *, split: bool) -> Iterator[tuple[QueuePair, int, int]]:
        """Yield queue pairs, each with the begin and the end of what it carries of a transfer."""
        if not split:
            yield self.pairs[self.turn], 0, send.size_bytes
            self.turn = (self.turn + 1) % len(self.pairs)
            return
        count = len(self.pairs)
        places = [send.size_bytes * number // count for number in range(count + 1)]
        for pair, (begin, end) in zip(self.pairs, itertools.pairwise(places), strict=True):
            if begin < end:
                yield pair, begin, end


class Endpoint:
    """All queue pairs of a rank, by the agent's poller; `settings` are those of its program.

    It receives at an `address`, by default at all of them.
    """

    def __init__(
        self, settings: Settings, poller: select.epoll, events: Events, address: str = ""
    ) -> None:
        self.settings, self.poller, self.events = settings, poller, events
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self.sock.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        self._prepare(self.sock, (address, packets.PORT))
        self.sending_sockets: list[socket.socket] = []
        self.outgoing: dict[int, Connection] = {}
        self.incoming: dict[int, Connection] = {}
        self.by_number: dict[int, QueuePair] = {}
        self.under_way: dict[int, Send] = {}
        self.timers: list[tuple[float, int, QueuePair]] = []
        self.sample_ns = 0
        # Transfers that have left, to be told; whether that is under way.
        self.departed: collections.deque[Send] = collections.deque()
        self.is_telling = False

    def _prepare(self, sock: socket.socket, address: tuple[str, int]) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
        sock.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
        sock.bind(address)

    # Connections

    def connect(self, handlers: Handlers) -> None:
        """Make the queue pairs to and from peers that are new; `handlers` serve their sockets.

        Those that are open forget the congestion of another program.
        """
        for pair in self.by_number.values():
            pair.sender.control, pair.notified_ns = self._control(), -inf
        numbers = range(self.settings["queue_pairs"])
        for peer, (there, here, me) in self.settings["outgoing"].items():
            if (to := int(peer)) not in self.outgoing:
                ends, ranks = (here, there), (me, to)
                pairs = [self._outgoing(ends, ranks, number, handlers) for number in numbers]
                self.outgoing[to] = Connection(pairs)
        for peer, (there, here, me) in self.settings["incoming"].items():
            if (origin := int(peer)) not in self.incoming:
                # The receiving end answers by the socket of all.
                of = [self.sock], (here, there), (origin, me)
                self.incoming[origin] = Connection([self._pair(*of, one, 1) for one in numbers])

    def _outgoing(self, ends: Ends, ranks: Ranks, number: int, handlers: Handlers) -> QueuePair:
        each, ports = self.settings["queue_pairs"], self.settings["ports"]
        # The last bits of source ports, the entropy, number the queue pair, or its ports.
        first = (ranks[1] << (each * ports - 1).bit_length()) + number * ports
        socks = [self._sending(ends[0], first + port) for port in range(ports)]
        pair = self._pair(socks, ends, ranks, number, 0)
        for sock in socks:
            self.poller.register(sock, 0)
            handlers[sock.fileno()] = lambda _events: self._pump(pair)
        return pair

    def _pair(
        self, socks: list[socket.socket], ends: Ends, ranks: Ranks, number: int, side: int
    ) -> QueuePair:
        """Make an end of a queue pair between two `ranks`: 0 sends data, 1 receives it.

        Both ends know the numbers of both, which real ones exchange first.
        """
        settings, each = self.settings, self.settings["queue_pairs"]
        base = settings["generation"] % GENERATIONS << GENERATION_AT | packets.FIRST_QUEUE_PAIR
        # Each knows the queue pair by the other's rank.
        at = [base + 2 * (rank * each + number) + 1 - end for end, rank in enumerate(ranks[::-1])]
        first = (at[1] * 7919 + at[0] * 104_729) % packets.PSN_COUNT
        keys = "mtu", "selective", "timeout_ns", "retries"
        how = Reliability(*(settings[key] for key in keys))
        sender = Sender(at[1 - side], how, self._control(), first)
        receiver = Receiver(at[1 - side], selective=how.selective, first=first)
        pair = QueuePair(socks, *ends, ranks[1 - side], number, sender, receiver)
        self.by_number[at[side]] = pair
        return pair

    def _sending(self, here: str, port: int) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        size = QUEUED_PACKETS * (2 * self.settings["mtu"] + PACKET_OVERHEAD_BYTES)
        size //= self.settings["ports"]
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size // 2)  # the kernel doubles it
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECN_CAPABLE)
        # Of very many queue pairs, some have the same port: nothing is received by it.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._prepare(sock, (here, packets.FIRST_SOURCE_PORT + port % packets.SOURCE_PORTS))
        self.sending_sockets.append(sock)
        return sock

    def _control(self) -> Window:
        settings = self.settings
        window, slowdown = settings["window"], settings["slowdown"]
        match settings["congestion"]:
            case "window":
                return Window(window)
            case "dcqcn":
                return Dcqcn(window, settings["link_bps"], slowdown)
            case "swift":
                return Swift(window, 8 * (FRAME_BYTES + settings["mtu"]), slowdown)
            case other:
                raise ValueError(f"unknown congestion control {other!r}")

    def sockets(self) -> list[socket.socket]:
        """Return all sockets."""
        return [self.sock, *self.sending_sockets]

    def counts(self) -> tuple[int, int]:
        """Return how many packets were repeated, and how many arrived out of order."""
        pairs = self.by_number.values()
        repeated = sum(pair.sender.repeated for pair in pairs)
        return repeated, sum(pair.receiver.out_of_order for pair in pairs)

    # Sending

    def start(self, send: Send) -> None:
        """Queue a transfer on its connection."""
        connection = self.outgoing[send.peer]
        connection.queue.append(send)
        self._fill(connection)

    def _fill(self, connection: Connection) -> None:
        """Post transfers while fewer than a window are unconfirmed."""
        while connection.queue and connection.unconfirmed < self.settings["transfers"]:
            send = connection.queue.popleft()
            connection.unconfirmed += 1
            self.under_way[send.id] = send
            parts = list(connection.parts(send, split=self.settings["split"]))
            send.unsent, send.unconfirmed = {begin for _, begin, _ in parts}, len(parts)
            for pair, begin, end in parts:
                assert send.payload is not None
                pair.sender.post(Message(send.id, send.payload[begin:end], begin))
            for pair, _, _ in parts:
                self._pump(pair)

    def tell_ready(self, peer: int, number: int) -> None:
        """Report ready-to-receive for a transfer of a peer."""
        pair = self.incoming[peer].pairs[0]
        pair.sender.post(Message(number, memoryview(b"")))
        self._pump(pair)

    def _pump(self, pair: QueuePair) -> None:
        """Send what may be sent now, and set the timer for what may be sent later."""
        pair.flush()
        while not pair.pending and (packet := pair.sender.take(time.monotonic_ns())):
            # Not after: on a busy machine, the packet may arrive before this process goes on.
            self._note_sent(packet)
            pair.put(packet)
        full = pair.sock if pair.pending and pair.sock is not self.sock else None
        if full is not pair.waits:
            for sock, events in ((pair.waits, 0), (full, select.EPOLLOUT)):
                if sock is not None:
                    self.poller.modify(sock, events)
            pair.waits = full
        self._set_timer(pair)
        self._tell_left()

    def _note_sent(self, packet: Packet) -> None:
        """Note the begin of a transfer, and its end, once no packet of it has never left."""
        send = self.under_way.get(packet.number)
        if send is None or packet.opcode not in packets.WITH_IMMEDIATE | packets.WITH_RETH:
            return
        now_ns = time.monotonic_ns()
        send.started_ns = send.started_ns or now_ns
        if packet.opcode in packets.WITH_IMMEDIATE and send.unsent:
            send.unsent.discard(packet.offset)
            if not send.unsent:
                send.offset, send.sent_ns = send.size_bytes, now_ns
                self.departed.append(send)

    def _tell_left(self) -> None:
        """Tell which transfers have left, one by one: each may release others, which leave then."""
        if self.is_telling:
            return
        self.is_telling = True
        while self.departed:
            send = self.departed.popleft()
            self.events.left(send, send.sent_ns)
        self.is_telling = False

    # Receiving

    def on_packets(self, _events: int) -> None:
        """Read packets, and send what they allow."""
        changed: dict[QueuePair, None] = {}
        for _ in range(AT_ONCE):
            try:
                content, ancillary, _, end = self.sock.recvmsg(LARGEST_BYTES, ANCILLARY_BYTES)
            except BlockingIOError:
                break
            (there, port), packet = end, packets.read(content)
            pair = None if packet is None else self.by_number.get(packet.queue_pair)
            if packet is None or pair is None or pair.there != there:
                continue
            if packets.is_intact(content, packets.path_crc(there, pair.here, port, len(content))):
                changed[pair] = None
                marked = any(data[0] & 3 == CONGESTION_EXPERIENCED for *_, data in ancillary)
                self._take(pair, packet, marked, time.monotonic_ns())
        for pair in changed:
            self._pump(pair)

    def _take(self, pair: QueuePair, packet: Packet, marked: bool, now_ns: int) -> None:
        if packet.opcode == packets.ACKNOWLEDGE:
            try:
                done = pair.sender.answered(packet, now_ns)
            except RetryExceeded as error:
                self.events.broken(pair.peer, pair.number, str(error))
                return
            for message in done:
                self._confirm(message, now_ns)
        elif packet.opcode == packets.CONGESTION_NOTIFICATION:
            pair.notifications += 1
            pair.sender.control.notified(now_ns)
        else:
            if marked:
                self._notify(pair, now_ns)
            ready, answer = pair.receiver.receive(packet)
            if answer is not None:
                self._answer(pair, answer)
            for one in ready:
                self._deliver(pair, one, now_ns)

    def _answer(self, pair: QueuePair, packet: Packet) -> None:
        """Send an answer at once, past the packets that wait for room; without room, it is lost."""
        with suppress(BlockingIOError):
            send_parts(self.sock, packet.parts(pair.here, pair.there, packets.PORT), pair.there)

    def _notify(self, pair: QueuePair, now_ns: int) -> None:
        """Notify the sender of a marked packet, unless that was just done."""
        if now_ns - pair.notified_ns >= NOTIFICATION_INTERVAL_NS * self.settings["slowdown"]:
            pair.notified_ns = now_ns
            self._answer(pair, Packet(packets.CONGESTION_NOTIFICATION, pair.receiver.queue_pair))

    def _confirm(self, message: Message, now_ns: int) -> None:
        """Note that a message has arrived; confirm its transfer if it was the last one of it."""
        if not message.payload:
            return
        send = self.under_way[message.number]
        send.unconfirmed -= 1
        if not send.unconfirmed:
            del self.under_way[send.id]
            send.payload = None
            connection = self.outgoing[send.peer]
            connection.unconfirmed -= 1
            self.events.confirmed(send, now_ns)
            self._fill(connection)

    def _deliver(self, pair: QueuePair, packet: Packet, now_ns: int) -> None:
        if packet.opcode == packets.SEND_ONLY_IMMEDIATE:
            self.events.ready(packet.number, now_ns)
            return
        if packet.opcode in packets.WITH_RETH:
            pair.offset, pair.size, pair.content = packet.offset, 0, []
        pair.size += len(packet.payload)
        if self.settings["keep"]:
            pair.content.append(packet.payload)
        if packet.opcode in packets.WITH_IMMEDIATE:
            content = b"".join(pair.content)
            self.events.written(packet.number, pair.offset, pair.size, content)

    # Timers

    def _set_timer(self, pair: QueuePair) -> None:
        """Wake up when a packet may leave, or something is due, unless that is set already."""
        due_ns = pair.sender.next_ns() if not pair.pending else pair.sender.tick_ns()
        if due_ns < pair.due_ns:
            pair.due_ns = due_ns
            heapq.heappush(self.timers, (due_ns, id(pair), pair))

    def within_s(self, most_s: float) -> float:
        """Return how long to poll: until the next timer, at most `most_s`."""
        if not self.timers:
            return most_s
        return min(most_s, max(0.0, (self.timers[0][0] - time.monotonic_ns()) / 1e9))

    def tick(self) -> None:
        """Do what is due; what is due again at once waits until the sockets were served."""
        due, now_ns = list[tuple[float, int, QueuePair]](), time.monotonic_ns()
        while self.timers and self.timers[0][0] <= now_ns:
            due.append(heapq.heappop(self.timers))
        for due_ns, _, pair in due:
            if due_ns == pair.due_ns:
                pair.due_ns = inf
                try:
                    pair.sender.tick(time.monotonic_ns())
                except RetryExceeded as error:
                    self.events.broken(pair.peer, pair.number, str(error))
                    continue
                self._pump(pair)
        if time.monotonic_ns() >= self.sample_ns:
            self.sample()

    # Samples

    def sending(self) -> list[QueuePair]:
        """Return the queue pairs that send data."""
        return [pair for connection in self.outgoing.values() for pair in connection.pairs]

    def begin(self) -> None:
        """Begin an execution: with the first queue pairs, and without samples but the first."""
        for connection in self.outgoing.values():
            connection.turn = 0
        for pair in self.sending():
            pair.samples = []
        self.sample()

    def sample(self) -> None:
        """Sample all queue pairs that send data."""
        now_ns = time.monotonic_ns()
        self.sample_ns = now_ns + SAMPLE_NS
        for pair in self.sending():
            pair.sample(now_ns)

    def samples(self) -> Iterator[tuple[int, int, Sample]]:
        """Yield the samples of each queue pair that has sent, after its peer and its number."""
        self.sample()
        for pair in self.sending():
            if pair.samples[0][1:] != pair.samples[-1][1:]:
                yield from ((pair.peer, pair.number, sample) for sample in pair.samples)
