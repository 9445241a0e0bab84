"""The client of the agents: it asks for reports when all executions have ended, and not before."""

import json
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from model.errors import EmulationError
from model.fabric.spec import FabricKind
from model.workload.transfers.columns import Transfer, Transfers
from tests.unit.fabrics import spec as fabric_spec
from traffic_gen.agents import client
from traffic_gen.agents.client import Aborted, AgentClient, Incomplete

RANKS = 3
ABORTED_S = 0.02
SPEC = fabric_spec(FabricKind.RAIL_ONLY, RANKS, 1)
STEPS = cast(
    Any, SimpleNamespace(gpus=RANKS, transfers=Transfers.of([Transfer(0, 0, 1, 8, (), ())]))
)
REPORT: dict[str, Any] = {
    "complete": True,
    "begun_ns": 0,
    "cpu_s": 0.0,
    "retransmitted": 0,
    "out_of_order": 0,
    "queue_pairs": [],
}
REPORT |= {"sent_bytes": 8, "received_bytes": 8, "sends": [], "receives": [], "errors": []}


class Agents:
    """The far ends of the agents' sockets. One more agent ends at each check of the testbed."""

    def __init__(self, reporting: int = RANKS) -> None:
        pairs = [socket.socketpair() for _ in range(RANKS)]
        self.near, self.far = zip(*pairs, strict=True)
        self.reporting, self.ended = reporting, 0
        # Whether no agent ends before it is told to abort.
        self.busy = False
        # The rank whose queue pair breaks.
        self.broken: int | None = None
        self.seen: list[tuple[str, int]] = []
        for sock in self.far:
            sock.setblocking(False)

    def close(self) -> None:
        """Close all sockets."""
        for sock in (*self.near, *self.far):
            sock.close()

    def check(self) -> None:
        """Note the requests, and answer; a part of the testbed dies once some have reported."""
        all_asked = ("report", RANKS - 1) in self.seen
        for rank, sock in enumerate(self.far):
            try:
                asked = [json.loads(line)["do"] for line in sock.recv(1 << 16).splitlines()]
            except BlockingIOError:
                continue
            self.seen += [(what, rank) for what in asked]
            if "report" in asked and rank < self.reporting:
                cut_off = self.busy or rank == self.broken
                broken = {"complete": False, "errors": ["it broke"]} if cut_off else {}
                self.answer(rank, {**REPORT, **broken})
            if "abort" in asked and self.busy:
                self.answer(rank, {"complete": False, "broken": False})
        if self.ended < RANKS and not self.busy:
            breaks = self.ended == self.broken
            self.answer(self.ended, {"complete": not breaks, "broken": breaks})
            self.seen.append(("ended", self.ended))
            self.ended += 1
        elif self.reporting < RANKS and all_asked:
            raise EmulationError("a switch died")

    def answer(self, rank: int, answer: dict[str, Any]) -> None:
        """Send an agent's answer."""
        self.far[rank].sendall(json.dumps(answer).encode() + b"\n")


@pytest.fixture
def agents(request: pytest.FixtureRequest) -> Iterator[Agents]:
    """Agents, of which so many report as a parameter says."""
    made = Agents(getattr(request, "param", RANKS))
    yield made
    made.close()


def expected(what: str) -> list[tuple[str, int]]:
    """One event of each rank."""
    return [(what, rank) for rank in range(RANKS)]


def test_agents_report_when_all_have_ended(agents: Agents) -> None:
    repeat = AgentClient(agents.near, SPEC, agents.check).run(STEPS, 1, 60)
    assert agents.seen == [*expected("run"), *expected("ended"), *expected("report")]
    assert repeat.complete
    assert repeat.sent_bytes == (8,) * RANKS


def test_an_execution_begins_once_all_agents_have_read_its_start(agents: Agents) -> None:
    made = AgentClient(agents.near, SPEC, agents.check)
    now_ns = time.monotonic_ns()
    later_ns = made._start(range(RANKS), 60) - now_ns
    assert later_ns >= client.START_DELAY_NS + RANKS * client.START_DELAY_EACH_NS
    assert made._start(range(RANKS), 60, now_ns + 10**12) == now_ns + 10**12
    asked = [json.loads(line) for line in agents.far[0].recv(1 << 16).splitlines()]
    assert [one["end_ns"] - one["start_ns"] for one in asked] == [60 * 10**9] * 2


def test_a_broken_queue_pair_ends_the_execution_of_all_and_is_told(agents: Agents) -> None:
    agents.broken = 0
    repeat = AgentClient(agents.near, SPEC, agents.check).run(STEPS, 1, 60)
    assert [what for what in agents.seen if what[0] == "abort"] == expected("abort")[1:]
    assert not repeat.complete
    assert repeat.errors == ("rank 0: it broke",)


def test_an_aborted_execution_lasts_until_its_abort(agents: Agents) -> None:
    agents.busy = True

    def gives_up(since_start_s: float) -> float:
        if since_start_s > ABORTED_S:
            raise Aborted
        return ABORTED_S

    repeat = AgentClient(agents.near, SPEC, agents.check).run(STEPS, 1, 60, gives_up)
    assert not repeat.complete
    assert repeat.completion_s >= ABORTED_S


def test_what_is_left_undone_lasts_until_all_agents_have_ended(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    for delay in ("START_DELAY_NS", "START_DELAY_EACH_NS"):
        monkeypatch.setattr(client, delay, 0)
    agents.broken = RANKS - 1
    repeat = AgentClient(agents.near, SPEC, agents.check).run(STEPS, 1, 60)
    assert not repeat.complete
    assert 0 < repeat.completion_s < 60


class SlowReader:
    """A socket that takes a few bytes before each of its deadlines."""

    def __init__(self) -> None:
        self.taken = b""

    def send(self, data: memoryview) -> int:
        self.taken += data[:1000]
        return len(data[:1000])


def test_an_agent_may_read_for_long_but_not_stop(agents: Agents) -> None:
    program, reader = {"do": "load", "sends": [0] * 100_000}, SlowReader()
    AgentClient([cast(Any, reader)], SPEC, lambda: None)._send(0, program)
    assert json.loads(reader.taken) == program
    agents.near[0].settimeout(0.01)
    client = AgentClient(agents.near, SPEC, lambda: None)
    client._patience_s = 0
    with pytest.raises(EmulationError, match="agent of rank 0 is lost: timed out"):
        client._send(0, program)


def test_an_agent_whose_socket_is_reset_is_named(agents: Agents) -> None:
    client = AgentClient(agents.near, SPEC, lambda: None)
    client._patience_s = 0
    client._send(1, {"do": "reset"})
    agents.far[1].close()
    with pytest.raises(EmulationError, match=r"agent of rank 1 is lost: .* reset by peer"):
        client._receive(1)


@pytest.mark.parametrize("agents", [0, 1], indirect=True)
def test_an_error_among_reports_keeps_those_that_came(agents: Agents) -> None:
    """No agent is asked twice, or told to abort what has ended."""
    with pytest.raises(Incomplete, match="a switch died") as caught:
        AgentClient(agents.near, SPEC, agents.check).run(STEPS, 1, 60)
    assert agents.seen == [*expected("run"), *expected("ended"), *expected("report")]
    assert not caught.value.repeat.complete
    reported = agents.reporting
    assert caught.value.repeat.sent_bytes == (8,) * reported + (0,) * (RANKS - reported)
