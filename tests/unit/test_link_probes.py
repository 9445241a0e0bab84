"""Link probes without a fabric: a late probe is not lost, one that never comes is."""

import pytest

from controller.detection import probes
from controller.detection.liveness import LOST_PROBES
from controller.detection.probes import LinkProbes
from model.fabric.spec import FabricKind
from model.fabric.topology import Link, Port, build_topology
from tests.unit.fabrics import spec

TOPOLOGY = build_topology(spec(FabricKind.RAIL_ONLY, 2, 2))
GPUS = [gpu.name for gpu in TOPOLOGY.gpus]
LINK = TOPOLOGY.links[0]


def end(port: Port) -> tuple[str, str]:
    """The namespace of a port, and its interface."""
    return port.node if port.node in GPUS else "", port.interface


OTHER_END = {
    end(one): end(other)
    for link in TOPOLOGY.links
    for one, other in ((link.lower, link.upper), (link.upper, link.lower))
}


class Ether:
    """Carries frames to the other end of their link, some rounds late, but from `cut` ends."""

    def __init__(self, late: int) -> None:
        self.now, self.late = 0, late
        self.cut: set[tuple[str, str]] = set()
        self.frames: list[tuple[int, bytes, tuple[str, str]]] = []


class Socket:
    """A packet socket in a namespace."""

    def __init__(self, ether: Ether, namespace: str) -> None:
        self.ether, self.namespace = ether, namespace

    def sendto(self, frame: bytes, address: tuple[str, int]) -> None:
        if (self.namespace, address[0]) not in self.ether.cut:
            to = OTHER_END[self.namespace, address[0]]
            self.ether.frames.append((self.ether.now + self.ether.late, frame, to))

    def recvfrom(self, _size: int) -> tuple[bytes, tuple[str, int]]:
        for due in self.ether.frames:
            moment, frame, (namespace, interface) = due
            if namespace == self.namespace and moment < self.ether.now:
                self.ether.frames.remove(due)
                return frame, (interface, probes.ETHERTYPE)
        raise BlockingIOError


def missed(monkeypatch: pytest.MonkeyPatch, ether: Ether, rounds: int) -> list[set[str]]:
    """The directions of links that were not heard, by round."""
    monkeypatch.setattr(probes, "_open_socket", lambda: Socket(ether, ""))
    monkeypatch.setattr(probes, "_open_in", lambda number: Socket(ether, GPUS[number]))
    watched = LinkProbes(TOPOLOGY, {name: number for number, name in enumerate(GPUS)})
    found: list[set[str]] = []

    def heard(link: Link, sender: str, arrived: bool) -> None:
        if not arrived:
            found[-1].add(f"{link.name} from {sender}")

    for _ in range(rounds):
        found.append(set())
        watched.round(heard)
        ether.now += 1
    return found


@pytest.mark.parametrize("late", range(LOST_PROBES))
def test_a_late_probe_is_not_lost(monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    found = missed(monkeypatch, Ether(late), 10)
    assert found[late + 1 :] == [set()] * (9 - late)


def test_a_direction_that_carries_nothing_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    ether = Ether(0)
    ether.cut.add(end(LINK.lower))
    assert missed(monkeypatch, ether, 5)[1:] == [{f"{LINK.name} from {LINK.lower.node}"}] * 4


def test_a_probe_older_than_a_failure_is_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    found = missed(monkeypatch, Ether(LOST_PROBES), 10)
    assert [len(directions) for directions in found[1:]] == [2 * len(TOPOLOGY.links)] * 9
