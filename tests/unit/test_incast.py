"""An incast as `roce-incast` has it, on queue pairs and a simulated port: no socket, no kernel."""

import random
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import ceil, inf
from statistics import median
from typing import cast

import pytest

from tests.unit.test_congestion_control import marked
from traffic_gen.agents.roce import queue_pair
from traffic_gen.agents.roce.congestion import Dcqcn, Window
from traffic_gen.agents.roce.endpoint import NOTIFICATION_INTERVAL_NS, QUEUED_PACKETS
from traffic_gen.agents.roce.packets import FRAME_BYTES, Packet
from traffic_gen.agents.roce.queue_pair import (
    Message,
    Receiver,
    Reliability,
    Sender,
)

MTU, SIZE, SENDERS, BUFFER_BYTES = 4096, 10_000_000, 4, 375_000
SLOWDOWN, LINK_BPS = 20_000, 400e9
FRAME = MTU + FRAME_BYTES
MOST_QUEUED = QUEUED_PACKETS + 1  # a socket takes one more
PACKET_NS = round(FRAME * 8e9 * SLOWDOWN / LINK_BPS)


class Flow:
    """A queue pair, and its packets in the queue of its NIC."""

    def __init__(self, control: Window) -> None:
        self.sender = Sender(2, Reliability(MTU, False, 10**9, 7), control)
        self.sender.post(Message(0, memoryview(bytes(SIZE))))
        self.receiver = Receiver(2, selective=False)
        self.queued, self.free_ns = 0, 0
        self.wakes_ns, self.notified_ns = inf, -inf


class Incast:
    """Flows over one port, whose queue is dropped from and marked."""

    def __init__(self, seed: int, control: Callable[[], Window]) -> None:
        self.chance, self.order, self.dropped = random.Random(seed), count(), 0
        self.events: list[tuple[float, int, Callable[[int], None]]] = []
        self.flows, self.free_ns, self.now_ns = [Flow(control()) for _ in range(SENDERS)], 0, 0
        for flow in self.flows:
            self.at(self.chance.randrange(20 * PACKET_NS), partial(self.pump, flow))
        while self.events:
            at_ns, _, event = heappop(self.events)
            self.now_ns = ceil(at_ns)
            event(self.now_ns)

    @property
    def ratio(self) -> float:
        """The time over that of the fair share."""
        return self.now_ns / (SENDERS * -(-SIZE // MTU) * PACKET_NS)

    def at(self, time_ns: float, event: Callable[[int], None]) -> None:
        heappush(self.events, (time_ns, next(self.order), event))

    def pump(self, flow: Flow, now_ns: int) -> None:
        while flow.queued < MOST_QUEUED and (packet := flow.sender.take(now_ns)):
            flow.queued += 1
            flow.free_ns = max(now_ns, flow.free_ns) + PACKET_NS
            self.at(flow.free_ns, partial(self.left, flow, packet))
        full = flow.queued == MOST_QUEUED
        due_ns = flow.sender.tick_ns() if full else flow.sender.next_ns()
        if flow.sender.messages and due_ns < flow.wakes_ns:
            flow.wakes_ns = due_ns
            self.at(max(now_ns, due_ns), partial(self.wake, flow))

    def wake(self, flow: Flow, now_ns: int) -> None:
        flow.wakes_ns = inf
        if flow.sender.messages:
            flow.sender.tick(now_ns)
            self.pump(flow, now_ns)

    def left(self, flow: Flow, packet: Packet, now_ns: int) -> None:
        flow.queued -= 1
        waiting = max(0, self.free_ns - now_ns) / PACKET_NS * FRAME
        if waiting + FRAME > BUFFER_BYTES:
            self.dropped += 1
        else:
            is_marked = self.chance.random() < marked(waiting)
            self.free_ns = max(now_ns, self.free_ns) + PACKET_NS
            self.at(self.free_ns, partial(self.arrive, flow, packet, is_marked))
        self.pump(flow, now_ns)

    def arrive(self, flow: Flow, packet: Packet, is_marked: bool, now_ns: int) -> None:
        if is_marked and now_ns - flow.notified_ns >= NOTIFICATION_INTERVAL_NS * SLOWDOWN:
            flow.notified_ns = now_ns
            flow.sender.control.notified(now_ns)
        _, answer = flow.receiver.receive(packet)
        if answer is not None:
            flow.sender.answered(answer, now_ns)
        self.pump(flow, now_ns)


@pytest.mark.parametrize(
    ("control", "ratio", "within"),
    [
        # As measured by the virtual clock, once; by the seed, 1.24 to 1.73 here.
        (lambda: Window(32), 1.32, 0.1),
        # As by DCQCN's published equations on packets that wait for nothing else, of 40 seeds.
        (lambda: Dcqcn(32, LINK_BPS / SLOWDOWN, SLOWDOWN), 1.16, 0.05),
    ],
)
def test_an_incast_takes_as_long_as_simulated_packets_do(
    monkeypatch: pytest.MonkeyPatch, control: Callable[[], Window], ratio: float, within: float
) -> None:
    monkeypatch.setattr(queue_pair, "EARLY_NS", 0)  # no timer is late here
    ratios = [Incast(seed, control).ratio for seed in range(8)]
    assert median(ratios) == pytest.approx(ratio, rel=within)


@pytest.mark.parametrize("seed", [5, 26])
def test_by_dcqcn_the_lowest_target_decides_how_long_an_incast_takes(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Losses part the flows; notified before their rate is back, some have lower targets."""
    monkeypatch.setattr(queue_pair, "EARLY_NS", 0)
    monkeypatch.setattr("tests.unit.test_incast.SENDERS", 7)
    incast = Incast(seed, lambda: Dcqcn(32, LINK_BPS / SLOWDOWN, SLOWDOWN))
    targets = [cast(Dcqcn, flow.sender.control).target_bps for flow in incast.flows]
    fair_bps = LINK_BPS / SLOWDOWN / 7
    assert incast.ratio == pytest.approx(fair_bps / min(targets), rel=0.15)
    assert incast.dropped > 500
