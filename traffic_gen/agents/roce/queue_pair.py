"""A queue pair of a reliable connection: what it sends, and what it makes of what it receives.

Both halves are state machines without clock and socket: they are given the time, and return
packets. Source: InfiniBand Architecture Specification, volume 1, section 9.7; selective repeat as
of IRN (Mittal et al., SIGCOMM 2018, section 3.1). PSNs count on beyond 24 bits inside, so that they
compare. A part of the agent: it needs only Python's standard library.
"""

import collections
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from traffic_gen.agents.roce import packets
from traffic_gen.agents.roce.congestion import Window
from traffic_gen.agents.roce.packets import FRAME_BYTES, Packet

# An acknowledgement is requested every so many packets, and with the last one of a message; with
# each where the rate puts so many so far apart that the timeout would come first.
ACKNOWLEDGED_EVERY = 8
# Packets that were paced may leave so much earlier than evenly: timers of epoll have milliseconds.
EARLY_NS = 2_000_000


def unwrapped(psn: int, near: int) -> int:
    """Return the PSN with these 24 bits that is nearest to another one."""
    half = packets.PSN_COUNT // 2
    return near + (psn - near + half) % packets.PSN_COUNT - half


class RetryExceeded(ConnectionError):
    """A packet was repeated too often without any progress: the queue pair is broken."""


@dataclass(slots=True)
class Message:
    """An RDMA WRITE with immediate: `number`. Its bytes begin at `offset` of a transfer.

    A message without payload is a SEND. Its packets have the PSNs from `first` to before `end`.
    """

    number: int
    payload: memoryview
    offset: int = 0
    first: int = 0
    end: int = 0


@dataclass(frozen=True)
class Reliability:
    """How a queue pair repeats: `timeout_ns` after it last sent or got an acknowledgement.

    At most `retries` times in a row it repeats without any progress. After a lost packet,
    go-back-N repeats all from there, selective repeat what is missing.
    """

    mtu: int
    selective: bool
    timeout_ns: float
    retries: int


class Sender:
    """The requester: posts messages, sends their packets, and repeats those that are lost.

    `oldest` is the first PSN that is not acknowledged, `next` the next one to send, `sent` the
    first one that never was, `end` the one after all messages, `asked` the last one that requested
    an acknowledgement.
    """

    def __init__(self, queue_pair: int, how: Reliability, control: Window, first: int = 0) -> None:
        self.queue_pair, self.how, self.control = queue_pair, how, control
        self.oldest = self.next = self.sent = self.end = first
        self.asked = first - 1
        self.messages: collections.deque[Message] = collections.deque()
        self.deadline_ns: float = inf
        self.paced_ns, self.paced_bits, self.paced_bps = 0.0, 0, inf
        self.tries = self.repeated = self.sent_bytes = 0
        # When packets last left whose acknowledgement was requested.
        self.left_ns: dict[int, int] = {}
        # Selective repeat: what arrived out of order, the end of what is under recovery, the end of
        # what counts as lost since it began, and the next PSN that may have to be repeated.
        self.arrived: set[int] = set()
        self.recovery = self.lost = self.repeat = first

    def post(self, message: Message) -> None:
        """Append a message."""
        message.first = self.end
        self.end = message.end = self.end + max(1, -(-len(message.payload) // self.how.mtu))
        self.messages.append(message)

    def due_ns(self) -> float:
        """Return when the next packet may leave; infinity while it waits for an acknowledgement."""
        return self._paced_ns() if self._choice() is not None else inf

    def _paced_ns(self) -> float:
        """Return when a packet may leave after the last one, earlier once the rate has grown."""
        return self.paced_ns + self.paced_bits * 1e9 / max(self.paced_bps, self.control.rate_bps)

    def _choice(self) -> int | None:
        """Return the PSN to send next, if the window allows one.

        Packets that arrived out of order count, as in IRN (section 3.2). A window that has shrunk
        lets one more pass, if no packet under way is to be acknowledged; of missing packets, those
        within it.
        """
        if self.recovery > self.oldest and (missing := self._missing()) is not None:
            return missing if missing - self.oldest <= self.control.window - 1 else None
        under_way = self.next - self.oldest
        may_leave = under_way <= self.control.window - 1 or self.asked < self.oldest
        return self.next if self.next < self.end and may_leave else None

    def _missing(self) -> int | None:
        """Return the next PSN to repeat selectively: lost, or below one that arrived."""
        self.repeat = max(self.repeat, self.oldest)
        while self.repeat in self.arrived:
            self.repeat += 1
        last = max(self.arrived, default=self.oldest)
        return self.repeat if self.repeat < max(self.lost, last) else None

    def take(self, now_ns: int) -> Packet | None:
        """Return the packet to send now, if one may leave."""
        psn = self._choice()
        if psn is None or now_ns < self._paced_ns():
            return None
        if psn == self.next:
            self.next += 1
        else:
            self.repeat += 1
        packet = self._packet(psn)
        size_bytes = packet.frame_bytes
        self.control.sent(size_bytes, now_ns)
        self.sent_bytes += size_bytes
        self.paced_ns = max(self._paced_ns(), now_ns - EARLY_NS)
        self.paced_bits, self.paced_bps = 8 * size_bytes, self.control.rate_bps
        self.repeated += psn < self.sent
        self.sent = max(self.sent, psn + 1)
        self.left_ns.pop(psn, None)
        if packet.ack_request:
            self.asked, self.left_ns[psn] = max(self.asked, psn), now_ns
        self.deadline_ns = now_ns + self.how.timeout_ns
        return packet

    def _packet(self, psn: int) -> Packet:
        message = next(one for one in self.messages if psn < one.end)
        index, mtu = psn - message.first, self.how.mtu
        is_last = psn == message.end - 1
        if message.end - message.first > 1:
            opcode = packets.MIDDLE if index else packets.FIRST
            opcode = packets.LAST_IMMEDIATE if is_last else opcode
        else:
            opcode = packets.ONLY_IMMEDIATE if message.payload else packets.SEND_ONLY_IMMEDIATE
        must_know = is_last or psn + 1 - self.oldest > self.control.window - 1
        must_know |= self.how.selective and psn < self.sent
        apart_ns = (FRAME_BYTES + mtu) * 8e9 / self.control.rate_bps
        must_know |= ACKNOWLEDGED_EVERY * apart_ns > self.how.timeout_ns
        return Packet(
            opcode,
            self.queue_pair,
            psn % packets.PSN_COUNT,
            ack_request=must_know or (psn + 1) % ACKNOWLEDGED_EVERY == 0,
            offset=message.offset,
            length=len(message.payload),
            number=message.number,
            payload=message.payload[index * mtu : (index + 1) * mtu],
        )

    def answered(self, answer: Packet, now_ns: int) -> list[Message]:
        """Take an acknowledgement or a NAK; return the messages that it completes."""
        psn = unwrapped(answer.psn, self.oldest)
        if answer.syndrome == packets.ACKNOWLEDGED:
            return self._acknowledge(psn + 1, now_ns)
        done = self._acknowledge(psn, now_ns)
        if answer.syndrome == packets.SEQUENCE_ERROR and psn == self.oldest < self.sent:
            self._refused(unwrapped(answer.msn, self.oldest), now_ns)
        return done

    def _acknowledge(self, until: int, now_ns: int) -> list[Message]:
        """Take all PSNs before `until` for arrived; return the messages that are complete."""
        if not self.oldest < until <= self.sent:
            return []
        left_ns = self.left_ns.get(until - 1)
        self.left_ns = {psn: at_ns for psn, at_ns in self.left_ns.items() if psn >= until}
        count, self.oldest = until - self.oldest, until
        self.next = max(self.next, until)
        self.arrived = {psn for psn in self.arrived if psn >= until}
        self.tries = 0
        self.deadline_ns = inf if until == self.next else now_ns + self.how.timeout_ns
        round_trip_ns = None if left_ns is None else now_ns - left_ns
        self.control.acknowledged(count, round_trip_ns, now_ns)
        done = []
        while self.messages and self.messages[0].end <= until:
            done.append(self.messages.popleft())
        return done

    def _refused(self, arrived: int, now_ns: int) -> None:
        """Take a NAK, by which a PSN arrived out of order."""
        if self.how.selective and self.oldest < arrived < self.sent:
            self.arrived.add(arrived)
        if not self.how.selective or self.recovery <= self.oldest:
            self.control.lost(now_ns)
            self._repeat(self.oldest + 1, now_ns)

    def _repeat(self, lost: int, now_ns: int) -> None:
        """Go back to the oldest packet, or repeat selectively until all that was sent arrived.

        What has not arrived of the PSNs before `lost` was lost: of others, that is yet to be known.
        """
        self.tries += 1
        # A paced packet has yet to leave: it cannot be late.
        self.deadline_ns = max(now_ns, self._paced_ns()) + self.how.timeout_ns
        if self.tries > self.how.retries:
            raise RetryExceeded(f"no progress after {self.how.retries} retries")
        if self.how.selective:
            self.recovery, self.lost, self.repeat = self.next, lost, self.oldest
        else:
            self.next = self.oldest
            self.asked = self.oldest - 1

    def tick(self, now_ns: int) -> None:
        """Repeat after a timeout; raises `RetryExceeded` after too many in a row."""
        if now_ns >= self.control.next_ns:
            self.control.tick(now_ns)
        if now_ns >= self.deadline_ns:
            self.control.timed_out(now_ns)
            # Nothing that is under way is answered any more.
            self.left_ns.clear()
            self._repeat(self.next, now_ns)

    def tick_ns(self) -> float:
        """Return when `tick` is due."""
        return min(self.deadline_ns, self.control.next_ns)

    def next_ns(self) -> float:
        """Return when `tick` is due, or a packet may leave."""
        return min(self.due_ns(), self.tick_ns())


class Receiver:
    """The responder: hands packets on in order, once, and answers them.

    By go-back-N packets behind a gap are dropped, and the first of them is answered by a NAK. By
    selective repeat they are kept, and each is answered by one: its PSN is the expected one, and
    its MSN, elsewhere the number of whole messages (section 9.7.5.1.4), the PSN that arrived (IRN's
    selective acknowledgement).
    """

    def __init__(self, queue_pair: int, *, selective: bool, first: int = 0) -> None:
        self.queue_pair, self.selective, self.expected = queue_pair, selective, first
        self.early: dict[int, Packet] = {}
        self.has_refused = False
        self.out_of_order = self.messages = 0

    def receive(self, packet: Packet) -> tuple[Sequence[Packet], Packet | None]:
        """Take a packet; return those that are next in order, and the answer, if it gets one."""
        psn = unwrapped(packet.psn, self.expected)
        if psn > self.expected:
            self.out_of_order += 1
            return (), self._refuse(psn, packet)
        if psn < self.expected:
            return (), self._acknowledge() if packet.ack_request else None
        self.has_refused = False
        self._accept(packet)
        if not self.early:
            return (packet,), self._acknowledge() if packet.ack_request else None
        ready = [packet]
        while self.expected in self.early:
            ready.append(self.early.pop(self.expected))
            self._accept(ready[-1])
        return ready, self._acknowledge()

    def _accept(self, packet: Packet) -> None:
        self.expected += 1
        self.messages += packet.opcode in packets.WITH_IMMEDIATE

    def _acknowledge(self) -> Packet:
        return self._answer(packets.ACKNOWLEDGED, self.expected - 1, self.messages)

    def _refuse(self, psn: int, packet: Packet) -> Packet | None:
        if self.selective:
            self.early[psn] = packet
        elif self.has_refused:
            return None
        self.has_refused = True
        msn = psn if self.selective else self.messages
        return self._answer(packets.SEQUENCE_ERROR, self.expected, msn)

    def _answer(self, syndrome: int, psn: int, msn: int) -> Packet:
        psn, msn = psn % packets.PSN_COUNT, msn % packets.PSN_COUNT
        return Packet(packets.ACKNOWLEDGE, self.queue_pair, psn, syndrome=syndrome, msn=msn)
