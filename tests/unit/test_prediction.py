"""The fluid model against closed forms and against what must hold for any model."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.closed_forms import Grid, completion_s, two_step_slowdown
from model.fabric import FabricKind
from model.platforms import PLATFORMS
from model.prediction import Epoch, PathClass, Prediction, path_class, predict, transfer_paths
from model.schedule import Collective, Schedule
from model.shaping import MIN_BURST_BYTES, Shaper, wire_bytes
from model.topology import Topology, build_topology
from tests.unit.fabrics import spec, topologies
from traffic_gen.collectives import ALGORITHMS, build_schedule

NAMED = st.sampled_from(sorted(ALGORITHMS))
LARGE = 40_000_000


def predicted(schedule: Schedule, topology: Topology, latency_s: float = 0.0) -> Prediction:
    paths = transfer_paths(schedule, Epoch(topology), topology.job_gpus)
    latencies: dict[PathClass, float] = {path_class(hops): latency_s for hops in paths if hops}
    return predict(schedule, topology, latencies)


@settings(deadline=None)
@given(NAMED, topologies(4, 4), st.sampled_from([10_000, LARGE]))
def test_never_below_the_lower_bound(
    named: tuple[Collective, str], topology: Topology, size: int
) -> None:
    schedule = build_schedule(*named, topology.spec.domains, topology.spec.domain_size, size)
    prediction = predicted(schedule, topology)
    assert prediction.completion_s >= prediction.lower_bound_s - 1e-9
    assert prediction.completion_s == max(prediction.arrival_s)


@settings(deadline=None)
@given(
    NAMED,
    st.sampled_from(FabricKind),
    st.integers(2, 4).flatmap(lambda x: st.tuples(st.just(x), st.sampled_from([x, 2 * x]))),
)
def test_closed_forms_hold_for_large_sizes(
    named: tuple[Collective, str], kind: FabricKind, shape: tuple[int, int]
) -> None:
    """Domains are a multiple of the domain size, so that the ring's edges keep their rails."""
    x, y = shape
    topology = build_topology(spec(kind, y, x, spines=y))
    schedule = build_schedule(*named, y, x, LARGE)
    fabric = topology.spec
    grid = Grid(x, y, fabric.emulated_hb_bps / 8, fabric.emulated_nic_bps / 8)
    closed_s = completion_s(*named, kind, grid, wire_bytes(1) * schedule.size_bytes)
    assert predicted(schedule, topology).completion_s == pytest.approx(closed_s, rel=0.02)


@settings(deadline=None)
@given(NAMED, topologies(3, 3))
def test_latency_and_size_only_make_it_longer(
    named: tuple[Collective, str], topology: Topology
) -> None:
    shape = topology.spec.domains, topology.spec.domain_size
    small, large = (build_schedule(*named, *shape, size) for size in (LARGE // 10, LARGE))
    assert predicted(small, topology).completion_s < predicted(large, topology).completion_s
    assert (
        predicted(small, topology).completion_s
        <= predicted(small, topology, latency_s=0.01).completion_s
    )


@pytest.mark.parametrize(("platform", "percent"), [("dgx-a100", 8.3), ("dgx-h100", 11.1)])
def test_the_papers_slowdown_of_two_steps(platform: str, percent: float) -> None:
    """Section IV-B prints 8.2 and 11.2; C_S/C_F is 8.33 and 11.11."""
    rates = PLATFORMS[platform]
    square = Grid(x=4, y=4, hb=rates.hb_rate_bps / 8, nic=rates.nic_rate_bps / 8)
    assert 100 * two_step_slowdown(square) == pytest.approx(percent, abs=0.05)


def test_hierarchical_all_gather_is_mostly_within_domains() -> None:
    """Figure 4: with x = 32 and y = 2, 98 % of the bytes stay inside the HB domains."""
    schedule = build_schedule(Collective.ALL_GATHER, "hierarchical", 2, 32, LARGE)
    within = sum(t.size_bytes for t in schedule.transfers if t.source // 32 == t.destination // 32)
    total = sum(t.size_bytes for t in schedule.transfers)
    assert 100 * within / total == pytest.approx(98, abs=0.6)


def test_the_first_bytes_pass_on_the_bucket() -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 1))
    schedule = build_schedule(Collective.ALL_TO_ALL, "direct", 2, 1, 4000)
    assert wire_bytes(2000) < MIN_BURST_BYTES
    assert predicted(schedule, topology).completion_s == 0.0
    assert predicted(schedule, topology, latency_s=0.003).completion_s == 0.003


@given(st.integers(1_000_000, 10**13))
def test_the_burst_is_a_millisecond_of_the_rate(rate_bps: int) -> None:
    burst = Shaper(rate_bps).burst_bytes
    assert burst == max(MIN_BURST_BYTES, round(rate_bps / 8000))
