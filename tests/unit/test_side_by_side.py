"""Figures of two testbeds for one load: times of rounds, errors, costs, ratios."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.errors import EmulationError
from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.shaping import wire_bytes
from model.fabric.spec import FabricKind
from model.prediction.fluid import path_class, predict
from model.workload.transfers.collective import Collective
from studies.benchmarks.mininet import (
    Execution,
    Figures,
    medians,
    ratios,
    rounds_execution,
    side_by_side,
)
from tests.unit.fabrics import spec, transfer_paths
from traffic_gen.iperf3 import Flow, bytes_by_pair, rounds
from traffic_gen.workloads.sized_collective import SizedCollective

FABRIC = spec(FabricKind.RAIL_ONLY, 2, 2)
MEGABYTE = 1_000_000
NIC_S, HB_S = (wire_bytes(MEGABYTE) * 8 / rate_bps for rate_bps in (20e6, 180e6))


def flow(pair: tuple[int, int], duration_s: float) -> Flow:
    """A flow of one megabyte that was received in full."""
    return Flow(pair, sent_bytes=MEGABYTE, received_bytes=MEGABYTE, duration_s=duration_s)


def test_a_round_lasts_as_long_as_its_longest_transfer_and_rounds_add_up() -> None:
    rail = [flow((0, 2), NIC_S), flow((2, 0), 2 * NIC_S)]
    domain = [flow((0, 1), 3 * HB_S), flow((1, 0), HB_S)]
    execution = rounds_execution([rail, domain], FABRIC, cpu_s=8.0)
    assert execution.measured_s == pytest.approx(2 * NIC_S + 3 * HB_S)
    assert execution.modeled_s == pytest.approx(NIC_S + HB_S)
    assert execution.cpu_s_per_gigabyte == pytest.approx(2000)


def test_only_what_has_come_is_charged_to_the_time() -> None:
    late = Flow((0, 2), sent_bytes=2 * MEGABYTE, received_bytes=MEGABYTE, duration_s=NIC_S)
    assert rounds_execution([[late]], FABRIC, cpu_s=0.0).error == pytest.approx(0)


def test_a_transfer_that_changes_rails_is_not_modeled_by_one_link() -> None:
    with pytest.raises(ValueError, match="rail"):
        rounds_execution([[flow((0, 3), 1.0)]], FABRIC, cpu_s=0.0)


@given(st.integers(2, 4), st.integers(2, 4), st.integers(1, 50))
def test_the_model_of_the_rounds_is_not_below_the_bound_of_the_schedule(
    domains: int, domain_size: int, megabytes: int
) -> None:
    fabric = spec(FabricKind.RAIL_ONLY, domains, domain_size)
    size_bytes = megabytes * MEGABYTE
    grid = domains, domain_size
    schedule = SizedCollective(Collective.ALL_TO_ALL, "two-step", grid, size_bytes).steps()
    sizes = bytes_by_pair(schedule)
    flows = [
        [Flow(pair, sizes[pair], sizes[pair], 1.0) for pair in pairs]
        for pairs in rounds(sizes, domains, domain_size)
    ]
    topology = build_topology(fabric)
    paths = transfer_paths(schedule.transfers, Epoch(topology), topology.job_gpus)
    latency_s = {path_class(hops): 0.0 for hops in paths if hops}
    bound_s = predict(schedule, [Epoch(topology)], latency_s).lower_bound_s
    assert rounds_execution(flows, fabric, cpu_s=0.0).modeled_s >= bound_s


@given(st.floats(0.1, 10), st.floats(0.1, 10))
def test_an_error_is_the_distance_from_the_model(measured_s: float, modeled_s: float) -> None:
    error = Execution(measured_s, modeled_s, MEGABYTE, 1.0).error
    assert error * modeled_s == pytest.approx(abs(measured_s - modeled_s), abs=1e-9)


def test_a_row_has_medians_and_the_ratio_is_ours_over_theirs() -> None:
    ours = medians([Execution(t, 1.0, MEGABYTE, 0.005) for t in (1.01, 0.98, 1.5)])
    theirs = medians([Execution(t, 1.0, MEGABYTE, 0.02) for t in (1.2, 1.4, 9.0)])
    assert (ours["error"], ours["error_max"]) == pytest.approx((0.02, 0.5))
    assert ratios(ours, theirs) == pytest.approx(
        {"error_ratio": 0.02 / 0.4, "cpu_s_per_gigabyte_ratio": 0.25}
    )


def test_up_is_compared_with_what_mininet_says_and_with_what_is_so() -> None:
    found = ratios({"up_s": 1.0}, {"up_s": 4.0, "connected_s": 2.0})
    assert found == {"up_s_ratio": 0.25, "up_s_to_connected_s_ratio": 0.5}


def test_both_have_a_row_and_the_last_has_the_ratios() -> None:
    rows = list(side_by_side({"gpus": 16}, lambda: {"up_s": 1.0}, lambda: {"up_s": 4.0}))
    assert rows == [
        {"gpus": 16, "fabric": "railbed", "up_s": 1.0},
        {"gpus": 16, "fabric": "mininet", "up_s": 4.0},
        {"gpus": 16, "fabric": "railbed / mininet", "up_s_ratio": 0.25},
    ]


def test_plain_mininet_that_fails_is_a_row_with_the_reason() -> None:
    def fail() -> Figures:
        raise EmulationError("did not end within 900 s")

    rows = list(side_by_side({"gpus": 256}, lambda: {"up_s": 20.0}, fail))
    assert rows[1:] == [{"gpus": 256, "fabric": "mininet", "failed": "did not end within 900 s"}]
