"""RoCEv2 in user space: packets as scapy reads them, and queue pairs on a path that loses them."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.roce import AETH, BTH, cnp
from scapy.layers.inet import IP, UDP

from model.fabric import transport
from model.fabric.shaping import ETHERNET_HEADER_BYTES, MTU_BYTES
from model.fabric.transport import MTUS, NOTIFICATION_BYTES, Roce
from traffic_gen.agents.roce import packets
from traffic_gen.agents.roce.congestion import Swift, Window
from traffic_gen.agents.roce.endpoint import Connection
from traffic_gen.agents.roce.packets import FRAME_BYTES, Packet, is_intact, path_crc, read
from traffic_gen.agents.roce.queue_pair import (
    ACKNOWLEDGED_EVERY,
    EARLY_NS,
    Message,
    Receiver,
    Reliability,
    RetryExceeded,
    Sender,
    unwrapped,
)
from traffic_gen.agents.transfers import Send

HERE, THERE, PORT = "10.0.0.1", "10.0.128.2", 50000
PSNS = st.integers(0, packets.PSN_COUNT - 1)


def sent(packet: Packet) -> bytes:
    """The bytes behind the UDP header."""
    return b"".join(packet.parts(HERE, THERE, PORT))


def on_wire(content: bytes) -> IP:
    """The same as an IP packet that scapy has read."""
    udp = UDP(sport=PORT, dport=packets.PORT, chksum=0)
    return IP(bytes(IP(src=HERE, dst=THERE, flags="DF", id=0) / udp / content))


WRITES = [packets.FIRST, packets.MIDDLE, packets.LAST_IMMEDIATE, packets.ONLY_IMMEDIATE]


@given(st.sampled_from(WRITES), PSNS, st.binary(min_size=1, max_size=100), st.booleans())
def test_scapy_reads_the_packets_of_a_write_and_finds_their_check_sum_right(
    opcode: int, psn: int, payload: bytes, asks: bool
) -> None:
    packet = Packet(opcode, 77, psn, asks, 4096, 70000, 123456, payload=payload)
    content = sent(packet)
    bth = on_wire(content)[BTH]
    assert (bth.opcode, bth.dqpn, bth.psn, bth.ackreq) == (opcode, 77, psn, asks)
    assert bth.padcount == -len(payload) % 4
    fields = {packets.FIRST: (4096, 0x1B, 70000), packets.LAST_IMMEDIATE: (123456,)}
    fields[packets.ONLY_IMMEDIATE] = (*fields[packets.FIRST], *fields[packets.LAST_IMMEDIATE])
    sizes = {0x1B: 4, 4096: 8}
    extended = b"".join(n.to_bytes(sizes.get(n, 4), "big") for n in fields.get(opcode, ()))
    assert bytes(bth.payload) == extended + payload + bytes(-len(payload) % 4)
    bth.icrc = None
    assert bytes(bth) == content
    read_back = read(content)
    assert read_back is not None
    assert bytes(read_back.payload) == payload
    assert (read_back.psn, read_back.ack_request) == (psn, asks)


def test_scapy_reads_answers_and_notifications() -> None:
    nak = Packet(packets.ACKNOWLEDGE, 9, 5, syndrome=packets.SEQUENCE_ERROR, msn=8)
    aeth = on_wire(sent(nak))[AETH]
    assert (aeth.syndrome, aeth.msn) == (packets.SEQUENCE_ERROR, 8)
    notification = on_wire(sent(Packet(packets.CONGESTION_NOTIFICATION, 9)))
    assert ETHERNET_HEADER_BYTES + len(notification) == NOTIFICATION_BYTES
    assert bytes(notification[UDP].payload)[:-4] == bytes(cnp(9))[:-4]
    assert bytes(cnp(9))[4] == bytes(notification[BTH])[4]


@given(st.binary(min_size=1, max_size=64), st.integers(0, 10**6), st.integers(1, 255))
def test_a_changed_byte_is_noticed_unless_switches_may_change_it(
    payload: bytes, place: int, change: int
) -> None:
    content = bytearray(sent(Packet(packets.MIDDLE, 77, 1, payload=payload)))
    crc = path_crc(HERE, THERE, PORT, len(content))
    assert is_intact(bytes(content), crc)
    place %= len(content)
    content[place] ^= change
    assert is_intact(bytes(content), crc) == (place == packets.CONGESTION_BITS_AT)


@given(st.binary(max_size=80))
def test_any_bytes_can_be_read(content: bytes) -> None:
    read(content)


def test_only_packets_of_the_protocol_are_read() -> None:
    contents = (bytes([opcode]) + bytes(40) for opcode in range(256))
    known = {packet.opcode for packet in map(read, contents) if packet is not None}
    assert known == {*range(0x05, 0x0C), packets.ACKNOWLEDGE, packets.CONGESTION_NOTIFICATION}


@given(st.integers(0, 1 << 40), st.integers(-(1 << 23) + 1, (1 << 23) - 1))
def test_sequence_numbers_count_on_beyond_24_bits(near: int, distance: int) -> None:
    assert unwrapped((near + distance) % packets.PSN_COUNT, near) == near + distance


# How the path treats each packet: it is lost, or arrives after so many units of time.
Path = Callable[[], int | None]


@dataclass
class Pair:
    """Two ends of a queue pair, joined by a path; time counts in ns."""

    sender: Sender
    receiver: Receiver
    there: Path
    back: Path
    slot_ns: int = 0
    now_ns: int = 0
    free_ns: int = 0
    got: list[tuple[int, bytes]] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    arriving: list[tuple[int, int, Packet, bool]] = field(default_factory=list)
    part: bytes = b""
    numbered: int = 0

    def run(self, until: Callable[[], bool]) -> None:
        while not until():
            self._send()
            times = [self.arriving[0][0] if self.arriving else inf, self.sender.next_ns()]
            busy = self.sender.due_ns() < inf
            moment = max(min(times), self.free_ns if busy else 0)
            assert moment < inf, "nothing happens any more"
            self.now_ns = max(self.now_ns, ceil(moment))
            while self.arriving and self.arriving[0][0] <= self.now_ns:
                _, _, packet, forth = heapq.heappop(self.arriving)
                (self._at_receiver if forth else self._at_sender)(packet)
            self.sender.tick(self.now_ns)

    def _send(self) -> None:
        while self.now_ns >= self.free_ns and (packet := self.sender.take(self.now_ns)):
            self.free_ns = self.now_ns + self.slot_ns
            self._travel(packet, self.there(), forth=True)

    def _travel(self, packet: Packet, delay_ns: int | None, *, forth: bool) -> None:
        self.numbered += 1
        if delay_ns is not None:
            heapq.heappush(self.arriving, (self.now_ns + delay_ns, self.numbered, packet, forth))

    def _at_receiver(self, packet: Packet) -> None:
        content = read(sent(packet))
        assert content is not None
        ready, answer = self.receiver.receive(content)
        for one in ready:
            if one.opcode in packets.WITH_RETH:
                assert self.part == b""
            self.part += bytes(one.payload)
            if one.opcode in packets.WITH_IMMEDIATE:
                self.got.append((one.number, self.part))
                self.part = b""
        if answer is not None:
            self._travel(answer, self.back(), forth=False)

    def _at_sender(self, packet: Packet) -> None:
        content = read(sent(packet))
        assert content is not None
        self.done += [message.number for message in self.sender.answered(content, self.now_ns)]


def pair(
    there: Path,
    back: Path,
    *,
    selective: bool,
    control: Window | None = None,
    first: int = 0,
    timeout_ns: float = 100.0,
    retries: int = 10**9,
    slot_ns: int = 1,
) -> Pair:
    how = Reliability(16, selective, timeout_ns, retries)
    sender = Sender(5, how, control or Window(12), first)
    return Pair(sender, Receiver(6, selective=selective, first=first), there, back, slot_ns)


def unreliable(chance: random.Random, loss: float, most: int) -> Path:
    return lambda: None if chance.random() < loss else chance.randint(1, most)


@given(
    st.lists(st.integers(0, 200), min_size=1, max_size=5),
    st.booleans(),
    st.integers(0, 10**9),
    st.floats(0, 0.4),
    st.integers(1, 60),
    st.integers(1, 20),
    st.sampled_from([0, packets.PSN_COUNT - 5, 5 * packets.PSN_COUNT - 1]),
)
def test_every_message_arrives_once_and_whole_whatever_the_path_does(
    sizes: list[int],
    selective: bool,
    seed: int,
    loss: float,
    most: int,
    window: int,
    first: int,
) -> None:
    chance = random.Random(seed)
    path = unreliable(chance, loss, most)
    ends = pair(path, path, selective=selective, control=Window(window), first=first)
    contents = [chance.randbytes(size) for size in sizes]
    for number, content in enumerate(contents):
        ends.sender.post(Message(number, memoryview(content)))
    ends.run(lambda: len(ends.done) == len(sizes))
    assert ends.got == list(enumerate(contents))
    assert ends.done == list(range(len(sizes)))
    ends.arriving.clear()
    assert ends.sender.next_ns() == inf


def test_without_loss_nothing_is_repeated_and_acknowledgements_are_few() -> None:
    answers = iter(range(1000))
    ends = pair(lambda: 5, lambda: 5 + 0 * next(answers), selective=False, control=Window(24))
    ends.sender.post(Message(0, memoryview(bytes(160 * 16))))
    ends.run(lambda: ends.done == [0])
    assert ends.sender.repeated == ends.receiver.out_of_order == 0
    assert next(answers) == 160 / 8


def lose(numbers: set[int]) -> Path:
    """Lose the packets with these numbers, counted as they are sent."""
    count = iter(range(10**9))
    return lambda: None if next(count) in numbers else 3


@pytest.mark.parametrize("selective", [False, True])
def test_one_lost_packet_is_repeated_alone_or_with_all_behind_it(selective: bool) -> None:
    ends = pair(lose({4}), lambda: 3, selective=selective, timeout_ns=10**6)
    ends.sender.post(Message(0, memoryview(bytes(20 * 16))))
    ends.run(lambda: ends.done == [0])
    # The round trip has seven packets: those behind the lost one that had left.
    assert ends.sender.repeated == (1 if selective else 7)
    assert ends.now_ns < 1000


@pytest.mark.parametrize("selective", [False, True])
def test_acknowledgements_count_whole_messages_and_repeated_ones_once(selective: bool) -> None:
    """Section 9.7.5.1.4 has the MSN of 24 bits."""
    ends, counts = pair(lose({4, 9}), lambda: 3, selective=selective), list[int]()
    ends.receiver.messages = packets.PSN_COUNT - 2
    at_sender = ends.sender.answered

    def answered(answer: Packet, now_ns: int) -> list[Message]:
        if answer.syndrome == packets.ACKNOWLEDGED or not selective:
            counts.append(answer.msn)
        return at_sender(answer, now_ns)

    ends.sender.answered = answered  # type: ignore[method-assign]
    for number in range(5):
        ends.sender.post(Message(number, memoryview(bytes(40))))
    ends.run(lambda: len(ends.done) == 5)
    counted = [(count + 2) % packets.PSN_COUNT for count in counts]
    assert counted == sorted(counted)
    assert counted[-1] == 5


def test_the_last_packet_is_repeated_after_the_timeout() -> None:
    ends = pair(lose({0, 1, 2}), lambda: 3, selective=False, timeout_ns=1000)
    ends.sender.post(Message(0, memoryview(b"last")))
    ends.run(lambda: ends.done == [0])
    assert ends.now_ns == 3006
    assert ends.sender.tries == 0


@pytest.mark.parametrize("selective", [False, True])
@pytest.mark.parametrize("lost", [{*range(30)}, {*range(16, 30)}, {3, *range(25, 30)}])
def test_all_that_was_lost_is_repeated_after_one_timeout(lost: set[int], selective: bool) -> None:
    """No later packet tells of those at the end."""
    ends = pair(lose(lost), lambda: 3, selective=selective, timeout_ns=1000, control=Window(32))
    ends.sender.post(Message(0, memoryview(bytes(30 * 16))))
    ends.run(lambda: ends.done == [0])
    assert ends.now_ns < 1200
    assert not selective or ends.sender.repeated == len(lost)


@pytest.mark.parametrize("selective", [False, True])
def test_no_more_is_repeated_at_once_than_a_window_that_has_shrunk(selective: bool) -> None:
    control = Swift(32, 74 * 8, 1)
    ends = pair(lose({*range(32)}), lambda: 10**4, selective=selective, control=control)
    ends.sender.how = replace(ends.sender.how, timeout_ns=10**5)
    ends.sender.post(Message(0, memoryview(bytes(32 * 16))))
    ends.run(lambda: ends.sender.repeated > 0)
    assert control.window == 16
    ends.run(lambda: not ends.sender.due_ns() < inf)
    assert ends.sender.repeated == 16
    ends.run(lambda: ends.done == [0])
    assert ends.sender.repeated == 32


@pytest.mark.parametrize("selective", [False, True])
def test_a_queue_pair_breaks_after_its_retries(selective: bool) -> None:
    ends = pair(lambda: None, lambda: 3, selective=selective, retries=7)
    ends.sender.post(Message(0, memoryview(b"lost")))
    with pytest.raises(RetryExceeded, match="7 retries"):
        ends.run(lambda: False)
    assert ends.sender.repeated == 7


@pytest.mark.parametrize("loss", [0.002, 0.01, 0.03])
def test_the_goodput_of_go_back_n_is_that_of_the_closed_form(loss: float) -> None:
    """(1 - p) / (1 + (W - 1) p), of a round trip of W packets (Bertsekas and Gallager, 2.4).

    A timeout right after the round trip makes a packet that is lost again as dear as the first.
    """
    chance, count, round_trip = random.Random(7), 4000, 20
    ends = pair(
        lambda: None if chance.random() < loss else round_trip - 1,
        lambda: 1,
        selective=False,
        control=Window(round_trip + 16),
        timeout_ns=round_trip + 1,
    )
    ends.sender.post(Message(0, memoryview(bytes(count * 16))))
    ends.run(lambda: ends.done == [0])
    closed_form = (1 - loss) / (1 + (round_trip - 1) * loss)
    assert count / ends.now_ns == pytest.approx(closed_form, rel=0.1)


def test_packets_that_arrived_out_of_order_count_for_the_window() -> None:
    """The packets between the next and the last acknowledged one (IRN, section 3.2)."""
    path, under_way = unreliable(random.Random(7), 0.3, 1), set[int]()
    ends = pair(path, lambda: 3, selective=True, control=Window(12))
    ends.sender.post(Message(0, memoryview(bytes(200 * 16))))

    def is_done() -> bool:
        under_way.add(ends.sender.next - ends.sender.oldest)
        return ends.done == [0]

    ends.run(is_done)
    assert max(under_way) == 12


def test_selective_repeat_costs_little_more_than_what_is_lost() -> None:
    chance, count = random.Random(7), 5000
    ends = pair(
        lambda: None if chance.random() < 0.01 else 19,
        lambda: 1,
        selective=True,
        control=Window(60),
        timeout_ns=200,
    )
    ends.sender.post(Message(0, memoryview(bytes(count * 16))))
    ends.run(lambda: ends.done == [0])
    assert ends.sender.repeated == pytest.approx(0.01 * count, rel=0.2)


@pytest.mark.parametrize("window", [1, 3, 8, 15, 20, 64])
def test_the_goodput_of_a_window_is_that_of_the_model(window: int) -> None:
    """A window in a round trip, which waits for the packets that are acknowledged at once."""
    travels, count = 100, 4000
    ends = pair(
        lambda: travels,
        lambda: travels,
        selective=False,
        control=Window(window),
        timeout_ns=10**6,
    )
    ends.sender.post(Message(0, memoryview(bytes(count * 16))))
    ends.run(lambda: ends.done == [0])
    modeled = window / (2 * travels + Roce(window=window).acknowledged_packets)
    assert count / ends.now_ns == pytest.approx(modeled, rel=0.01)


class Shrinking(Window):
    """A window that congestion control cuts at any acknowledgement."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(20)
        self.chance = chance

    def acknowledged(self, packets: int, round_trip_ns: int | None, now_ns: int) -> None:
        cut = self.chance.random() < 0.4
        self.window = max(1.0, self.window / 2) if cut else min(20.0, self.window + 3)


@pytest.mark.parametrize("selective", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_window_that_shrinks_never_waits_for_the_timeout(seed: int, selective: bool) -> None:
    """Below the packets under way, of which none may have requested an acknowledgement."""
    control = Shrinking(random.Random(seed))
    ends = pair(
        lambda: 30,
        lambda: 30,
        selective=selective,
        control=control,
        timeout_ns=10**6,
        slot_ns=4,
    )
    ends.sender.post(Message(0, memoryview(bytes(400 * 16))))
    ends.run(lambda: ends.done == [0])
    assert ends.sender.repeated == 0


class Noted(Window):
    """Counts losses and timeouts."""

    losses = timeouts = 0

    def lost(self, now_ns: int) -> None:
        self.losses += 1

    def timed_out(self, now_ns: int) -> None:
        self.timeouts += 1


@pytest.mark.parametrize("selective", [False, True])
@pytest.mark.parametrize(
    ("count", "lost", "expected"),
    [(20, {4}, (1, 0)), (20, {0}, (1, 0)), (1, {0, 1}, (0, 2))],
)
def test_congestion_control_tells_a_refused_packet_from_a_timeout(
    count: int, lost: set[int], expected: tuple[int, int], selective: bool
) -> None:
    control = Noted(64)
    ends = pair(lose(lost), lambda: 3, selective=selective, control=control, timeout_ns=1000)
    ends.sender.post(Message(0, memoryview(bytes(count * 16))))
    ends.run(lambda: ends.done == [0])
    assert (control.losses, control.timeouts) == expected


@pytest.mark.parametrize("selective", [False, True])
@pytest.mark.parametrize("arrived", [20, 24])
def test_after_many_timeouts_swift_goes_on_with_the_first_acknowledgement(
    arrived: int, selective: bool
) -> None:
    """Until then, packets are a thousand round trips apart.

    It answers for all that had arrived, too: packets 7, 15 and 23 had requested an answer before.
    """
    control, way_ns, nothing = Swift(32, 74 * 8, 20_000), 3 * 10**6, lambda: None
    there = back = lambda: way_ns
    ends = pair(
        there,
        back,
        selective=selective,
        control=control,
        timeout_ns=10**9,
        slot_ns=10**6,
    )
    ends.sender.post(Message(0, memoryview(bytes(400 * 16))))
    ends.run(lambda: ends.receiver.expected == arrived)
    ends.there = ends.back = nothing
    ends.arriving.clear()
    ends.run(lambda: control.timeouts == control.RESET_TIMEOUTS)
    assert control.size == control.LEAST_WINDOW
    ends.there, ends.back = there, back
    ends.run(lambda: control.timeouts == 0)
    resumed_ns = ends.now_ns
    ends.run(lambda: ends.done == [0])
    assert ends.now_ns - resumed_ns < 100 * 2 * way_ns


class Paced(Window):
    """A fixed rate."""

    rate_bps = 8e9 / 4  # of 74-byte frames, one every 296 ns


def test_packets_are_paced() -> None:
    ends = pair(
        lambda: 3,
        lambda: 3,
        selective=False,
        control=Paced(1000),
        slot_ns=0,
        timeout_ns=10**6,
    )
    ends.now_ns = 10**9
    ends.sender.paced_ns = 10.0**9 + EARLY_NS
    ends.sender.post(Message(0, memoryview(bytes(300 * 16))))
    ends.run(lambda: ends.done == [0])
    assert ends.now_ns - 10**9 - EARLY_NS == pytest.approx(299 * 296, rel=0.01)


def test_a_rate_that_grows_shortens_the_gap_behind_the_last_packet() -> None:
    control = Paced(1000)
    sender = Sender(2, Reliability(16, False, 10**6, 7), control)
    sender.post(Message(0, memoryview(bytes(32))))
    assert sender.take(EARLY_NS) is not None  # 90 bytes, with the RETH
    assert sender.due_ns() == 360
    control.rate_bps *= 2
    assert sender.due_ns() == 180
    control.rate_bps /= 8
    assert sender.due_ns() == 360


def test_no_more_packets_are_under_way_than_a_window_with_a_fraction() -> None:
    sender = Sender(2, Reliability(16, False, 10**6, 7), Window(2.5))
    sender.post(Message(0, memoryview(bytes(64))))
    sent = [sender.take(0) for _ in range(3)]
    assert [packet and packet.ack_request for packet in sent] == [False, True, None]


def test_a_window_that_shrinks_below_what_is_repeated_lets_one_pass_that_asks() -> None:
    """Else nothing under way would be acknowledged, and only the timeout would go on."""
    sender = Sender(2, Reliability(16, False, 10**6, 7), Window(4))
    sender.post(Message(0, memoryview(bytes(128))))
    assert sum(sender.take(0) is not None for _ in range(8)) == 4
    sender.answered(Packet(packets.ACKNOWLEDGE, 2, 0, syndrome=packets.SEQUENCE_ERROR), 0)
    first = sender.take(0)
    sender.control.window = 1
    repeated = [first, sender.take(0), sender.take(0)]
    assert [packet and packet.ack_request for packet in repeated] == [False, True, None]


def test_a_window_that_shrinks_while_packets_are_repeated_lets_none_pass_before_an_answer() -> None:
    """The last packet under way asked for one before those that are repeated did."""
    sender = Sender(2, Reliability(16, True, 10**6, 7), Window(8))
    sender.post(Message(0, memoryview(bytes(20 * 16))))
    assert sum(sender.take(0) is not None for _ in range(20)) == 8
    nak = Packet(packets.ACKNOWLEDGE, 2, 0, syndrome=packets.SEQUENCE_ERROR, msn=1)
    sender.answered(nak, 0)
    sender.control.window = 2
    assert sender.take(0) is not None
    sender.answered(Packet(packets.ACKNOWLEDGE, 2, 1, syndrome=packets.ACKNOWLEDGED), 0)
    assert (sender.oldest, sender.next, sender.take(0)) == (2, 8, None)


def test_packets_that_are_yet_to_be_repeated_are_not_late() -> None:
    sender = Sender(2, Reliability(16, False, 100, 7), Window(4))
    sender.post(Message(0, memoryview(bytes(20 * 16))))
    assert sum(sender.take(0) is not None for _ in range(20)) == 4
    sender.tick(100)
    sender.answered(Packet(packets.ACKNOWLEDGE, 2, 1, syndrome=packets.ACKNOWLEDGED), 101)
    assert sender.tick_ns() == inf
    assert sender.take(500) is not None
    assert sender.tick_ns() == 600


@pytest.mark.parametrize("selective", [False, True])
@pytest.mark.parametrize("timeout_ns", [100, 296, 2000, 10**4])
def test_packets_that_leave_far_apart_are_not_taken_for_lost(
    timeout_ns: int, selective: bool
) -> None:
    """A rate that congestion control cut: the eighth packet leaves long after the timeout."""
    ends = pair(
        lambda: 3,
        lambda: 3,
        selective=selective,
        control=Paced(1000),
        timeout_ns=timeout_ns,
        retries=7,
    )
    ends.sender.post(Message(0, memoryview(bytes(20 * 16))))
    ends.run(lambda: ends.done == [0])
    assert ends.sender.repeated == 0


@pytest.mark.parametrize("selective", [False, True])
@pytest.mark.parametrize("window", [1, 2, 4, 8, 16, 32])
def test_the_model_knows_how_often_packets_are_acknowledged(window: int, selective: bool) -> None:
    answers, count = iter(range(10**6)), 800
    control = Window(window)
    ends = pair(lambda: 1, lambda: 1 + 0 * next(answers), selective=selective, control=control)
    ends.sender.post(Message(0, memoryview(bytes(count * 16))))
    ends.run(lambda: ends.done == [0])
    roce, answered = Roce(window=window), next(answers)
    assert count / answered == roce.acknowledged_packets
    # Ethernet 14, IP 20, UDP 8, BTH 12, AETH 4 and ICRC 4 bytes.
    data_bytes, answers_bytes = count * roce.frame_bytes, answered * 62
    mean_bytes = (data_bytes + answers_bytes) / (count + answered)
    assert roce.mean_packet_bytes == pytest.approx(mean_bytes)
    assert roce.acknowledgement_share == pytest.approx(answers_bytes / data_bytes)


@pytest.mark.parametrize("window", [3, 5, 6, 12, 15, 17, 20, 40])
def test_the_model_knows_how_often_full_windows_are_acknowledged(window: int) -> None:
    """What an answer frees is filled again, by a packet that asks for the next one."""
    answers, count = iter(range(10**6)), 8000
    ends = pair(lambda: 50, lambda: 50 + 0 * next(answers), selective=False, control=Window(window))
    ends.sender.post(Message(0, memoryview(bytes(count * 16))))
    ends.run(lambda: ends.done == [0])
    acknowledged = Roce(window=window).acknowledged_packets
    assert count / next(answers) == pytest.approx(acknowledged, rel=0.05)


@given(
    st.integers(1, 60_000) | st.integers(1, 16).map(lambda packets: packets * min(MTUS)),
    st.sampled_from(MTUS),
    st.integers(1, 16),
    st.booleans(),
)
def test_the_model_counts_the_bytes_of_all_frames(
    size: int, mtu: int, queue_pairs: int, split: bool
) -> None:
    how, frames, last = Reliability(mtu, False, 1e9, 7), list[int](), dict[int, int]()
    connection = Connection([cast(Any, number) for number in range(queue_pairs)])
    send = Send(0, 1, size, [], False, [], 0, -1, 0)
    for _, begin, end in connection.parts(send, split=split):
        sender = Sender(5, how, Window(10**9))
        sender.post(Message(0, memoryview(bytes(end - begin)), begin))
        before = len(frames)
        while packet := sender.take(10**9):
            frames.append(14 + 20 + 8 + len(sent(packet)))
        assert sender.sent_bytes == sum(frames[before:])
        last[end - begin] = frames[-1]
    roce = Roce(mtu=mtu, queue_pairs=queue_pairs, split=split)
    assert roce.wire_bytes(size) == sum(frames)
    assert ACKNOWLEDGED_EVERY == transport.ACKNOWLEDGED_EVERY
    assert roce.frame_bytes == FRAME_BYTES + mtu
    assert roce.packets(size) == len(frames)
    assert max(MTU_BYTES + 14, *frames) <= roce.link_mtu_bytes + 14
    assert roce.last_bytes(size) == last[max(last)]
    assert roce.wire_bytes(np.array([size, 2 * size])).tolist() == [
        roce.wire_bytes(size),
        roce.wire_bytes(2 * size),
    ]
