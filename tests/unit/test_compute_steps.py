"""Steps of compute: in predictions, in estimates, and in the program of an agent."""

import json
import socket
from dataclasses import replace
from multiprocessing import get_context

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.spec import FabricKind
from model.prediction.fluid import path_class
from model.prediction.load import profile
from model.prediction.network import healthy_network
from model.prediction.simulation import Simulation
from model.workload.transfers.columns import NONE, Transfer, Transfers
from tests.unit.fabrics import spec, transfer_paths
from traffic_gen.agents.agent import Agent
from traffic_gen.agents.client import programs_of

MS = 10**6
TOPOLOGY = build_topology(spec(FabricKind.RAIL_OPTIMIZED, 2, 2))
LATENCY_S = 0.01


def compute(
    number: int, rank: int, duration_ns: int, *after: int, processor: int = NONE, turn: int = 0
) -> Transfer:
    step = Transfer(number, rank, rank, 0, (), after, compute_ns=duration_ns)
    return replace(step, processor=processor, turn=turn)


def arrivals_s(steps: list[Transfer]) -> list[float]:
    """The modeled end of each step, with one latency of all paths."""
    transfers, gpus = Transfers.of(steps), TOPOLOGY.job_gpus
    pair, net = healthy_network(transfers, TOPOLOGY)
    paths = transfer_paths(steps, Epoch(TOPOLOGY), gpus)
    latency_s = {path_class(hops): LATENCY_S for hops in paths if hops}
    return list(Simulation(transfers, pair, [net], latency_s).run())


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=20))
def test_a_chain_of_compute_takes_the_sum(durations_ns: list[int]) -> None:
    steps = [compute(i, 0, ns, *range(max(0, i - 1), i)) for i, ns in enumerate(durations_ns)]
    assert arrivals_s(steps)[-1] == pytest.approx(sum(durations_ns) / 1e9, abs=1e-6)


def test_steps_on_a_processor_take_turns_in_the_order_of_their_release() -> None:
    """The last one on processor 0 is ready while the first computes; the second, later."""
    steps = [
        compute(0, 0, 30 * MS, processor=0),
        compute(1, 0, 20 * MS, processor=1),
        compute(2, 0, 5 * MS, 1, processor=0),
        compute(3, 0, 10 * MS, processor=0),
        compute(4, 1, 7 * MS, processor=0),
    ]
    assert arrivals_s(steps) == pytest.approx([0.030, 0.020, 0.045, 0.040, 0.007])


def test_the_lowest_turn_of_those_that_are_ready_comes_first() -> None:
    steps = [
        compute(0, 0, 30 * MS, processor=0, turn=9),
        compute(1, 0, 10 * MS, processor=1),
        compute(2, 0, 5 * MS, 1, processor=0, turn=5),
        compute(3, 0, 20 * MS, 1, processor=0, turn=3),
        compute(4, 0, 40 * MS, processor=1, turn=1),
        compute(5, 0, 1 * MS, 4, processor=0, turn=4),
    ]
    assert arrivals_s(steps) == pytest.approx([0.030, 0.010, 0.056, 0.050, 0.050, 0.051])


def test_a_transfer_and_a_step_of_compute_wait_for_each_other() -> None:
    """Rank 0 computes and sends; rank 1 computes when its own compute is done and all is there."""
    sent = Transfer(2, 0, 1, 8, (), (0,))
    steps = [compute(0, 0, 30 * MS), compute(1, 1, 5 * MS), sent, compute(3, 1, 7 * MS, 1, 2)]
    ends_s = arrivals_s(steps)
    assert ends_s[:2] == pytest.approx([0.030, 0.005])
    assert ends_s[2] == pytest.approx(0.030 + LATENCY_S, abs=1e-4)
    assert ends_s[3] == pytest.approx(ends_s[2] + 0.007)


def test_an_estimate_has_the_time_of_compute() -> None:
    steps = [compute(0, 0, 30 * MS), compute(1, 0, 5 * MS, 0)]
    transfers = Transfers.of(steps)
    found = profile(transfers, *healthy_network(transfers, TOPOLOGY), TOPOLOGY)
    assert found.completion_s == pytest.approx(0.035)


def test_an_agent_waits_as_long_as_it_is_to_compute() -> None:
    """A step that follows another one begins when that one was to end, to the nanosecond."""
    steps = [
        *(compute(0, 0, 3 * MS, processor=4), compute(1, 0, 2 * MS, 0), compute(2, 0, 1 * MS, 0)),
        compute(3, 0, 9 * MS, processor=4, turn=2),
        compute(4, 0, 1 * MS, processor=4, turn=1),
    ]
    client, control = socket.socketpair()
    with client, control, socket.socket() as listener:
        listener.listen()
        # The agent ends its process when the client's end of the socket closes.
        agent = get_context("fork").Process(target=Agent(control, listener).serve, daemon=True)
        agent.start()
        program = programs_of([0], steps, {}, TOPOLOGY.spec)[0]
        run = {"do": "run", "start_ns": 5, "end_ns": 2**62}
        for request in (program, run, {"do": "report"}):
            client.sendall(json.dumps(request).encode() + b"\n")
        answers = client.makefile()
        assert json.loads(answers.readline()) == {"loaded": True}
        assert json.loads(answers.readline()) == {"complete": True, "broken": False}
        answer = json.loads(answers.readline())
    begin, end = 5, 5 + 3 * MS
    assert answer["complete"]
    assert [times[:3] for times in answer["sends"]] == [
        [0, begin, end],
        [1, end, end + 2 * MS],
        [2, end, end + MS],
        [3, end + MS, end + 10 * MS],
        [4, end, end + MS],
    ]
