"""The queue pairs of two ranks on real sockets, by which packets are lost."""

import os
import random
import select
import socket
import sys
import time
from collections.abc import Callable
from ipaddress import IPv4Address
from math import inf
from typing import Any
from unittest.mock import Mock, call

import pytest

from model.fabric.transport import Congestion
from traffic_gen.agents.roce import endpoint
from traffic_gen.agents.roce.congestion import Window
from traffic_gen.agents.roce.endpoint import Endpoint
from traffic_gen.agents.roce.packets import FIRST_QUEUE_PAIR
from traffic_gen.agents.transfers import Send

# Of this process alone, as others run these tests, too: process ids are below 2**22 (proc(5)).
ADDRESSES = [str(IPv4Address("127.0.0.0") + 4 * os.getpid() + end) for end in (1, 2)]
SETTINGS: dict[str, Any] = {
    "generation": 9,
    "keep": True,
    "transfers": 2,
    "mtu": 1024,
    "queue_pairs": 3,
    "ports": 1,
    "split": False,
    "selective": False,
    "timeout_ns": 20e6,
    "retries": 100,
    "congestion": "window",
    "window": 8,
    "link_bps": 1e9,
    "slowdown": 1.0,
}


class Side:
    """A rank that notes what its queue pairs tell; a transfer that has left starts the next."""

    def __init__(self, rank: int, settings: dict[str, Any]) -> None:
        other = 1 - rank
        ends = {other: (ADDRESSES[other], ADDRESSES[rank], rank)}
        self.poller = select.epoll()
        self.handlers: dict[int, Callable[[int], None]] = {}
        own = {**SETTINGS, **settings, "outgoing": ends, "incoming": ends}
        self.endpoint = Endpoint(own, self.poller, self, ADDRESSES[rank])
        self.poller.register(self.endpoint.sock, select.EPOLLIN)
        self.handlers[self.endpoint.sock.fileno()] = self.endpoint.on_packets
        self.endpoint.connect(self.handlers)
        self.waiting: list[Send] = []
        self.got: dict[int, bytearray] = {}
        self.done, self.readies, self.failures = list[int](), list[int](), list[str]()

    def left(self, send: Send, now_ns: int) -> None:
        assert now_ns >= send.started_ns > 0
        if self.waiting:
            self.endpoint.start(self.waiting.pop(0))

    def confirmed(self, send: Send, now_ns: int) -> None:
        assert now_ns >= send.sent_ns > 0
        self.done.append(send.id)

    def ready(self, number: int, now_ns: int) -> None:
        assert now_ns > 0
        self.readies.append(number)

    def written(self, number: int, offset: int, size: int, content: bytes) -> None:
        whole = self.got.setdefault(number, bytearray())
        whole.extend(bytes(max(0, offset + size - len(whole))))
        whole[offset : offset + size] = content

    def broken(self, peer: int, number: int, why: str) -> None:
        self.failures.append(f"{peer}, {number}: {why}")

    def serve(self) -> None:
        self.endpoint.tick()
        for descriptor, events in self.poller.poll(self.endpoint.within_s(0.001)):
            self.handlers[descriptor](events)

    def close(self) -> None:
        for sock in self.endpoint.sockets():
            sock.close()
        self.poller.close()


def serve(sides: list[Side], is_done: Callable[[], object]) -> None:
    """Serve both ends until all is done, for 20 s at most; close them."""
    until_s = time.monotonic() + 20
    while not is_done() and time.monotonic() < until_s:
        for side in sides:
            side.serve()
    for side in sides:
        side.close()


def transfer(number: int, content: bytes) -> Send:
    send = Send(number, 1, len(content), [], False, [], 0, -1, 0)
    send.payload = memoryview(content)
    return send


@pytest.mark.parametrize(("loss", "full"), [(0.0, 0.0), (0.1, 0.0), (0.0, 0.3)])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"split": True, "selective": True},
        {"congestion": "swift", "slowdown": 1e4},
        {"congestion": "dcqcn"},
        {"queue_pairs": 1, "ports": 4, "selective": True},
    ],
)
def test_all_transfers_arrive_over_sockets(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], loss: float, full: float
) -> None:
    """Also by packets that find no room in their socket's buffer."""
    chance, send_parts = random.Random(5), endpoint.send_parts

    def lossy(*packet: Any) -> None:
        if chance.random() < full:
            raise BlockingIOError
        if chance.random() >= loss:
            send_parts(*packet)

    monkeypatch.setattr(endpoint, "send_parts", lossy)
    contents = [chance.randbytes(chance.randint(1, 20_000)) for _ in range(20)]
    sides = [Side(rank, settings) for rank in (0, 1)]
    sides[0].waiting = [transfer(number, content) for number, content in enumerate(contents)]
    sides[0].endpoint.start(sides[0].waiting.pop(0))
    sides[0].endpoint.begin()
    sides[1].endpoint.tell_ready(0, 77)
    serve(sides, lambda: len(sides[0].done) == len(contents) and sides[0].readies)
    assert_samples_count_all(sides[0].endpoint)
    assert sides[0].readies == [77]
    assert sorted(sides[0].done) == list(range(len(contents)))
    assert {number: bytes(whole) for number, whole in sides[1].got.items()} == dict(
        enumerate(contents)
    )
    if loss:
        assert sides[0].endpoint.counts()[0] > 0


def test_queue_pairs_have_numbers_and_source_ports_of_their_own() -> None:
    """The last bits of source ports are all entropies in turn; both ends know both numbers."""
    sides = [Side(rank, {"queue_pairs": 2, "ports": 4, "generation": 0}) for rank in (0, 1)]
    for side in sides:
        numbers, ports = side.endpoint.by_number, list[int]()
        for pair in side.endpoint.sending():
            ports += [sock.getsockname()[1] for sock in pair.socks]
        assert [port % 8 for port in ports] == list(range(8))
        assert len({port // 8 for port in ports}) == 1
        assert len(side.endpoint.sockets()) == 1 + len(ports) == 9
        assert len(numbers) == 4
        assert all(FIRST_QUEUE_PAIR <= number < 1 << 24 for number in numbers)
    here, there = (
        {(number, pair.sender.queue_pair) for number, pair in side.endpoint.by_number.items()}
        for side in sides
    )
    assert there == {(other, own) for own, other in here}
    assert here.isdisjoint(there)
    for side in sides:
        side.close()
    # Packets from before a reset have other numbers.
    later = Side(0, {"queue_pairs": 2, "ports": 4, "generation": 1})
    later.close()
    assert later.endpoint.by_number.keys().isdisjoint(sides[0].endpoint.by_number)


@pytest.mark.parametrize("codepoint", [endpoint.ECN_CAPABLE, endpoint.CONGESTION_EXPERIENCED])
def test_the_sender_of_marked_packets_is_notified_once_in_an_interval(codepoint: int) -> None:
    """Of 50 microseconds, a million times slower."""
    sides = [Side(rank, {"congestion": "dcqcn", "slowdown": 1e6}) for rank in (0, 1)]
    for pair in sides[0].endpoint.sending():
        pair.sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, codepoint)
    sides[0].endpoint.start(transfer(0, bytes(5000)))
    serve(sides, lambda: sides[0].done)
    assert sides[0].done == [0]
    notified = sum(pair.notifications for pair in sides[0].endpoint.sending())
    assert notified == (codepoint == endpoint.CONGESTION_EXPERIENCED)


def test_every_congestion_control_is_one_of_its_own() -> None:
    controls = set[type]()
    for congestion in Congestion:
        side = Side(0, {"congestion": congestion.value})
        side.close()
        controls |= {type(pair.sender.control) for pair in side.endpoint.by_number.values()}
    assert len(controls) == len(Congestion)


@pytest.mark.parametrize("congestion", ["dcqcn", "swift"])
def test_the_next_program_begins_without_the_congestion_of_the_last_one(congestion: str) -> None:
    side = Side(0, {"congestion": congestion})
    (fresh, *_), pairs = side.endpoint.sending(), side.endpoint.by_number.values()
    begun = fresh.sender.control.rate_bps, fresh.sender.control.window
    for pair in pairs:
        pair.sender.control.notified(1)
        pair.sender.control.timed_out(1)
        pair.notified_ns = 1
    side.endpoint.connect(side.handlers)
    side.close()
    assert {(p.sender.control.rate_bps, p.sender.control.window) for p in pairs} == {begun}
    assert {pair.notified_ns for pair in pairs} == {-inf}


def assert_samples_count_all(sender: endpoint.Endpoint) -> None:
    """Samples follow in time, counts only grow, and the last ones have everything."""
    by_pair: dict[int, list[endpoint.Sample]] = {}
    for _, number, sample in sender.samples():
        by_pair.setdefault(number, []).append(sample)
    assert by_pair
    for samples in by_pair.values():
        for column in list(zip(*samples, strict=True))[:4]:
            assert list(column) == sorted(column)
    assert sum(samples[-1][3] for samples in by_pair.values()) == sender.counts()[0]


class Always(Window):
    """Congestion control that is always due."""

    next_ns = 0.0
    ticks = 0

    def tick(self, now_ns: int) -> None:
        self.ticks += 1
        assert self.ticks < 10, "sockets are never served"


def test_timers_that_are_always_due_let_sockets_be_served() -> None:
    side = Side(0, {"queue_pairs": 2})
    for pair in side.endpoint.sending():
        pair.sender.control = Always(8)
        side.endpoint._pump(pair)
    side.endpoint.tick()
    assert side.endpoint.within_s(1.0) == 0
    side.close()


def test_a_transfer_begins_before_its_first_packet_can_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process may lose its core as soon as the packet is out."""
    side, send, begun_ns = Side(0, {}), transfer(0, b"short"), list[int]()
    monkeypatch.setattr(endpoint, "send_parts", lambda *_: begun_ns.append(send.started_ns))
    side.endpoint.start(send)
    assert begun_ns == [send.started_ns]
    assert send.started_ns > 0
    side.close()


def test_a_queue_pair_that_breaks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "send_parts", lambda *_: None)
    side = Side(0, {"retries": 2, "timeout_ns": 1e6})
    side.endpoint.start(transfer(0, b"lost"))
    serve([side], lambda: side.failures)
    assert side.failures == ["1, 0: no progress after 2 retries"]
    assert side.endpoint.counts() == (2, 0)


def test_a_full_socket_is_polled_for_room_until_its_packet_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    side, polled = Side(0, {"queue_pairs": 1}), Mock()
    side.endpoint.poller = polled
    (pair,) = side.endpoint.sending()
    monkeypatch.setattr(endpoint, "send_parts", Mock(side_effect=BlockingIOError))
    side.endpoint.start(transfer(0, b"short"))
    side.endpoint._pump(pair)
    assert polled.modify.call_args_list == [call(pair.sock, select.EPOLLOUT)]
    monkeypatch.setattr(endpoint, "send_parts", lambda *_: None)
    for _ in range(2):
        side.endpoint._pump(pair)
    assert polled.modify.call_args_list[1:] == [call(pair.sock, 0)]
    side.close()


def test_any_number_of_transfers_may_leave_one_after_the_other() -> None:
    """Each is released as the one before it leaves: a direct all-to-all of many GPUs."""
    count = sys.getrecursionlimit()
    side = Side(0, {"window": 10**6, "transfers": 10**6})
    side.waiting = [transfer(number, b"short") for number in range(count)]
    side.endpoint.start(side.waiting.pop(0))
    serve([side], lambda: not side.waiting)
    assert not side.waiting
