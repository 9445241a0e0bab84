"""The grain in which flows share links: where it is fine, and what it costs; who sends first."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.fabric.build import build_topology
from model.fabric.job_grid import JobGrid
from model.fabric.shaping import (
    MTU_BYTES,
    SEGMENT_PACKETS,
    buffered_segments,
    least_timeout_s,
    segment_bytes,
    send_buffer_bytes,
)
from model.fabric.spec import COMPARED, FabricKind
from model.prediction.load import packet_bytes, profile
from model.prediction.network import healthy_network
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import Transfer, Transfers
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.planning.auto import FINE_PACKETS, GRAINS, peak
from scenarios.planning.plan import notes, real_task
from scenarios.scenario import Scenario
from tests.unit.fabrics import spec as fabric_spec
from tests.unit.machines import TWO_CORES
from traffic_gen.agents.client import programs_of, turn
from traffic_gen.workloads.sized_collective import SizedCollective

KINDS = st.sampled_from(COMPARED)
SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 5)).filter(lambda shape: shape != (1, 1))
PACKETS = st.integers(2, SEGMENT_PACKETS)


def at_once(pairs: list[tuple[int, int]]) -> Transfers:
    """A transfer for each pair, none of which waits for another."""
    sent = [Transfer(n, a, b, 100_000, (), ()) for n, (a, b) in enumerate(pairs)]
    return Transfers.of(sent)


def contention(pairs: list[tuple[int, int]], kind: FabricKind, domains: int, size: int) -> float:
    """How often the flows of all pairs would fill a link."""
    topology, sent = build_topology(fabric_spec(kind, domains, size)), at_once(pairs)
    return profile(sent, *healthy_network(sent, topology), topology).contention


@given(KINDS, st.integers(2, 9))
def test_an_incast_fills_a_link_once_for_each_source(kind: FabricKind, domains: int) -> None:
    pairs = [(source, 0) for source in range(1, domains)]
    assert contention(pairs, kind, domains, 1) == pytest.approx(len(pairs))


@given(KINDS, st.integers(2, 9), st.integers(1, 4))
def test_a_permutation_along_rails_contends_for_nothing(
    kind: FabricKind, domains: int, size: int
) -> None:
    gpus = domains * size
    pairs = [(rank, (rank + size) % gpus) for rank in range(gpus)]
    assert contention(pairs, kind, domains, size) == pytest.approx(1.0)


@given(KINDS, SHAPES)
def test_exchanges_that_follow_one_another_do_not_contend(
    kind: FabricKind, shape: tuple[int, int]
) -> None:
    topology = build_topology(fabric_spec(kind, *shape))
    sent = SizedCollective(Collective.ALL_TO_ALL, "pairwise", shape, 1e6).transfers()
    found = profile(sent, *healthy_network(sent, topology), topology)
    assert not found.is_contended


def in_turns(rank: int, peers: Iterable[int], shape: tuple[int, int]) -> list[int]:
    """The peers of a rank, in their turns."""
    return sorted(peers, key=partial(turn, rank, JobGrid(*shape)))


@given(SHAPES, st.data())
def test_no_two_ranks_have_the_same_peer_in_a_turn(
    shape: tuple[int, int], data: st.DataObject
) -> None:
    ranks = range(shape[0] * shape[1])
    turns = {rank: in_turns(rank, ranks, shape) for rank in ranks}
    number = data.draw(st.sampled_from(ranks))
    assert {peers[number] for peers in turns.values()} == set(ranks)
    assert all(peers[0] == rank for rank, peers in turns.items())


@given(SHAPES, PACKETS)
def test_a_program_sends_in_turns_with_buffers_of_the_grain(
    shape: tuple[int, int], packets: int
) -> None:
    spec = replace(fabric_spec(FabricKind.RAIL_ONLY, *shape), grain_packets=packets)
    pairs = [(a, b) for a in range(spec.gpus) for b in range(spec.gpus) if a != b]
    addresses = {(*pair, 0): "10.0.0.1" for pair in pairs}
    built = programs_of(range(spec.gpus), at_once(pairs), addresses, spec)
    for rank, program in built.items():
        peers = [send[1] for send in program["sends"]]
        assert peers == in_turns(rank, peers, shape)
        assert {size for _, size in program["peers"].values()} <= {send_buffer_bytes(packets)}


@given(PACKETS)
def test_the_kernel_doubles_a_send_buffer(packets: int) -> None:
    granted = 2 * send_buffer_bytes(packets)
    assert granted == buffered_segments(packets) * packets * MTU_BYTES


@given(PACKETS, st.integers(0, 10**6))
def test_what_is_under_way_leaves_room_for_two_segments(packets: int, size: int) -> None:
    asked = send_buffer_bytes(packets, size)
    assert asked >= max(send_buffer_bytes(packets), size + segment_bytes(packets))
    assert send_buffer_bytes(packets, 0) == send_buffer_bytes(packets)


@pytest.mark.parametrize(("kind", "links"), [("rail-only", 2), ("rail-optimized", 4)])
def test_a_connection_fills_a_link_for_the_round_trip_of_its_own_network(
    kind: str, links: int
) -> None:
    shape = ["fabric.domains=2", "fabric.domain_size=2", "fabric.bandwidth_scale=20000"]
    delays = ["fabric.nic_delay=0.004", "fabric.hb_delay=0.001", "fabric.grain=8"]
    (spec,) = load(LIBRARY / "quickstart.yaml", [*shape, *delays, f"fabric.kinds={kind}"]).fabrics
    addresses = {(0, 1, 0): "172.16.0.2", (0, 2, 0): "10.0.0.2"}
    peers = programs_of(range(4), at_once([(0, 1), (0, 2)]), addresses, spec)[0]["peers"]
    under_way = {peer: size - send_buffer_bytes(8) for peer, (_, size) in peers.items()}
    round_trips_s = 2 * 2 * 0.001, 2 * (2 * 2 * 0.001 + links * 0.004)
    rates_bps = spec.emulated_hb_bps, spec.emulated_nic_bps
    for size, trip_s, rate_bps in zip(under_way.values(), round_trips_s, rates_bps, strict=True):
        assert size == pytest.approx(trip_s * rate_bps / 8, abs=1)


@given(st.floats(1e5, 1e10), PACKETS, PACKETS)
def test_finer_segments_are_more_packets(rate_bps: float, one: int, other: int) -> None:
    fine, coarse = sorted((one, other))
    assert packet_bytes(rate_bps, fine) <= packet_bytes(rate_bps, coarse)


@given(st.integers(100_000, 10**9), st.integers(1, 64), st.integers(2, 512), PACKETS)
def test_a_finer_grain_waits_for_the_buffers_of_all_gpus(
    rate_bps: int, domains: int, gpus: int, packets: int
) -> None:
    coarse_s = least_timeout_s(rate_bps, domains, gpus)
    assert coarse_s <= least_timeout_s(rate_bps, domains, gpus, packets) <= 120


def matrix(folder: Path, *settings: str) -> Scenario:
    """A scenario of a byte matrix, all of whose messages are sent at once."""
    rows = [" ".join("0" if a == b else "400000" for b in range(8)) for a in range(8)]
    (folder / "uniform.matrix").write_text("\n".join(rows))
    (folder / "matrix.yaml").write_text(
        "fabric: {domains: 2, domain_size: 4, platform: dgx-h100, bandwidth_scale: auto}\n"
        "workloads:\n- {trace: uniform.matrix, size_scale: 1}\n"
    )
    return load(folder / "matrix.yaml", settings, TWO_CORES)


def test_traffic_at_once_gets_a_fine_grain_and_rates_that_the_machine_carries(
    tmp_path: Path,
) -> None:
    scenario = matrix(tmp_path)
    assert {spec.grain_packets for spec in scenario.fabrics} == {FINE_PACKETS}
    assert "fill a link 4 times over" in scenario.chosen["grain"].why
    scale = scenario.fabrics[0].bandwidth_scale
    tasks = [real_task(case.task, scenario.spec_of(case.kind)) for case in scenario.cases]
    needs = [peak(task, TWO_CORES, scale) for task in tasks]
    assert all(need.is_within_budget for need in needs)


@pytest.mark.parametrize("scale", [2_000, 5_000, 8_000, 10_000])
def test_a_rate_that_is_given_has_the_finest_grain_that_the_machine_carries(
    tmp_path: Path, scale: int
) -> None:
    scenario = matrix(tmp_path, f"fabric.bandwidth_scale={scale}", "allow_overload=true")
    fabrics = [(case.task, scenario.spec_of(case.kind)) for case in scenario.cases]

    def is_carried(grain: int) -> bool:
        tasks = [real_task(task, replace(spec, grain_packets=grain)) for task, spec in fabrics]
        return all(peak(task, TWO_CORES, scale).is_within_budget for task in tasks)

    (packets,) = {spec.grain_packets for _, spec in fabrics}
    assert packets == min(filter(is_carried, GRAINS), default=SEGMENT_PACKETS)
    too_fine = "; finer ones are too many at this bandwidth_scale"
    assert scenario.chosen["grain"].why.endswith(too_fine) == (packets != FINE_PACKETS)


def test_a_grain_that_is_given_is_used(tmp_path: Path) -> None:
    scenario = matrix(tmp_path, "fabric.grain=3")
    assert scenario.fabrics[0].grain_packets == 3
    assert "grain" not in scenario.chosen


DIRECT = (
    "workloads.0.collective=all-to-all",
    "workloads.0.algorithm=direct",
    "workloads.0.size_scale=8",
    "fabric.kinds=[rail-only]",
)


def grain_of(name: str, *settings: str) -> int:
    """The grain that is chosen for an experiment of the library."""
    return load(LIBRARY / f"{name}.yaml", settings).fabrics[0].grain_packets


def test_a_fault_that_lets_flows_fall_out_of_step_asks_for_a_fine_grain() -> None:
    scenario = load(LIBRARY / "nic-link-down.yaml", DIRECT)
    assert scenario.fabrics[0].grain_packets == FINE_PACKETS
    assert "uneven shares of links would change a time" in scenario.chosen["grain"].why


def test_an_all_reduce_keeps_large_segments_on_a_degraded_fabric() -> None:
    assert grain_of("nic-link-down", "fabric.kinds=[rail-only]") == SEGMENT_PACKETS


def test_a_job_that_moves_keeps_large_segments() -> None:
    assert grain_of("gpu-lost-spare", *DIRECT) == SEGMENT_PACKETS


def test_a_fault_of_an_iteration_that_also_computes_asks_for_a_fine_grain() -> None:
    fault = "faults=[{what: nic-link, where: [d0g0--rail0]}]"
    rail_only = "fabric.kinds=rail-only", "fabric.grain=auto"
    assert grain_of("training-iteration", fault, *rail_only) == FINE_PACKETS


TWO_PORTS = "fabric.nic_ports=2", "faults=[]"


@pytest.mark.parametrize(
    ("workload", "keys", "packets"),
    [
        (DIRECT, ("fabric.spread=hash",), FINE_PACKETS),
        (DIRECT, ("fabric.spread=hash", "fabric.transport=roce"), SEGMENT_PACKETS),
        (DIRECT, (), SEGMENT_PACKETS),
        # Along the rails, a GPU sends to one other GPU alone, so by one port.
        (DIRECT[3:], ("fabric.spread=hash",), SEGMENT_PACKETS),
    ],
)
def test_transfers_that_change_ports_get_a_fine_grain(
    workload: tuple[str, ...], keys: tuple[str, ...], packets: int
) -> None:
    assert grain_of("nic-link-down", *workload, *TWO_PORTS, *keys) == packets


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        # A transfer of 250 kB, of 1 MB on the platform.
        ([], "a grain is 11.6 kB, 46.3 kB of the platform's data, 1/22 of a transfer."),
        (["fabric.grain=45"], "a grain is 65.2 kB, 261 kB of the platform's data, 1/4 of a"),
        (["fabric.transport=roce"], "a grain is 131 kB, 524 kB of the platform's data, 1/2 of"),
        (["fabric.domains=64"], ""),
    ],
)
def test_where_flows_contend_the_grain_is_told(changes: list[str], told: str) -> None:
    scenario = load(LIBRARY / "contention.yaml", ["fabric.kinds=rail-only", *changes])
    said = [note.partition(": ")[2] for note in notes(scenario) if "/incast.matrix: a gr" in note]
    assert len(said) == bool(told)
    assert all(map(str.startswith, said, [told]))
