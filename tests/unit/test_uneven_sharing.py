"""Shares of forwarded flows: from arrivals to weights, and from weights to completion times."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.arrays import Floats
from model.fabric.build import build_topology
from model.fabric.health import Epoch, without
from model.fabric.spec import FabricKind
from model.prediction.fluid import path_class, predict
from model.prediction.network import Terms, healthy_network
from model.prediction.simulation import Simulation
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import Transfers, streams
from studies.benchmarks.sharing import (
    Shares,
    contests,
    is_forwarded,
    under_uneven_sharing,
    weight_of,
)
from tests.unit.fabrics import spec, transfer_paths
from traffic_gen.workloads.sized_collective import SizedCollective

FLUID = Terms(headers=False, bursts=False, last_segment=False, acknowledgements=False, probes=False)
LOST = "d0g0--rail0"


@given(st.floats(0.1, 10))
def test_a_weight_follows_from_two_arrivals(weight: float) -> None:
    """The simulation with a weight has the arrivals from which it is found again."""
    one_s, other_s = arrivals_s([weight, 1.0])
    assert weight_of(one_s, other_s) == pytest.approx(weight, rel=1e-6)


def arrivals_s(weights: list[float]) -> Floats:
    """Arrivals at one GPU of as many bytes from each other GPU of its rail, over its NIC link."""
    topology = build_topology(spec(FabricKind.RAIL_ONLY, len(weights) + 1, 1))
    flows = [(sender + 1, 0, 1_000_000) for sender in range(len(weights))]
    incast = Transfers.of(streams(flows))
    pair, net = healthy_network(incast, topology)
    latency_s = dict.fromkeys(net.classes, 0.0)
    return Simulation(incast, pair, [net], latency_s, FLUID, np.array(weights)).run()


def test_a_flow_that_is_alone_for_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="too late"):
        weight_of(1.0, 2.0)


@given(st.floats(-1, 1), st.floats(0, 0.5))
def test_drawn_weights_have_the_mean_and_the_spread(mean: float, spread: float) -> None:
    forwarded = np.arange(4000) % 2 == 0
    drawn = Shares(mean, spread).drawn(forwarded, np.random.default_rng(0))
    assert (drawn[~forwarded] == 1).all()
    found = Shares.of(drawn[forwarded].tolist())
    assert found.mean == pytest.approx(mean, abs=0.05)
    assert found.spread == pytest.approx(spread, abs=0.05)


def test_a_lost_link_has_forwarded_flows_and_their_shares_matter() -> None:
    """With equal shares, the prediction is the fair one; with large ones, it is longer."""
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 4, 4))
    health = without(topology, links=[LOST])
    schedule = SizedCollective(Collective.ALL_TO_ALL, "direct", (4, 4), 4_000_000).steps()
    paths = transfer_paths(schedule.transfers, Epoch(topology, health), topology.job_gpus)
    latency_s = {path_class(hops): 1e-4 for hops in paths if hops}
    forwarded = np.array([is_forwarded(hops or ()) for hops in paths])

    def completion_s(weight: Floats | None) -> float:
        return predict(schedule, [Epoch(topology, health)], latency_s, weight=weight).completion_s

    fair_s = completion_s(None)
    assert under_uneven_sharing(completion_s, forwarded, Shares(0, 0), 2) == [fair_s, fair_s]
    uneven_s = under_uneven_sharing(completion_s, forwarded, Shares(0.7, 0.5), 9)
    assert uneven_s == sorted(uneven_s)
    assert uneven_s[4] > fair_s


def test_contests_are_of_an_own_and_a_forwarded_flow_on_one_nic() -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 3, 2))
    schedule = SizedCollective(Collective.ALL_TO_ALL, "direct", (3, 2), 4_000_000).steps()
    epoch = Epoch(topology, without(topology, links=[LOST]))
    found = transfer_paths(schedule.transfers, epoch, topology.job_gpus)
    paths = {
        (t.source, t.destination): hops
        for t, hops in zip(schedule.transfers, found, strict=True)
        if hops
    }
    some = contests(paths)
    assert ((1, 3), (0, 5)) in some  # GPU 1 sends for GPU 0, which has lost its NIC link
    for own, other in some:
        assert is_forwarded(paths[other])
        assert not is_forwarded(paths[own])
        assert [hop.sender for hop in paths[other]].count(f"d{own[0] // 2}g{own[0] % 2}") == 1
