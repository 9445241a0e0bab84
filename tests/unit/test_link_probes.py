"""Link probes without a fabric: a late probe is not lost, one that never comes is; their share."""

import math
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.detection import probes
from controller.detection.probes import LinkProbes
from model.fabric.build import build_topology
from model.fabric.link_probes import (
    DETECTION_ROUNDS,
    LOST_PROBES,
    PROBE_BYTES,
    PROBES_SHARE,
    SECONDS_A_DIRECTION,
    SHORTEST_INTERVAL_S,
    longest_detection_s,
    probe_interval_s,
)
from model.fabric.shaping import MIN_RATE_BPS
from model.fabric.spec import GBIT, FabricKind
from model.fabric.topology import Link, Port, Topology
from tests.unit.fabrics import spec, topologies

TOPOLOGY = build_topology(spec(FabricKind.RAIL_ONLY, 2, 2))
GPUS = [gpu.name for gpu in TOPOLOGY.gpus]
LINK = TOPOLOGY.links[0]


def end(port: Port) -> tuple[str, str]:
    """The namespace of a port, and its interface."""
    return port.node if port.node in GPUS else "", port.interface


EVERY_DIRECTION = [
    (link.name, port.node) for link in TOPOLOGY.links for port in (link.lower, link.upper)
]
OTHER_END = {
    end(one): end(other)
    for link in TOPOLOGY.links
    for one, other in ((link.lower, link.upper), (link.upper, link.lower))
}


class Ether:
    """Carries frames to the other end of their link, some rounds late.

    Frames from `cut` ends are lost from round `cut_at` on, until round `healed_at`.
    """

    def __init__(self, late: int, cut_at: int = 0, healed_at: float = math.inf) -> None:
        self.now, self.late, self.cut_at, self.healed_at = 0, late, cut_at, healed_at
        self.cut: set[tuple[str, str]] = set()
        self.frames: list[tuple[int, bytes, tuple[str, str]]] = []


class Socket:
    """A packet socket: a proxy's at one interface, or the switches' at all of theirs."""

    def __init__(self, ether: Ether, namespace: str, interface: str | None) -> None:
        self.ether, self.namespace, self.interface = ether, namespace, interface

    def sendto(self, frame: bytes, address: tuple[str, int]) -> None:
        is_cut = (self.namespace, address[0]) in self.ether.cut
        if not (is_cut and self.ether.cut_at <= self.ether.now < self.ether.healed_at):
            to = OTHER_END[self.namespace, address[0]]
            self.ether.frames.append((self.ether.now + self.ether.late, frame, to))

    def recvfrom(self, _size: int) -> tuple[bytes, tuple[str, int]]:
        for due in self.ether.frames:
            moment, frame, (namespace, interface) = due
            is_here = namespace == self.namespace and self.interface in (None, interface)
            if is_here and moment < self.ether.now:
                self.ether.frames.remove(due)
                return frame, (interface, probes.ETHERTYPE)
        raise BlockingIOError


def reports(
    monkeypatch: pytest.MonkeyPatch, ether: Ether, rounds: int
) -> list[dict[tuple[str, str], bool]]:
    """Whether the last probe arrived, by round, for the links and senders that were reported."""
    inside = [""]

    @contextmanager
    def namespace_of(number: int) -> Iterator[None]:
        inside.append(GPUS[number])
        yield
        inside.pop()

    monkeypatch.setattr(probes, "namespace_of", namespace_of)
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "hb0"), (2, "nic0")])
    monkeypatch.setattr(probes, "_open_socket", lambda name=None: Socket(ether, inside[-1], name))
    watched = LinkProbes(TOPOLOGY, {name: number for number, name in enumerate(GPUS)})
    found: list[dict[tuple[str, str], bool]] = []

    def heard(link: Link, sender: str, arrived: bool) -> None:
        found[-1][link.name, sender] = arrived

    for _ in range(rounds):
        found.append({})
        while not watched.probe(heard):
            pass
        ether.now += 1
    return found


def missed(monkeypatch: pytest.MonkeyPatch, ether: Ether, rounds: int) -> list[set[str]]:
    """The directions of links that were not heard, by round."""
    return [
        {f"{link} from {sender}" for (link, sender), arrived in found.items() if not arrived}
        for found in reports(monkeypatch, ether, rounds)
    ]


@pytest.mark.parametrize("late", range(LOST_PROBES))
def test_a_late_probe_is_not_lost(monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    found = missed(monkeypatch, Ether(late), 10)
    assert found[late + 1 :] == [set()] * (9 - late)


def test_a_direction_that_carries_nothing_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    ether = Ether(0)
    ether.cut.add(end(LINK.lower))
    assert missed(monkeypatch, ether, 5)[1:] == [{f"{LINK.name} from {LINK.lower.node}"}] * 4


def test_a_direction_is_reported_first_while_it_loses_probes_and_once_when_healed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ether = Ether(0, cut_at=5, healed_at=7)
    ether.cut.add(end(LINK.lower))
    direction = LINK.name, LINK.lower.node
    found = reports(monkeypatch, ether, 12)
    assert set(found[1]) == set(EVERY_DIRECTION)
    later = {number: heard for number, heard in enumerate(found[2:], 2) if heard}
    assert later == {6: {direction: False}, 7: {direction: False}, 8: {direction: True}}


def test_a_probe_older_than_a_failure_is_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    found = missed(monkeypatch, Ether(LOST_PROBES), 10)
    assert [len(directions) for directions in found[1:]] == [2 * len(TOPOLOGY.links)] * 9


def test_a_failure_right_after_a_round_is_found_within_the_detection_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ether = Ether(0, cut_at=5)
    ether.cut.add(end(LINK.lower))
    found = missed(monkeypatch, ether, 10)
    lost_in = [number for number, directions in enumerate(found) if directions]
    assert lost_in[LOST_PROBES - 1] == ether.cut_at - 1 + DETECTION_ROUNDS


@given(topologies())
def test_a_round_probes_each_link_once_and_few_at_a_time(topology: Topology) -> None:
    with pytest.MonkeyPatch.context() as patch:
        deaf = Mock(recvfrom=Mock(side_effect=BlockingIOError))
        patch.setattr(probes, "_open_socket", lambda: deaf)
        watched = LinkProbes(topology, {})
    calls: list[list[tuple[str, str]]] = []
    is_end_of_round = [False]
    while sum(is_end_of_round) < 3:
        calls.append([])
        is_end_of_round.append(
            watched.probe(lambda link, sender, _: calls[-1].append((link.name, sender)))
        )
    a_round = len(calls) // 3
    assert is_end_of_round[1:] == 3 * [*[False] * (a_round - 1), True]
    assert watched.interval_s * a_round == pytest.approx(probe_interval_s(topology))
    assert max(map(len, calls)) <= 2 * probes.LINKS_AT_ONCE
    directions = [
        (link.name, port.node) for link in topology.links for port in (link.lower, link.upper)
    ]
    assert [direction for call in calls for direction in call] == 2 * directions


@st.composite
def slowed_down(draw: st.DrawFn) -> Topology:
    """A fabric of any shape, with HB links and NIC links of any rates that can be shaped."""
    nic_bps, hb_bps = (draw(st.integers(MIN_RATE_BPS, 1000 * GBIT)) for _ in range(2))
    fabric = replace(draw(topologies()).spec, bandwidth_scale=1.0)
    nic, hb = replace(fabric.nic, rate_bps=nic_bps), replace(fabric.hb, rate_bps=hb_bps)
    return build_topology(replace(fabric, nic=nic, hb=hb))


@given(slowed_down())
def test_probes_take_at_most_a_thousandth_of_each_link(topology: Topology) -> None:
    probes_bps = PROBE_BYTES * 8 / probe_interval_s(topology)
    assert all(probes_bps <= link.rate_bps / 1000 * (1 + 1e-9) for link in topology.links)


@given(slowed_down())
def test_probes_are_as_frequent_as_their_bounds_allow(topology: Topology) -> None:
    bounds_s = (
        SHORTEST_INTERVAL_S,
        SECONDS_A_DIRECTION * 2 * len(topology.links),
        PROBE_BYTES * 8 / (PROBES_SHARE * slowest_bps(topology)),
    )
    assert all(probe_interval_s(topology) >= bound_s for bound_s in bounds_s)
    assert probe_interval_s(topology) == pytest.approx(max(bounds_s))
    assert longest_detection_s(topology) == DETECTION_ROUNDS * probe_interval_s(topology)


@given(slowed_down(), st.integers(2, 100))
def test_a_gray_failure_of_a_slower_fabric_is_found_later_in_proportion_at_most(
    topology: Topology, slower: int
) -> None:
    scale = topology.spec.bandwidth_scale * slower
    slow = build_topology(replace(topology.spec, bandwidth_scale=scale))
    found_s, slow_s = longest_detection_s(topology), longest_detection_s(slow)
    # Rates are whole bits a second.
    proportion = slowest_bps(topology) / slowest_bps(slow)
    assert found_s <= slow_s <= max(1, proportion) * found_s * (1 + 1e-9)


def slowest_bps(topology: Topology) -> int:
    return min(link.rate_bps for link in topology.links)
