"""Real agents and their client over loopback: any steps are executed in order, with right data."""

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Address
from itertools import product
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.fabric.job_grid import JobGrid
from model.fabric.spec import FabricKind
from model.fabric.transport import Transport
from model.measurement.records import Repeat
from model.workload.schedule import Steps, WorkSteps
from model.workload.transfers.columns import Transfer, Transfers
from tests.unit.fabrics import accepts, spec
from tests.unit.traces import traces
from traffic_gen.agents import agent, client
from traffic_gen.agents.client import Aborted, AgentClient
from traffic_gen.agents.roce.endpoint import Endpoint
from traffic_gen.traces.rank_placement import PlacementRule, placed
from traffic_gen.traces.replay import Replay
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS
from traffic_gen.workloads.sized_collective import SizedCollective

RANKS = 4
# As queue pairs have one port, each process has addresses of its own.
OWN = [str(IPv4Address("127.0.0.0") + 4 * os.getpid() + rank) for rank in range(RANKS)]
ADDRESSES = {(source, to, 0): OWN[to] for source, to in product(range(RANKS), repeat=2)}
# The last one is larger than the buffers of a connection.
SIZES = [64, 40_000, 1_000_000]
TASKS = [
    SizedCollective(*named, shape, size_bytes)
    for named, shape, size_bytes in product(ALGORITHMS, [(2, 2), (1, 4), (4, 1), (1, 3)], SIZES)
    if accepts(named, *shape)
]


@st.composite
def any_steps(draw: st.DrawFn) -> Steps:
    """A collective, whose result is checked, or the replay of a trace, which computes, too."""
    if draw(st.booleans()):
        return draw(st.sampled_from(TASKS)).steps()
    trace, rule, grid = draw(traces()), draw(st.sampled_from(PlacementRule)), JobGrid(1, RANKS)
    return Replay(trace, "x", placed(rule, trace.ranks, grid), grid).steps()


@pytest.fixture(scope="module")
def sockets() -> Iterator[list[socket.socket]]:
    """The client's ends of the agents' sockets; agents end with them, so none outlives a run."""
    listeners = [socket.create_server((ADDRESSES[0, 0, 0], 0))]
    port = listeners[0].getsockname()[1]
    listeners += [socket.create_server((ADDRESSES[0, r, 0], port)) for r in range(1, RANKS)]
    near, far = zip(*(socket.socketpair() for _ in listeners), strict=True)

    def serve(rank: int) -> None:
        for end in near:
            end.close()
        with patch.object(agent, "Endpoint", partial(Endpoint, address=ADDRESSES[0, rank, 0])):
            agent.Agent(far[rank], listeners[rank]).serve()

    fork = get_context("fork").Process
    agents = [fork(target=serve, args=(rank,), daemon=True) for rank in range(RANKS)]
    with patch.object(agent, "PORT", port), patch.object(client, "START_DELAY_NS", 10_000_000):
        for process in agents:
            process.start()
        yield list(near)
    for opened in (*listeners, *near, *far):
        opened.close()
    for process in agents:
        process.join(60)
    assert [process.exitcode for process in agents] == [0] * RANKS


def loaded(
    sockets: list[socket.socket], steps: Steps, window: int, transport: Transport = Transport.TCP
) -> AgentClient:
    """Load steps for one HB domain, or, by RoCE, for domains of one GPU."""
    shape = (1, RANKS) if transport is Transport.TCP else (RANKS, 1)
    fabric = replace(spec(FabricKind.RAIL_ONLY, *shape), window=window, transport=transport)
    agents = AgentClient(sockets, fabric, lambda: None)
    agents.place(range(steps.gpus))
    with patch.object(client, "is_by_nic", lambda _address: transport is Transport.ROCE):
        agents.load(steps, ADDRESSES, check_data=True)
    return agents


@settings(max_examples=8)
@given(any_steps(), st.sampled_from([1, 8]))
def test_agents_execute_steps_in_order_with_the_right_result(
    sockets: list[socket.socket], steps: Steps, window: int
) -> None:
    agents = loaded(sockets, steps, window)
    for number in (1, 2):
        repeat = agents.run(steps, number, 100)
        assert (repeat.number, repeat.complete, repeat.errors) == (number, True, ())
        require_order(steps, repeat, window)


@settings(max_examples=4)
@given(st.sampled_from(TASKS), st.sampled_from([1, 8]))
def test_agents_have_the_right_result_by_queue_pairs(
    sockets: list[socket.socket], task: SizedCollective, window: int
) -> None:
    steps = task.steps()
    agents = loaded(sockets, steps, window, Transport.ROCE)
    repeat = agents.run(steps, 1, 100)
    assert (repeat.complete, repeat.errors) == (True, ())
    assert repeat.queue_pairs
    assert sum(repeat.received_bytes) == sum(repeat.sent_bytes) == steps.transfers.size_bytes.sum()


def require_order(steps: Steps, repeat: Repeat, window: int) -> None:
    """Require that each step begins when its sender has seen the end of all that it waits for."""
    records, transfers = repeat.records, list(steps.transfers)
    sent, received = np.zeros((2, steps.gpus), np.int64)
    for step, record in zip(transfers, records, strict=True):
        assert (record.transfer, record.size_bytes) == (step.id, step.size_bytes)
        assert 0 <= record.started_ns <= record.sent_ns <= record.confirmed_ns
        assert record.started_ns < record.arrived_ns <= record.confirmed_ns
        sent[step.source] += step.size_bytes
        received[step.destination] += step.size_bytes
        if step.ready is not None:
            assert record.started_ns >= records[step.ready].arrived_ns
        for earlier in (transfers[one] for one in step.after):
            # On one connection, none overtakes another.
            in_turn = step.destination == earlier.destination and not step.is_compute
            own_ns = "sent_ns" if window > 1 and in_turn else "confirmed_ns"
            seen_ns = own_ns if earlier.source == step.source else "arrived_ns"
            assert record.started_ns >= getattr(records[earlier.id], seen_ns)
    assert (repeat.sent_bytes, repeat.received_bytes) == (tuple(sent), tuple(received))
    assert repeat.completion_s == max(record.arrived_ns for record in records) / 1e9


def test_agents_stop_what_is_aborted_and_go_on(sockets: list[socket.socket]) -> None:
    def gives_up(_since_start_s: float) -> float:
        raise Aborted

    day, sent = Transfer(0, 0, 0, 0, (), compute_ns=86_400 * 10**9), Transfer(0, 1, 0, 8, ())
    whole: dict[str, Any] = {"task": "x", "algorithm": "x", "gpus": RANKS, "size_bytes": 8}
    long, short = (WorkSteps(**whole, transfers=Transfers.of([one])) for one in (day, sent))
    assert not loaded(sockets, long, 8).run(long, 1, 100_000, gives_up).complete
    assert loaded(sockets, short, 8).run(short, 2, 100).received_bytes == (8, 0, 0, 0)
