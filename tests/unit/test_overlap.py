"""Overlap of HB domains and NICs in predictions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.arrays import Floats
from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.spec import FabricKind
from model.fabric.topology import Topology
from model.prediction.fluid import path_class, predict
from model.prediction.network import _both_s, healthy_network, overlap
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import Transfers
from tests.unit.fabrics import assume_accepted, spec, topologies, transfer_paths
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS, Named
from traffic_gen.workloads.sized_collective import SizedCollective

SIZE_BYTES = 8_000_000
Span = tuple[float, float, bool, bool]
SPANS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 9), st.booleans(), st.booleans()), max_size=12
)


def overlap_on(topology: Topology, named: Named, size_bytes: int = SIZE_BYTES) -> float:
    shape = topology.spec.job_shape
    schedule = SizedCollective(*named, shape, size_bytes).steps()
    transfers = schedule.transfers
    paths = transfer_paths(transfers, Epoch(topology), topology.job_gpus)
    latency_s = dict.fromkeys((path_class(hops) for hops in paths if hops), 0.0)
    arrival_s = np.array(predict(schedule, [Epoch(topology)], latency_s).arrival_s)
    return overlap_of(transfers, topology, arrival_s)


def overlap_of(transfers: Transfers, topology: Topology, arrival_s: Floats) -> float:
    return overlap(transfers, *healthy_network(transfers, topology), arrival_s)


@pytest.mark.parametrize(
    ("collective", "algorithm", "least", "most"),
    [
        # The NICs begin when the last of a domain's data has been handed over.
        (Collective.ALL_TO_ALL, "two-step", 0.0, 0.001),
        # Later slices are handed over while earlier ones are on the NICs: 1/10 of the time at most.
        (Collective.ALL_TO_ALL, "two-step-pipelined", 0.05, 0.1),
        # A ring has hops of both kinds at once; those in HB domains take 1/9 of the time, at least.
        (Collective.ALL_REDUCE, "ring", 0.1, 0.2),
    ],
)
def test_slices_overlap_and_steps_do_not(
    collective: Collective, algorithm: str, least: float, most: float
) -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 4, 4))
    assert least <= overlap_on(topology, (collective, algorithm)) <= most


@given(st.sampled_from(sorted(ALGORITHMS)), topologies(3, 3))
def test_overlap_is_a_share(named: Named, topology: Topology) -> None:
    assume_accepted(named, *topology.spec.job_shape)
    assert 0 <= overlap_on(topology, named) <= 1


@given(SPANS)
def test_times_at_once_are_counted_once(spans: list[Span]) -> None:
    """Each unit of time counts if spans of both kinds contain it."""
    columns = [[span[place] for span in spans] for place in range(4)]
    begin, length = (np.array(column, float) for column in columns[:2])
    one, other = (np.array(column, bool) for column in columns[2:])
    counted = sum(
        any(b <= t < b + n and first for b, n, first, _ in spans)
        and any(b <= t < b + n and second for b, n, _, second in spans)
        for t in range(30)
    )
    assert _both_s(begin, begin + length, one, other) == counted
