"""Communicators: their ranks and grids, schedules of several at once, and what crosses rails."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.job_grid import JobGrid
from model.fabric.shaping import wire_bytes
from model.fabric.spec import COMPARED, FabricKind
from model.job.communicators import Asked, Communicator, communicators, label
from model.prediction.closed_forms import Grid
from model.prediction.fluid import path_class, predict
from model.workload.schedule import Schedule
from model.workload.transfers.collective import Collective
from model.workload.transfers.proof import ScheduleError
from scenarios.library_files import scenario_file
from scenarios.load import load
from scenarios.planning.plan import estimate, plan, rail_crossings, real_task
from tests.unit.fabrics import spec, transfer_paths
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS, Named
from traffic_gen.workloads.sized_collective import SizedCollective

NAMED = st.sampled_from(sorted(ALGORITHMS))
LARGE = 40_000_000


@pytest.mark.parametrize(
    ("asked", "ranks"),
    [
        ("all", [[0, 1, 2, 3, 4, 5]]),
        ("rails", [[0, 3], [1, 4], [2, 5]]),
        ("rail2", [[2, 5]]),
        ("domains", [[0, 1, 2], [3, 4, 5]]),
        ("d1", [[3, 4, 5]]),
        ("strided-2", [[0, 2, 4], [1, 3, 5]]),
        ("strided-3-from-1", [[1, 4]]),
        ("strided-5-from-0", [[0, 5]]),
        (["d1g2", "d0g0"], [[5, 0]]),
        (["d1g2", "d0g2"], [[5, 2]]),
        (["d1g2", "d1g0", "d0g2", "d0g0"], [[5, 3, 2, 0]]),
        (["d0g0", "d1g0", "d0g1", "d1g1"], [[0, 3, 1, 4]]),
        (["d0", "rail1", ["d0g0", "d1g1"]], [[0, 1, 2], [1, 4], [0, 4]]),
    ],
)
def test_words_and_lists_name_ranks_of_two_domains_of_three(
    asked: Asked, ranks: list[list[int]]
) -> None:
    assert [list(found.ranks) for found in communicators(asked, JobGrid(2, 3))] == ranks


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("rail3", "unknown communicator 'rail3'; known: rail0 to rail2"),
        ("d2", "unknown communicator 'd2'; known: d0 to d1"),
        ("rings", "unknown communicator 'rings'; known: all, rails, "),
        ("strided-7", "stride must be 1 to 3, of 6 GPUs, got 7"),
        ("strided-4", "stride must be 1 to 3, of 6 GPUs, got 4"),
        ("strided-6-from-0", "stride must be 1 to 5, of 6 GPUs, got 6"),
        ("d00", "unknown communicator 'd00'"),
        ("rail01", "unknown communicator 'rail01'"),
        (["d0g0", "d0g01"], "unknown GPU 'd0g01'; known: d0g0 to d1g2"),
        ("strided-2-from-2", "first rank must be below the stride, 2, got 2"),
        (["d0g0"], "must have two GPUs or more, got 1"),
        (["d1g2", "d0g0", "d1g2"], "duplicate GPU 'd1g2'"),
        (["d0g0", "d2g0"], "unknown GPU 'd2g0'; known: d0g0 to d1g2"),
    ],
)
def test_a_communicator_that_is_not_there_is_told(asked: Asked, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        communicators(asked, JobGrid(2, 3))


@pytest.mark.parametrize(
    ("fabric", "communicator"),
    [
        ("{domains: 4, domain_size: 1, platform: dgx-h100}", "domains"),
        ("{domains: 1, domain_size: 4, platform: dgx-h100}", "rails"),
        ("{domains: 300, domain_size: 1, nics_per_domain: 2, platform: dgx-h100}", "domains"),
    ],
)
@pytest.mark.parametrize("on_paper", [False, True])
def test_communicators_of_one_gpu_each_are_refused(
    fabric: str, communicator: str, on_paper: bool
) -> None:
    work = f"{{collective: all-reduce, algorithm: ring, size: 1 MB, communicator: {communicator}}}"
    overrides = [f"fabric={fabric}", f"workloads=[{work}]"]
    with pytest.raises(InputError, match="communicator: must have two GPUs or more"):
        load(scenario_file(Path("quickstart")), overrides, on_paper=on_paper)


def test_an_empty_list_asks_for_nothing() -> None:
    with pytest.raises(ValueError, match="two GPUs or more"):
        communicators([], JobGrid(2, 3))


@pytest.mark.parametrize(
    ("ranks", "shape"),
    [
        ((0, 2, 3, 5), (2, 2)),
        ((0, 4), (2, 1)),
        ((0, 1, 3), (3, 1)),
        ((4, 3), (1, 2)),
        ((5, 3, 2, 0), (2, 2)),
        ((0, 3, 2, 5), (4, 1)),
        ((0, 2, 5, 3), (4, 1)),
    ],
)
def test_ranks_that_are_a_grid_have_its_shape(
    ranks: tuple[int, ...], shape: tuple[int, int]
) -> None:
    names = [f"d{rank // 3}g{rank % 3}" for rank in ranks]
    assert communicators(names, JobGrid(2, 3))[0].grid.shape == shape


@given(st.sets(st.integers(0, 15), min_size=2), st.integers(1, 8))
def test_rail_isolation_is_reachability_by_own_rails_and_domains(
    ranks: set[int], size: int
) -> None:
    reached = {min(ranks)}
    while found := {
        rank
        for rank in ranks - reached
        for other in reached
        if rank // size == other // size or rank % size == other % size
    }:
        reached |= found
    grid = JobGrid(16, size)
    isolated = Communicator(tuple(ranks), JobGrid(len(ranks), 1)).is_rail_isolated(grid)
    assert isolated == (reached == ranks)


ASKED = st.one_of(
    st.sampled_from(
        ["rails", "domains", "rail1", "d1", "strided-2", "strided-3", "strided-4-from-1"]
    ),
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=2, max_size=6, unique=True
    ).map(lambda found: [f"d{d}g{g}" for d, g in found]),
    st.just(["rails", "domains"]),
)


@given(NAMED, ASKED, st.integers(1, 10_000))
def test_several_communicators_are_proved_each_with_its_own_data(
    named: Named, asked: Asked, size: int
) -> None:
    try:
        SizedCollective(*named, (4, 3), 1, communicator=asked).require_accepted()
    except ScheduleError:
        return
    groups = communicators(asked, JobGrid(4, 3))
    schedule = SizedCollective(*named, (4, 3), size, communicator=asked).steps()
    alone = [SizedCollective(*named, group.grid.shape, size).steps() for group in groups]
    assert schedule.gpus == 12
    sizes = {len(group.ranks) for group in groups}
    assert schedule.members == (None if len(sizes) > 1 else sizes.pop())
    assert schedule.size_bytes == alone[0].size_bytes
    assert len(schedule.transfers) == sum(len(one.transfers) for one in alone)
    first = 0
    for group, one in zip(groups, alone, strict=True):
        ranks, sent = np.array(group.ranks), schedule.transfers.objects[first:]
        for placed, transfer in zip(sent, one.transfers.objects, strict=False):
            assert placed.source == ranks[transfer.source]
            assert placed.destination == ranks[transfer.destination]
            assert placed.after == tuple(first + other for other in transfer.after)
        first += len(one.transfers)


def predicted_s(schedule: Schedule, kind: FabricKind, shape: tuple[int, int]) -> float:
    topology = build_topology(spec(kind, *shape, spines=shape[0]))
    paths = transfer_paths(schedule.transfers, Epoch(topology), topology.job_gpus)
    latency_s = {path_class(hops): 0.0 for hops in paths if hops}
    return predict(schedule, [Epoch(topology)], latency_s).completion_s


@pytest.mark.parametrize("kind", COMPARED)
@pytest.mark.parametrize("asked", ["rails", "rail0", "domains", "d1", "strided-2"])
@pytest.mark.parametrize("named", sorted(ALGORITHMS), ids="-".join)
def test_closed_forms_hold_for_communicators_that_are_grids(
    named: Named, asked: str, kind: FabricKind
) -> None:
    """Several at once take no longer than one, as they share no link."""
    groups = communicators(asked, JobGrid(4, 4))
    schedule = SizedCollective(*named, (4, 4), LARGE, communicator=asked).steps()
    fabric = spec(kind, 4, 4, spines=4)
    domains, size = groups[0].grid.shape
    rates = fabric.emulated_hb_bps / 8, fabric.emulated_nic_bps / 8
    grid = Grid(size, domains, *rates, ALGORITHMS[named].slices)
    wire = wire_bytes(1) * schedule.size_bytes
    closed_s = ALGORITHMS[named].closed_form.completion_s(kind, grid, wire)
    assert predicted_s(schedule, kind, (4, 4)) == pytest.approx(closed_s, rel=0.02)


@pytest.mark.parametrize("asked", ["rails", "domains"])
def test_communicators_of_a_larger_fabric_are_estimated_from_a_smaller_one(asked: str) -> None:
    named = Collective.ALL_REDUCE, "ring"
    large = SizedCollective(*named, (16, 16), 100_000_000, communicator=asked)
    found = estimate(real_task(large, spec(FabricKind.RAIL_ONLY, 16, 16)))
    schedule = large.steps()
    assert found.steps == 30
    assert sum(found.transfers) == pytest.approx(len(schedule.transfers))


def test_one_communicator_can_be_a_part_of_another() -> None:
    """Each GPU's NIC and HB link are used at once: as long as the longer one alone."""
    named = Collective.ALL_REDUCE, "ring"
    both, rails, domains = (
        predicted_s(
            SizedCollective(*named, (4, 4), LARGE, communicator=asked).steps(),
            FabricKind.RAIL_ONLY,
            (4, 4),
        )
        for asked in (["rails", "domains"], "rails", "domains")
    )
    assert both == pytest.approx(max(rails, domains))


@given(st.permutations([f"d{domain}g{rail}" for domain in range(2) for rail in range(3)]))
def test_a_list_keeps_its_root_and_its_order(names: list[str]) -> None:
    grid = JobGrid(2, 3)
    ranks = [grid.slots.index((int(name[1]), int(name[3]))) for name in names]
    for named in (Collective.BROADCAST, "ring"), (Collective.SEND_RECV, "chain"):
        sent = SizedCollective(*named, (2, 3), 600, communicator=names).steps().transfers
        assert set(sent.source) - set(sent.destination) == {ranks[0]}
    pairs = zip(sent.source.tolist(), sent.destination.tolist(), strict=True)
    assert set(pairs) == set(pairwise(ranks))


def test_short_lists_name_themselves() -> None:
    assert label(["d0g0", "d1g1"]) == "d0g0+d1g1"
    assert label([[f"d{number}g0" for number in range(20)]]) == "1-of-a-list"


SCENARIO = """\
fabric: {domains: 4, domain_size: 4, platform: dgx-h100, bandwidth_scale: 20000}
workloads:
  - {collective: all-reduce, algorithm: ring, size: 12 MB}
  - {collective: all-reduce, algorithm: ring, size: 12 MB, communicator: rails}
  - {collective: all-reduce, algorithm: ring, size: 12 MB, communicator: [d0g0, d1g1]}
  - {collective: all-to-all, algorithm: direct, size: 12 MB, communicator: strided-5}
  - {collective: all-to-all, algorithm: direct, size: 12 MB}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.yaml"
    path.write_text(SCENARIO)
    return path


def test_what_crosses_rails_is_told_before_a_run(file: Path) -> None:
    scenario = load(file)
    joined = "rails and HB domains do not connect its GPUs, other GPUs forward"
    pair, strided, direct = rail_crossings(scenario)
    assert pair == (
        "rail-only/all-reduce/ring/d0g0+d1g1: communicator d0g0+d1g1 crosses rails: "
        f"{joined} for them."
    )
    assert strided.startswith("rail-only/all-to-all/direct/strided-5: communicator strided-5 ")
    assert "crosses rails 5 times" in strided
    assert direct == (
        "rail-only/all-to-all/direct: 144 of 240 sending pairs of GPUs share neither rail nor HB "
        "domain: other GPUs forward for them."
    )
    assert all(planned.completion_s > 0 for planned in plan(scenario, None))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("communicator=rail4", "x.yaml:4 workloads.1.communicator: unknown communicator 'rail4'"),
        ("communicator=[d0g0]", "must have two GPUs or more"),
        ("communicator=[[d0g0, d7g0], rails]", "unknown GPU 'd7g0'"),
        ("communicator=7", "must be a word or a list of GPUs, got 7"),
    ],
)
def test_a_wrong_communicator_is_bad_input(file: Path, change: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        load(file, [f"workloads.1.{change}"])
    assert said.replace("x.yaml:4 ", "--set ") in str(caught.value)


def test_irregular_communicators_and_matrices_have_a_bound(file: Path) -> None:
    with pytest.raises(InputError, match="supports at most 256 GPUs, got 260"):
        load(file, ["fabric.domains=65"])


@pytest.mark.parametrize("algorithm", ["hierarchical", "hierarchical-pipelined", "rings", "ring"])
def test_an_algorithm_of_domains_needs_equal_parts_of_them(tmp_path: Path, algorithm: str) -> None:
    """Among other GPUs it would be a ring under another name."""
    path, fabric = tmp_path / "x.yaml", "domains: 2, domain_size: 3, platform: dgx-h100"
    work = f"collective: all-reduce, algorithm: {algorithm}, size: 4 MB"

    def check(gpus: str) -> None:
        path.write_text(f"fabric: {{{fabric}}}\nworkloads: [{{{work}, communicator: {gpus}}}]\n")
        load(path)

    check("[d0g0, d0g2, d1g0, d1g2]")
    if algorithm == "ring":
        check("[d0g0, d0g1, d1g0]")
    else:
        for gpus in ("[d0g0, d0g1, d1g0]", "[d0g0, d1g0, d0g1, d1g1]"):
            with pytest.raises(InputError, match=r"needs equally many GPUs.* it would be a ring"):
                check(gpus)
