"""The windows of queue pairs in the model: they limit a pair where a round trip is long."""

from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.arrays import Floats
from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.shaping import Shaper
from model.fabric.spec import FabricKind
from model.fabric.topology import Topology
from model.fabric.transport import Roce, Transport
from model.prediction.fluid import path_class
from model.prediction.network import PathClass, healthy_network, networks_of
from model.prediction.simulation import Simulation, unshared_arrivals_s
from model.workload.transfers.columns import Transfer, Transfers
from tests.unit.fabrics import spec, transfer_paths
from traffic_gen.agents.roce.endpoint import Connection
from traffic_gen.agents.transfers import Send

SIZE, LATENCY_S = 20_000_000, 0.05
ONE = Transfers.of([Transfer(0, 0, 1, SIZE, ())])


def fabric(transport: Transport = Transport.ROCE, **roce: int | bool) -> Topology:
    """Two GPUs that a NIC link of 20 Mbit/s joins to a rail switch."""
    of = spec(FabricKind.RAIL_ONLY, 2, 1)
    return build_topology(replace(of, transport=transport, roce=Roce(**roce)))  # type: ignore[arg-type]


def arrives_s(topology: Topology, latency_s: float = LATENCY_S) -> float:
    """When the transfer has arrived; by the simulation and without it."""
    pair, net = healthy_network(ONE, topology)
    latencies = latencies_on(topology, latency_s)
    simulated_s = float(Simulation(ONE, pair, [net], latencies).run()[0])
    assert unshared_arrivals_s(ONE, pair, net, latencies)[0] == pytest.approx(simulated_s)
    return simulated_s


def latencies_on(topology: Topology, latency_s: float = LATENCY_S) -> dict[PathClass, float]:
    """The latency of the path between the two GPUs."""
    (hops,) = transfer_paths(list(ONE), Epoch(topology), topology.job_gpus)
    return {path_class(hops or ()): latency_s}


@pytest.mark.parametrize(
    ("window", "queue_pairs"), [(1, 1), (4, 1), (8, 1), (15, 1), (32, 1), (8, 3)]
)
def test_a_window_passes_in_each_round_trip(window: int, queue_pairs: int) -> None:
    topology = fabric(window=window, queue_pairs=queue_pairs, split=queue_pairs > 1)
    roce, rate = topology.spec.roce, topology.slowest_bps / 8
    at_once = Shaper(topology.slowest_bps, topology.least_depth_s).burst_bytes + roce.frame_bytes
    waiting_bytes = max(0, roce.acknowledged_packets * roce.frame_bytes - at_once)
    round_trip_s = 2 * LATENCY_S + waiting_bytes / rate
    window_bytes = window * queue_pairs * roce.frame_bytes
    expected_s = roce.wire_bytes(SIZE) / (window_bytes / round_trip_s)
    assert arrives_s(topology) == pytest.approx(expected_s, rel=0.02)


def test_a_window_that_fills_the_round_trip_changes_nothing() -> None:
    wide, short = fabric(window=10_000), fabric(window=32)
    assert arrives_s(wide) < arrives_s(short)
    assert arrives_s(short, 1e-4) == arrives_s(wide, 1e-4)
    assert arrives_s(fabric(Transport.TCP, window=1)) == arrives_s(fabric(Transport.TCP))


def test_windows_stay_from_one_state_of_the_fabric_to_the_next() -> None:
    topology = fabric(window=8)
    epochs = [Epoch(topology, begin_s=begin_s) for begin_s in (0.0, 1.0)]
    pair, nets = networks_of(ONE, epochs, topology.job_gpus)
    both = Simulation(ONE, pair, nets, latencies_on(topology))
    assert both.run()[0] == pytest.approx(arrives_s(topology))


@given(st.integers(1, 6), st.lists(st.integers(10_000, 1_000_000), min_size=1, max_size=8))
def test_each_queue_pair_has_a_window_and_transfers_take_them_in_turn(
    queue_pairs: int, sizes: list[int]
) -> None:
    """Windows are so small that the link carries those of all queue pairs at once.

    So few transfers wait for no confirmation of each other.
    """
    topology = fabric(window=2, queue_pairs=queue_pairs)
    transfers = Transfers.of([Transfer(n, 0, 1, size, ()) for n, size in enumerate(sizes)])
    pair, net = healthy_network(transfers, topology)
    arrival_s = Simulation(transfers, pair, [net], latencies_on(topology)).run()
    connection = Connection([cast(Any, number) for number in range(queue_pairs)])
    sends = (Send(n, 1, size, [], False, [], 0, -1, 0) for n, size in enumerate(sizes))
    by = [number for send in sends for number, _, _ in connection.parts(send, split=False)]
    for number in set(by):
        mine = [n for n, chosen in enumerate(by) if chosen == number]
        alone = Transfers.of([Transfer(n, 0, 1, sizes[at], ()) for n, at in enumerate(mine)])
        one = fabric(window=2)
        pair, net = healthy_network(alone, one)
        expected_s = Simulation(alone, pair, [net], latencies_on(one)).run()
        assert arrival_s[mine] == pytest.approx(expected_s)


@given(st.lists(st.tuples(st.booleans(), st.integers(1000, 1_000_000)), min_size=1, max_size=12))
def test_a_connection_has_its_window_whatever_the_other_direction_sends(
    sent: list[tuple[bool, int]],
) -> None:
    topology = build_topology(replace(spec(FabricKind.RAIL_ONLY, 2, 1), window=2))

    def arrival_s(some: list[tuple[bool, int]]) -> Floats:
        ends = [(int(back), int(not back), size) for back, size in some]
        transfers = Transfers.of([Transfer(n, *end, ()) for n, end in enumerate(ends)])
        pair, net = healthy_network(transfers, topology)
        return Simulation(transfers, pair, [net], latencies_on(topology)).run()

    both_s = arrival_s(sent)
    for direction in {back for back, _ in sent}:
        mine = [n for n, (back, _) in enumerate(sent) if back is direction]
        assert both_s[mine] == pytest.approx(arrival_s([sent[n] for n in mine]))
