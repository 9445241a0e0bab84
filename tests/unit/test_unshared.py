"""Times of transfers that share no link: those of the simulation, and refused where links are."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from model.arrays import Floats, Ints
from model.fabric.build import build_topology
from model.fabric.health import Epoch, without
from model.fabric.spec import COMPARED, FabricKind
from model.fabric.topology import Topology
from model.prediction.fluid import path_class
from model.prediction.network import Network, PathClass, networks_of
from model.prediction.simulation import SharedLink, Simulation, unshared_arrivals_s
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import Transfer, Transfers
from tests.unit.fabrics import assume_accepted, spec, topologies, transfer_paths
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS, Named
from traffic_gen.workloads.sized_collective import SizedCollective

NAMED = st.sampled_from(sorted(ALGORITHMS))
Inputs = tuple[Transfers, Ints, Network, dict[PathClass, float]]


def inputs(transfers: Transfers, epoch: Epoch, latency_s: float) -> Inputs:
    """What both computations are given."""
    topology = epoch.topology
    pair, (net,) = networks_of(transfers, [epoch], topology.job_gpus)
    paths = transfer_paths(transfers, epoch, topology.job_gpus)
    # Classes differ, so that not all events of a step coincide.
    kinds = {path_class(hops) for hops in paths if hops}
    return transfers, pair, net, {kind: latency_s * len(kind) for kind in kinds}


def simulated_s(given: Inputs) -> Floats:
    transfers, pair, net, latency_s = given
    return Simulation(transfers, pair, [net], latency_s).run()


@given(
    NAMED,
    topologies(4, 4),
    st.sampled_from([1_000, 100_000, 20_000_000]),
    st.sampled_from([0.0, 1e-4, 0.01]),
)
def test_times_are_those_of_the_simulation(
    named: Named, topology: Topology, size: int, latency_s: float
) -> None:
    shape = topology.spec.job_shape
    assume_accepted(named, *shape)
    given = inputs(SizedCollective(*named, shape, size).transfers(), Epoch(topology), latency_s)
    try:
        found = unshared_arrivals_s(*given)
    except SharedLink:
        assume(False)
        raise
    assert found == pytest.approx(simulated_s(given), rel=1e-9, abs=1e-8)


@pytest.mark.parametrize("kind", COMPARED)
@pytest.mark.parametrize("named", sorted(ALGORITHMS), ids="-".join)
def test_of_all_algorithms_rings_share_links_and_a_direct_one_does_on_rail_only(
    named: Named, kind: FabricKind
) -> None:
    topology = build_topology(spec(kind, 4, 4, spines=4))
    given = inputs(SizedCollective(*named, (4, 4), 10_000_000).transfers(), Epoch(topology), 1e-3)
    at_once = kind is FabricKind.RAIL_ONLY or named[0] is not Collective.ALL_TO_ALL
    if named[1] == "rings" or (named[1] == "direct" and at_once):
        with pytest.raises(SharedLink):
            unshared_arrivals_s(*given)
    else:
        assert np.abs(unshared_arrivals_s(*given) / simulated_s(given) - 1).max() < 1e-9


def step(number: int, source: int, destination: int, after: tuple[int, ...] = ()) -> Transfer:
    return Transfer(number, source, destination, 1_000_000, (), after=after)


def test_two_at_once_on_a_link_share_it_and_one_after_the_other_do_not() -> None:
    epoch = Epoch(build_topology(spec(FabricKind.RAIL_ONLY, 3, 1)))
    at_once = Transfers.of([step(0, 0, 1), step(1, 2, 1)])
    with pytest.raises(SharedLink):
        unshared_arrivals_s(*inputs(at_once, epoch, 0.0))
    in_turn = Transfers.of([step(0, 0, 1), step(1, 0, 2, (0,))])
    given = inputs(in_turn, epoch, 1e-3)
    assert unshared_arrivals_s(*given) == pytest.approx(simulated_s(given))


@pytest.mark.parametrize("after_s", [0.0, 1e-4])
def test_the_fast_link_of_a_slow_path_pays_for_the_last_segment_alone(after_s: float) -> None:
    """Its bucket is full again before that, and the next transfer finds it without the segment."""
    epoch = Epoch(build_topology(spec(FabricKind.RAIL_ONLY, 2, 2)))
    through_a_peer = step(0, 0, 3)
    pause = Transfer(1, 0, 0, 0, (), after=(0,), compute_ns=round(after_s * 1e9))
    given = inputs(Transfers.of([through_a_peer, pause, step(2, 0, 1, (1,))]), epoch, 0.0)
    assert unshared_arrivals_s(*given) == pytest.approx(simulated_s(given), rel=1e-9)


def test_a_link_that_is_taken_by_a_longer_chain_first_is_not_missed() -> None:
    """The second transfer on a link is fewer steps from the beginning, and begins meanwhile."""
    epoch = Epoch(build_topology(spec(FabricKind.RAIL_ONLY, 4, 1)))
    small = replace(step(0, 3, 2), size_bytes=1000)
    chain = [small, replace(small, id=1, after=(0,)), step(2, 0, 1), step(3, 3, 1, (0, 1))]
    with pytest.raises(SharedLink):
        unshared_arrivals_s(*inputs(Transfers.of(chain), epoch, 0.0))


def test_two_that_pass_in_no_time_share_a_link() -> None:
    """The second one begins at the same moment, as the end of a third one releases it."""
    epoch = Epoch(build_topology(spec(FabricKind.RAIL_ONLY, 4, 1)))
    small = replace(step(0, 0, 1), size_bytes=1000)
    chain = [small, replace(small, id=1, source=3, destination=2)]
    released = replace(small, id=2, source=2, after=(1,))
    with pytest.raises(SharedLink):
        unshared_arrivals_s(*inputs(Transfers.of([*chain, released]), epoch, 0.0))


def test_compute_takes_its_time_and_no_link() -> None:
    epoch = Epoch(build_topology(spec(FabricKind.RAIL_ONLY, 2, 2)))
    compute = Transfer(1, 1, 1, 0, (), after=(0,), compute_ns=50_000_000)
    steps = Transfers.of([step(0, 0, 1), compute, step(2, 1, 3, (1,))])
    given = inputs(steps, epoch, 1e-3)
    found = unshared_arrivals_s(*given)
    assert found == pytest.approx(simulated_s(given))
    assert found[1] == pytest.approx(found[0] + 0.05)


def test_compute_that_waits_for_its_processor_is_left_to_the_simulation() -> None:
    epoch = Epoch(build_topology(spec(FabricKind.RAIL_ONLY, 2, 2)))
    first = Transfer(0, 1, 1, 0, (), compute_ns=50_000_000, processor=0)
    in_turn = Transfers.of([first, replace(first, id=1, after=(0,))])
    assert unshared_arrivals_s(*inputs(in_turn, epoch, 0.0)) == pytest.approx([0.05, 0.1])
    for other in (replace(first, id=2), replace(first, id=2, after=(1,))):
        chain = [first, replace(first, id=1, compute_ns=9, processor=1), other]
        with pytest.raises(SharedLink):
            unshared_arrivals_s(*inputs(Transfers.of(chain), epoch, 0.0))


def test_a_pair_without_a_path_is_left_to_the_simulation() -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 1))
    epoch = Epoch(topology, without(topology, [], [topology.links[0].name, "d0g0--rail0"]))
    transfers = Transfers.of([step(0, 0, 1)])
    with pytest.raises(SharedLink):
        unshared_arrivals_s(*inputs(transfers, epoch, 0.0))
