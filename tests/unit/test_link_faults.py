"""Faults of links as requests to the kernel: their order, their moment, ends that are gone."""

import errno
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from linux.network.netlink import Refused, Request, requests_in_batch
from linux.network.route_socket import RouteBatch
from model.errors import EmulationError
from model.fabric.build import build_topology
from model.fabric.spec import FabricKind
from model.fabric.topology import Port
from testbed.fabric.links import LinkEndGone
from testbed.fabric.shaping import addressed, reshape
from testbed.faults.injector import FaultInjector
from testbed.faults.link_faults import LinkFaults
from tests.unit.fabrics import spec

TOPOLOGY = build_topology(spec(FabricKind.RAIL_ONLY, 2, 2, 2))
LINK = TOPOLOGY.link_by_name["d0g0--rail0"]
ENDS = LINK.lower, LINK.upper


class Kernel:
    """The namespaces of a fabric, in place of `Links`; `refusals` are by namespace."""

    def __init__(self, places: Sequence[str] = ("", "d0g0"), **refusals: int) -> None:
        self.done: list[str] = []
        self.sockets = {place: SimpleNamespace(send=self._sender(place)) for place in places}
        self.refusals = refusals

    def _sender(self, place: str) -> Any:
        def send(requests: Sequence[Request]) -> None:
            self.done.append(f"sent in {place or 'switches'}")
            if place in self.refusals:
                raise Refused(requests[0][0], self.refusals[place])

        return send

    def index_of(self, port: Port) -> int:
        self.done.append(f"{port.interface} encoded")
        return 1001

    def key_of(self, port: Port) -> tuple[str, int]:
        return port.node if port.node in TOPOLOGY.gpu_by_name else "", 1001

    def impair_again(self, _: Port) -> None:
        self.done.append("impaired again")


def faults_of(kernel: Kernel) -> LinkFaults:
    return LinkFaults(cast(Any, kernel))


def test_a_blackhole_begins_at_both_ends_once_all_is_prepared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Encoding takes milliseconds, on a busy machine a tenth of a second."""
    kernel = Kernel()
    now_ns = [7]

    def sleep(seconds: float) -> None:
        kernel.done.append("due")
        now_ns[0] += round(seconds * 1e9)

    faults = faults_of(kernel)
    faults.due_ns = 50
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic_ns", lambda: now_ns[0])
        patched.setattr(time, "sleep", sleep)
        faults.blackhole(ENDS)
    encoded = [f"{end.interface} encoded" for end in ENDS]
    sent = ["sent in d0g0"] * 2 + ["sent in switches"] * 2
    assert kernel.done == [*encoded, "due", *sent]
    assert faults.moments_ns == [50]


def test_requests_are_encoded_once_for_all_ends() -> None:
    shaper = LINK.shaper
    for index in (1, 1001):
        with RouteBatch() as batch:
            reshape(batch, index, shaper)
            wanted = list(requests_in_batch("", bytes(batch.batch)))
        with RouteBatch() as batch:
            reshape(batch, 0, shaper)
            assert list(addressed("", bytes(batch.batch), index)) == wanted
    for change in ({"state": "up"}, {"ifalias": "drained"}):
        with RouteBatch() as batch:
            batch.link("set", index=1001, **change)
            wanted = list(requests_in_batch("", bytes(batch.batch)))
        with RouteBatch() as batch:
            batch.link("set", index=0, **change)
            assert list(addressed("", bytes(batch.batch), 1001)) == wanted


def test_a_fault_of_many_parts_begins_with_the_first() -> None:
    injector = FaultInjector(cast(Any, SimpleNamespace(links=Kernel())))
    injector._link_faults.moments_ns += [5, 9, 12]
    assert injector.moment_ns(6) == 9
    assert injector.moment_ns(13) == 13


def test_an_end_that_is_gone_cannot_be_broken_and_needs_no_repair() -> None:
    for kernel in (Kernel(places=[""]), Kernel(d0g0=errno.ENODEV)):
        faults = faults_of(kernel)
        with pytest.raises(LinkEndGone, match="d0g0: interface nic0 cannot be blackholed: No such"):
            faults.blackhole(ENDS)
        faults.end_blackhole(ENDS)
        assert kernel.done.count("sent in switches") == 2


def test_other_queues_than_blackholes_are_left() -> None:
    kernel = Kernel(d0g0=errno.ENOENT)
    faults_of(kernel).end_blackhole(ENDS)
    assert kernel.done[-3:] == ["sent in switches", "impaired again", "impaired again"]


def test_a_request_that_the_kernel_refuses_is_named() -> None:
    faults = faults_of(Kernel(d0g0=errno.EPERM))
    with pytest.raises(EmulationError, match="nic0 cannot be blackholed: Operation not permitted"):
        faults.blackhole(ENDS)
