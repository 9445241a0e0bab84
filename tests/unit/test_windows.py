"""The windows of queue pairs in the model: they limit a pair where a round trip is long."""

from dataclasses import replace

import pytest

from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.shaping import Shaper
from model.fabric.spec import FabricKind
from model.fabric.topology import Topology
from model.fabric.transport import ACKNOWLEDGED_EVERY, Roce, Transport
from model.prediction.fluid import path_class, transfer_paths
from model.prediction.network import networks, pairs_of
from model.prediction.simulation import Simulation, unshared_arrivals_s
from model.workload.transfers.columns import Transfer, Transfers
from tests.unit.fabrics import spec

SIZE, LATENCY_S = 20_000_000, 0.05
ONE = Transfers.of([Transfer(0, 0, 1, SIZE, ())])


def fabric(transport: Transport = Transport.ROCE, **roce: int | bool) -> Topology:
    """Two GPUs that a NIC link of 20 Mbit/s joins to a rail switch."""
    of = spec(FabricKind.RAIL_ONLY, 2, 1)
    return build_topology(replace(of, transport=transport, roce=Roce(**roce)))  # type: ignore[arg-type]


def arrives_s(topology: Topology, latency_s: float = LATENCY_S) -> float:
    """When the transfer has arrived; by the simulation and without it."""
    epoch, (pairs, pair) = Epoch(topology), pairs_of(ONE, 2)
    (net,) = networks([epoch], topology.job_gpus, pairs)
    (hops,) = transfer_paths(list(ONE), epoch, topology.job_gpus)
    latencies = {path_class(hops or ()): latency_s}
    simulated_s = float(Simulation(ONE, pair, [net], latencies).run()[0])
    assert unshared_arrivals_s(ONE, pair, net, latencies)[0] == pytest.approx(simulated_s)
    return simulated_s


@pytest.mark.parametrize(("window", "queue_pairs"), [(1, 1), (4, 1), (8, 1), (32, 1), (8, 3)])
def test_a_window_passes_in_each_round_trip(window: int, queue_pairs: int) -> None:
    topology = fabric(window=window, queue_pairs=queue_pairs, split=queue_pairs > 1)
    roce, rate = topology.spec.roce, topology.slowest_bps / 8
    at_once = Shaper(topology.slowest_bps, topology.least_depth_s).burst_bytes + roce.frame_bytes
    waiting_bytes = max(0, min(ACKNOWLEDGED_EVERY, window) * roce.frame_bytes - at_once)
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
    (hops,) = transfer_paths(list(ONE), epochs[0], topology.job_gpus)
    pairs, pair = pairs_of(ONE, 2)
    nets = networks(epochs, topology.job_gpus, pairs)
    both = Simulation(ONE, pair, nets, {path_class(hops or ()): LATENCY_S})
    assert both.run()[0] == pytest.approx(arrives_s(topology))
