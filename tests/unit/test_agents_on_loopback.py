"""Real agents and their client over loopback: any steps are executed in order, with right data."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from model.fabric.job_grid import JobGrid
from model.fabric.spec import FabricKind
from model.measurement.records import Repeat
from model.workload.schedule import Steps, WorkSteps
from model.workload.trace import Trace
from model.workload.transfers.columns import Transfer, Transfers
from tests.unit.fabrics import accepts, spec
from tests.unit.traces import traces
from traffic_gen.agents import agent, client
from traffic_gen.agents.client import Aborted, AgentClient
from traffic_gen.traces.rank_placement import PlacementRule, placed
from traffic_gen.traces.replay import Replay
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS
from traffic_gen.workloads.sized_collective import SizedCollective

RANKS = 4
SHAPES = [(2, 2), (1, 4), (4, 1), (1, 3)]
# The last of these are larger than the buffers of a connection.
SIZES = [64, 40_000, 1_000_000]
ADDRESSES = {(source, to, 0): f"127.0.0.{to + 1}" for source, to in product(range(RANKS), repeat=2)}
FEW = settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def sockets() -> Iterator[list[socket.socket]]:
    """The client's ends of the agents' sockets."""
    with ExitStack() as stack:
        first = stack.enter_context(closing(socket.create_server((ADDRESSES[0, 0, 0], 0))))
        port = first.getsockname()[1]
        others = [ADDRESSES[0, rank, 0] for rank in range(1, RANKS)]
        listeners = [first, *(socket.create_server((there, port)) for there in others)]
        stack.enter_context(patch.object(agent, "PORT", port))
        stack.enter_context(patch.object(client, "START_DELAY_NS", 10_000_000))
        ours = []
        for listener in listeners:
            near, far = (stack.enter_context(closing(end)) for end in socket.socketpair())
            stack.enter_context(closing(listener))
            stack.enter_context(served(agent.Agent(far, listener), near))
            ours.append(near)
        yield ours


@contextmanager
def served(made: agent.Agent, near: socket.socket) -> Iterator[ForkProcess]:
    """Let an agent serve the other end of its socket in a process of its own."""

    def serve() -> None:
        near.close()
        made.serve()

    process = get_context("fork").Process(target=serve, daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def loaded(sockets: list[socket.socket], steps: Steps, window: int) -> AgentClient:
    fabric = replace(spec(FabricKind.RAIL_ONLY, 1, RANKS), window=window)
    agents = AgentClient(sockets, fabric, lambda: None)
    agents.place(range(steps.gpus))
    agents.load(steps, ADDRESSES, check_data=True)
    return agents


def executed(sockets: list[socket.socket], steps: Steps, window: int) -> Iterator[Repeat]:
    """Execute steps twice; the agents are loaded once."""
    agents = loaded(sockets, steps, window)
    for number in (1, 2):
        repeat = agents.run(steps, number, 20)
        assert (repeat.number, repeat.complete, repeat.errors) == (number, True, ())
        yield repeat


def require_order(steps: Steps, repeat: Repeat, window: int) -> None:
    """Require that each step begins when its sender has seen all that it waits for."""
    records, transfers = repeat.records, list(steps.transfers)
    sent, received = np.zeros((2, steps.gpus), np.int64)
    for step, record in zip(transfers, records, strict=True):
        assert (record.transfer, record.size_bytes) == (step.id, step.size_bytes)
        assert 0 <= record.started_ns <= record.sent_ns <= record.confirmed_ns
        assert record.arrived_ns <= record.confirmed_ns
        sent[step.source] += step.size_bytes
        received[step.destination] += step.size_bytes
        if step.ready is not None:
            assert record.started_ns >= records[step.ready].arrived_ns
        for one in step.after:
            earlier = transfers[one]
            seen_ns = records[one].arrived_ns
            if earlier.source == step.source:
                seen_ns = seen_by_sender_ns(repeat, earlier, step, window)
            assert record.started_ns >= seen_ns
    assert repeat.sent_bytes == tuple(sent)
    assert repeat.received_bytes == tuple(received)
    assert repeat.completion_s == max(record.arrived_ns for record in records) / 1e9


def seen_by_sender_ns(repeat: Repeat, earlier: Transfer, step: Transfer, window: int) -> int:
    """When a transfer is over for its sender: on one connection, none overtakes another."""
    record = repeat.records[earlier.id]
    overtakes = step.is_compute or step.destination != earlier.destination
    return record.confirmed_ns if window == 1 or overtakes else record.sent_ns


@FEW
@given(
    st.sampled_from(sorted(ALGORITHMS)),
    st.sampled_from(SHAPES),
    st.sampled_from(SIZES),
    st.sampled_from([1, 8]),
)
def test_agents_execute_a_collective_with_the_right_result(
    sockets: list[socket.socket],
    named: tuple[str, str],
    shape: tuple[int, int],
    size_bytes: int,
    window: int,
) -> None:
    assume(accepts(named, *shape))
    steps = SizedCollective(*named, shape, size_bytes).steps()
    for repeat in executed(sockets, steps, window):
        require_order(steps, repeat, window)


@FEW
@given(traces(), st.sampled_from(PlacementRule), st.sampled_from([1, 8]))
def test_agents_replay_a_trace_in_its_order(
    sockets: list[socket.socket], trace: Trace, rule: PlacementRule, window: int
) -> None:
    grid = JobGrid(1, RANKS)
    steps = Replay(trace, "x", placed(rule, trace.ranks, grid), grid).steps()
    for repeat in executed(sockets, steps, window):
        require_order(steps, repeat, window)


def test_agents_stop_what_is_aborted_and_go_on(sockets: list[socket.socket]) -> None:
    def gives_up(_since_start_s: float) -> float:
        raise Aborted

    day = work([Transfer(0, 0, 0, 0, (), compute_ns=86_400 * 10**9)])
    assert not loaded(sockets, day, window=8).run(day, 1, 100_000, gives_up).complete
    sent = work([Transfer(0, 1, 0, 8, ())])
    assert [repeat.received_bytes for repeat in executed(sockets, sent, 8)] == [(8, 0, 0, 0)] * 2


def work(steps: list[Transfer]) -> WorkSteps:
    transfers = Transfers.of(steps)
    return WorkSteps(task="x", algorithm="x", gpus=RANKS, size_bytes=8, transfers=transfers)


def test_an_agent_ends_with_its_client() -> None:
    """Nothing outlives a run that was killed."""
    near, far = socket.socketpair()
    with (
        far,
        socket.create_server(("127.0.0.1", 0)) as listener,
        served(agent.Agent(far, listener), near) as process,
    ):
        near.close()
        process.join(20)
        assert process.exitcode == 0
