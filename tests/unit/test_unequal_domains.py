"""Unequal domains and shared NICs: who is there, who serves them, and at what price."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from commands.app import app
from commands.check import described
from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.job_grid import JobGrid, Slot
from model.fabric.spec import COMPARED, FabricKind
from model.fabric.transport import Transport
from model.job.communicators import Communicator, communicators
from model.job.concurrent_jobs import Partition
from model.prediction.fluid import lower_bound_s, predict
from model.prediction.network import healthy_network
from model.prediction.platform_time import FRAMINGS
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import NONE
from model.workload.transfers.proof import ScheduleError
from scenarios.load import load
from scenarios.planning.on_paper import work_on_paper
from tests.unit.fabrics import spec, with_hb_leaves
from traffic_gen.traces.rank_placement import PlacementRule, placed
from traffic_gen.workloads.algorithms.all_to_all import Preset, Skew
from traffic_gen.workloads.algorithms.builder import Builder
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS, Named
from traffic_gen.workloads.algorithms.reductions import rail_rings, whole_ring
from traffic_gen.workloads.jobs import Jobs
from traffic_gen.workloads.sized_collective import SizedCollective

SERVES_ALL = {"direct", "pairwise", "ring", "chain"}
SERVES_SHARED_RAILS = {"rings", "double-binary-tree"}
BARE = FRAMINGS["none"](4096)


@st.composite
def unequal_grids(draw: st.DrawFn) -> JobGrid:
    """Grids from which GPUs are missing: no domain is empty, and their rails differ.

    GPUs may share NICs.
    """
    domains, size = draw(st.integers(2, 5)), draw(st.integers(2, 6))
    shared = draw(st.sampled_from([n for n in (1, 2, 3) if size % n == 0]))
    slots = JobGrid(domains, size).slots
    missing = draw(st.lists(st.sampled_from(slots), min_size=1, max_size=5, unique=True))
    grid = JobGrid(domains, size, tuple(sorted(missing)), shared)
    rails = {tuple(grid.places[1, grid.places[0] == domain]) for domain in range(domains)}
    assume(min(grid.sizes) and len(rails) > 1)
    return grid


def sized(named: Named, grid: JobGrid, size: float) -> SizedCollective:
    """The collective on a grid."""
    shared = grid.gpus_per_nic
    return SizedCollective(*named, grid.shape, size, missing=grid.missing, gpus_per_nic=shared)


@given(unequal_grids())
def test_ranks_number_the_gpus_that_are_there(grid: JobGrid) -> None:
    fabric = replace(spec(FabricKind.RAIL_ONLY, *grid.shape), missing=grid.missing)
    gpus = build_topology(fabric).job_gpus
    assert [(gpu.domain, gpu.rail) for gpu in gpus] == list(grid.slots)
    assert len(gpus) == grid.gpus == fabric.gpus == sum(grid.sizes)


@given(unequal_grids(), st.sampled_from(sorted(ALGORITHMS)), st.integers(1, 100_000))
def test_a_collective_is_proved_on_what_is_there_or_refused(
    grid: JobGrid, named: Named, size: int
) -> None:
    task = sized(named, grid, size)
    if not task.is_accepted:
        shared = named[1] in SERVES_SHARED_RAILS and grid.shared_rails
        assert named[1] not in SERVES_ALL
        assert not shared
        return
    schedule = task.steps()  # raises `ScheduleError` if it is wrong
    assert schedule.gpus == schedule.members == grid.gpus
    assert named[1] in SERVES_ALL | SERVES_SHARED_RAILS


@given(unequal_grids(), st.booleans())
def test_all_partners_are_partners_at_once(grid: JobGrid, among_domains: bool) -> None:
    communicator = "domains" if among_domains and min(grid.sizes) > 1 else "all"
    sent = replace(sized(DIRECT, grid, 1e6), peers="all", communicator=communicator).transfers()
    assert not len(sent.after.values)
    assert (sent.ready == NONE).all()


@given(unequal_grids())
def test_each_nic_on_a_shared_rail_serves_one_ring_each_way(grid: JobGrid) -> None:
    build = Builder(grid, np.empty(0, np.int64))
    if len(grid.shared_rails) < 3:
        return
    rings = rail_rings(build)
    assert rings.shape == (len(grid.shared_rails), grid.gpus)
    assert (np.sort(rings, axis=1) == build.ranks).all()
    domain, nic = grid.nics
    to = np.roll(rings, -1, axis=1)
    crosses = domain[rings] != domain[to]
    assert (nic[rings] == nic[to])[crosses].all()
    for ends in (rings[crosses], to[crosses]):
        assert len(np.unique(ends)) == len(ends) == len(rings) * grid.domains


def test_domains_without_a_common_rail_have_one_ring_in_the_order_of_ranks() -> None:
    grid = JobGrid(2, 2, ((0, 0), (1, 1)))
    build = Builder(grid, np.empty(0, np.int64))
    assert whole_ring(build).tolist() == [[0, 1]]
    with pytest.raises(ScheduleError, match="no rail has a NIC in every domain"):
        rail_rings(build)


@given(unequal_grids())
def test_a_ring_crosses_rails_where_two_or_fewer_are_in_common(grid: JobGrid) -> None:
    common = len(grid.shared_rails)
    assume(common)
    ring = whole_ring(Builder(grid, np.empty(0, np.int64)))[0]
    (domain, to_domain), (nic, to_nic) = grid.nics[:, np.stack([ring, np.roll(ring, -1)])]
    crossed = int(((domain != to_domain) & (nic != to_nic)).sum())
    if common == 1:
        assert crossed <= sum(size > 1 for size in grid.sizes)
    else:
        assert crossed == (common == 2 and grid.domains % 2 == 1)


@pytest.mark.parametrize(
    ("asked", "ranks"),
    [
        ("all", [[0, 1, 2, 3, 4]]),
        ("rails", [[0, 2, 4], [1, 3]]),
        ("domains", [[0, 1], [2, 3]]),
        ("d0", [[0, 1]]),
        ("rail1", [[1, 3]]),
        ("strided-2", [[0, 2, 4], [1, 3]]),
        (["d2g0", "d1g1"], [[4, 3]]),
    ],
)
def test_communicators_have_what_is_there(asked: str, ranks: list[list[int]]) -> None:
    grid = JobGrid(3, 2, ((2, 1),))
    assert [list(found.ranks) for found in communicators(asked, grid)] == ranks


def test_a_communicator_that_names_a_missing_gpu_is_told() -> None:
    with pytest.raises(ValueError, match="'d2g1' is missing"):
        communicators(["d0g0", "d2g1"], JobGrid(3, 2, ((2, 1),)))


@given(unequal_grids(), st.sampled_from(COMPARED))
def test_a_prediction_is_never_below_the_busiest_link(grid: JobGrid, kind: FabricKind) -> None:
    nics = grid.size // grid.gpus_per_nic
    fabric = spec(kind, *grid.shape, spines=grid.domains, nics=nics)
    topology = build_topology(replace(fabric, missing=grid.missing))
    assume(kind is FabricKind.RAIL_OPTIMIZED or grid.shared_rails)
    schedule = sized(DIRECT, grid, 1e6).steps()
    pair, net = healthy_network(schedule.transfers, topology)
    modeled = predict(schedule, [Epoch(topology)], dict.fromkeys(net.classes, 0.0))
    assert modeled.completion_s >= lower_bound_s(schedule.transfers, pair, net)


DIRECT = next(named for named in ALGORITHMS if named[1] == "direct")


@given(unequal_grids())
def test_a_trace_fills_rails_or_domains_of_what_is_there(grid: JobGrid) -> None:
    by_rail = placed(PlacementRule.RAILS, grid.gpus, grid)
    _, rail = grid.places[:, by_rail]
    assert sorted(by_rail.tolist()) == list(range(grid.gpus))
    assert (np.diff(rail) >= 0).all()


@given(unequal_grids(), st.data())
def test_a_partition_has_the_gpus_that_are_there(grid: JobGrid, data: st.DataObject) -> None:
    firsts = [data.draw(st.integers(0, most - 1)) for most in grid.shape]
    lasts = [data.draw(st.integers(a, b - 1)) for a, b in zip(firsts, grid.shape, strict=True)]
    partition = Partition(*zip(firsts, lasts, strict=True))
    ranks, part = partition.ranks(grid), partition.of(grid)
    corner = np.array([[partition.domains[0]], [partition.rails[0]]])
    assert (grid.places[:, list(ranks)] == part.places + corner).all()


HEAD = "fabric: {{domains: 3, domain_size: 2, missing: {}, platform: dgx-h100{}}}\n"
RING = "workloads: [{collective: all-reduce, algorithm: ring, size: 1 MB, size_scale: 10}]\n"


@pytest.mark.parametrize(
    ("missing", "more", "said"),
    [
        ("[d9g0]", "", "fabric.missing: unknown GPU 'd9g0' of the job"),
        ("[d0g0, d0g0]", "", "fabric.missing: duplicate GPU 'd0g0'"),
        ("[d1g0, d1g1]", "", "fabric.missing: leaves no GPU in domain d1"),
        ("[d1g1]", ", spare_gpus: 1", "fabric.missing: cannot be combined with spare_gpus"),
        ("[d1g1]", ", hb_leaves: 2", "leaves no GPU in domain d1 below its leaf HB switch 1"),
        ("[d0g0, d1g1, d2g1]", "", "d0g1 has no path to d1g0"),
        ("[d1g1]", ", domain_sizes: [2, 1]", "domain_sizes: cannot be combined with domains"),
    ],
)
def test_missing_gpus_that_make_no_sense_are_refused(
    tmp_path: Path, missing: str, more: str, said: str
) -> None:
    assert said in refused(tmp_path, HEAD.format(missing, more) + RING)


def refused(folder: Path, text: str) -> str:
    """The message for a file of this text."""
    path = folder / "x.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load(path, [])
    return str(caught.value)


SIZES = "fabric: {{domain_sizes: {}, platform: dgx-h100, bandwidth_scale: 20000}}\n"


def test_sizes_of_domains_stand_for_missing_gpus(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(SIZES.format([3, 1, 2]) + RING)
    fabric = load(path, []).fabrics[0]
    assert fabric.job_grid == JobGrid(3, 3, ((1, 1), (1, 2), (2, 2)))


@pytest.mark.parametrize(
    ("sizes", "work", "said"),
    [
        ("[1]", RING, "at least 2 GPUs"),
        ("[2, 0]", RING, "domain_sizes"),
        ("'2, 1'", RING, "x.yaml:1 fabric.domain_sizes: must be a list, got '2, 1'"),
        ("[2.0]", RING, "x.yaml:1 fabric.domain_sizes.0: must be a whole number, got 2.0"),
        ("[2, 1]", "workloads: [{iteration: gpt-146b}]\n", "needs equally many GPUs"),
        ("[2, 1]", RING.replace("ring", "hierarchical"), "another algorithm: ring, rings, double"),
        (
            "[2, 1]",
            RING + "faults: [{what: nic-link, where: d1g1--rail1}]\n",
            "has no nic-link 'd1g1--rail1'",
        ),
        ("[200, 200, 1]", RING, "supports at most 256 GPUs, got 401"),
    ],
)
def test_what_unequal_domains_cannot_serve_is_said(
    tmp_path: Path, sizes: str, work: str, said: str
) -> None:
    told = refused(tmp_path, SIZES.format(sizes) + work)
    assert said in told
    assert "is required" not in told


def test_nccl_chooses_among_what_serves_unequal_domains(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(SIZES.format([4, 4, 3, 4]) + RING.replace("ring", "nccl"))
    task = load(path, ["allow_overload=true"]).cases[0].task
    assert task.algorithm in SERVES_SHARED_RAILS
    assert "nvls" not in task.choice.lower()


def test_nccl_chooses_by_the_fewest_channels_of_a_domain(tmp_path: Path) -> None:
    """For domains of eight GPUs each, it chooses trees."""
    path = tmp_path / "x.yaml"
    work = RING.replace("ring", "nccl").replace("1 MB", "4 MiB")
    path.write_text(SIZES.format([8, 8, 8, 1]) + work)
    assert load(path, []).cases[0].task.algorithm == "rings"
    path.write_text(SIZES.format([8, 8, 8, 8]) + work)
    assert load(path, []).cases[0].task.algorithm == "double-binary-tree"


FOUR_NICS = JobGrid(2, 8, gpus_per_nic=2)


def test_gpus_that_share_a_nic_share_its_rail() -> None:
    by_nic = Communicator((0, 9), JobGrid(2, 1))
    assert by_nic.is_rail_isolated(FOUR_NICS)
    assert not by_nic.is_rail_isolated(JobGrid(2, 8))
    assert not Communicator((0, 10), JobGrid(2, 1)).is_rail_isolated(FOUR_NICS)


def test_rings_cross_domains_by_the_gpus_that_have_the_links() -> None:
    build = Builder(FOUR_NICS, np.empty(0, np.int64))
    rings = rail_rings(build)
    domain, rank = FOUR_NICS.places
    crosses = domain[rings] != domain[np.roll(rings, -1, axis=1)]
    assert len(rings) == 4
    assert sorted(rings[crosses].tolist()) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert (rank[rings[crosses]] % 2 == 0).all()


@pytest.mark.parametrize(
    ("asked", "gpus_per_nic"),
    [("all", 2), ("d0", 2), ("rail3", 1), (["d0g2", "d0g3", "d1g2", "d1g3"], 2)],
)
def test_gpus_of_a_communicator_share_nics_as_in_the_job(
    asked: str | list[str], gpus_per_nic: int
) -> None:
    (found,) = communicators(asked, FOUR_NICS)
    assert found.grid.gpus_per_nic == gpus_per_nic


def test_gpus_that_share_nics_unlike_neighbours_count_with_one_each() -> None:
    (across,) = communicators(["d0g1", "d0g2", "d1g1", "d1g2"], FOUR_NICS)
    assert across.grid == JobGrid(2, 2)


@given(st.permutations(range(8)), st.integers(2, 8), st.sampled_from(["rings", "double-binary"]))
def test_gpus_that_share_nics_unevenly_use_a_channel_a_nic(
    order: list[int], count: int, algorithm: str
) -> None:
    rails = order[:count]
    asked = [f"d{domain}g{rail}" for domain in (0, 1) for rail in rails]
    (found,) = communicators(asked, FOUR_NICS)
    assert len(found.grid.shared_rails) == len({rail // 2 for rail in rails})
    domain, nic = found.grid.nics
    used = FOUR_NICS.nics[:, list(found.ranks)]
    assert (domain == used[0]).all()
    assert len(np.unique(np.stack([nic, used[1]]), axis=1).T) == len(set(used[1].tolist()))
    named = next(one for one in ALGORITHMS if one[1].startswith(algorithm))
    task = SizedCollective(*named, (2, 8), 1e6, communicator=tuple(asked), gpus_per_nic=2)
    task.steps()  # raises `ScheduleError` if it is wrong


def test_jobs_of_unequal_domains_have_the_price_of_shared_nics_alone(tmp_path: Path) -> None:
    ring = "collective: all-reduce, algorithm: ring, size: 9 MB"
    (tmp_path / "x.yaml").write_text(
        "fabric: {domain_sizes: [4, 3], nics_per_domain: 2, platform: dgx-h100}\nworkloads: "
        f"[jobs: [{{name: a, rails: 0-1, {ring}}}, {{name: b, rails: 2-3, {ring}}}]]\n"
    )
    scenario = load(tmp_path / "x.yaml", ["fabric.kinds=rail-only"])
    for case in scenario.cases:
        price = case.task.price(scenario.fabrics[0])
        assert "2 a NIC: as long as on 7 GPUs in domains of 4, 3 with a NIC each; " in price


@pytest.mark.parametrize(
    ("rails", "nics"),
    [("0-2", [0, 0, 1]), ("1-3", [0, 1, 1]), ("1-2", [0, 1]), ("0-3", [0, 0, 1, 1])],
)
def test_gpus_of_a_job_share_nics_as_in_the_fabric(
    tmp_path: Path, rails: str, nics: list[int]
) -> None:
    ring = "domains: 0-1, collective: all-reduce, algorithm: rings, size: 1 MB"
    path = tmp_path / "x.yaml"
    path.write_text(
        "fabric: {domains: 3, domain_size: 4, nics_per_domain: 2, platform: dgx-h100}\nworkloads: "
        f"[jobs: [{{name: a, rails: {rails}, {ring}}}, {{name: b, {ring.replace('0-1', '2')}}}]]\n"
    )
    task = load(path, ["fabric.kinds=rail-only"]).cases[0].task
    assert isinstance(task, Jobs)
    own = task.jobs[0].task
    assert isinstance(own, SizedCollective)
    assert own.job_grid.nics[1].tolist() == nics * 2


@pytest.mark.parametrize("algorithm", ["rings", "double-binary-tree"])
@pytest.mark.parametrize("gpu", [(1, 0), (1, 3)])
def test_a_nic_whose_first_gpu_is_missing_still_sends(gpu: Slot, algorithm: str) -> None:
    whole = JobGrid(4, 4, gpus_per_nic=2)
    lacking = replace(whole, missing=(gpu,))
    assert len(lacking.shared_rails) == 2
    fabric = spec(FabricKind.RAIL_ONLY, 4, 4, nics=2)
    named = Collective.ALL_REDUCE, algorithm
    took_s = [
        sized(named, grid, 1e8).full_s(replace(fabric, missing=grid.missing))
        for grid in (lacking, whole)
    ]
    assert took_s[0] == pytest.approx(took_s[1], rel=0.02)


@pytest.mark.parametrize("kind", COMPARED)
def test_the_price_of_shared_nics_names_pxn(kind: FabricKind) -> None:
    fabric = spec(kind, 2, 8, spines=2)
    nic = replace(fabric.nic, per_domain=4)
    fabric = replace(fabric, nic=nic, bandwidth_scale=1.0)
    rings, direct = (
        SizedCollective(*named, (2, 8), 1e8, gpus_per_nic=2)
        for named in ((Collective.ALL_REDUCE, "rings"), DIRECT)
    )
    assert "2 a NIC: 2 times as long as on 2 x 8 GPUs with a NIC each; 0% of pairs" in rings.price(
        fabric
    )
    assert "75% of pairs use a peer's NIC, over HB links (PXN)" in direct.price(fabric)


SHARED = "fabric: {domains: 2, domain_size: 4, nics_per_domain: 2, platform: dgx-h100}\n"
WORK = "collective: all-to-all, algorithm: direct, size: 9 MB"


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (f"{{jobs: [{{name: a, rails: 0-1, {WORK}}}, {{name: b, rails: 2-3, {WORK}}}]}}", [75] * 3),
        (f"{{{WORK}, communicator: rails}}", [50]),
        (f"{{{WORK}, communicator: [d0g1, d1g1]}}", [100]),
    ],
)
def test_jobs_and_communicators_have_the_price_of_shared_nics(
    tmp_path: Path, work: str, told: list[int]
) -> None:
    (tmp_path / "x.yaml").write_text(f"{SHARED}workloads: [{work}]\n")
    scenario = load(tmp_path / "x.yaml", ["fabric.kinds=rail-only"])
    prices = [case.task.price(scenario.fabrics[0]) for case in scenario.cases]
    longer = "" if told == [100] else "2 times "
    assert prices == [
        f"2 x 4 GPUs, 2 a NIC: {longer}as long as on 2 x 4 GPUs with a NIC each; "
        f"{share}% of pairs use a peer's NIC, over HB links (PXN)"
        for share in told
    ]


def test_the_price_of_many_gpus_that_share_nics_is_that_of_the_nics() -> None:
    """The flows are too many to be followed as they share links."""
    fabric = spec(FabricKind.RAIL_ONLY, 16, 8)
    fabric = replace(fabric, nic=replace(fabric.nic, per_domain=4), bandwidth_scale=1.0)
    direct = SizedCollective(*DIRECT, (16, 8), 1e8, gpus_per_nic=2)
    assert "2 times as long as on 16 x 8 GPUs with a NIC each; 75% of pairs" in direct.price(fabric)


@given(
    kind=st.sampled_from(COMPARED),
    grid=st.sampled_from([JobGrid(3, 4, ((1, 3),)), JobGrid(2, 4, gpus_per_nic=2)]),
    algorithm=st.sampled_from(["direct", "pairwise"]),
    oversubscription=st.sampled_from([1.0, 2.0, 4.0]),
    hb_leaves=st.sampled_from([1, 2]),
    transport=st.sampled_from(Transport),
)
def test_the_price_is_that_of_times_on_paper(
    kind: FabricKind,
    grid: JobGrid,
    algorithm: str,
    oversubscription: float,
    hb_leaves: int,
    transport: Transport,
) -> None:
    whole = JobGrid(*grid.shape)
    fabric = with_hb_leaves(spec(kind, *grid.shape, spines=grid.domains), hb_leaves, 4.0)
    nic = replace(fabric.nic, oversubscription=oversubscription)
    fabric = replace(fabric, nic=nic, bandwidth_scale=1.0, transport=transport)
    shared = replace(nic, per_domain=grid.size // grid.gpus_per_nic)
    lacking = replace(fabric, nic=shared, missing=grid.missing)
    slow_s, whole_s = (
        work_on_paper("", sized((Collective.ALL_TO_ALL, algorithm), on, 1e8), one, BARE, 0.0)
        for on, one in ((grid, lacking), (whole, fabric))
    )
    price = sized((Collective.ALL_TO_ALL, algorithm), grid, 1e8).price(lacking)
    told = float(price.split(": ")[1].split()[0])
    assert told == pytest.approx(slow_s.completion_s / whole_s.completion_s, rel=0.01)


def test_too_many_gpus_to_follow_have_no_price() -> None:
    for domains, told in ((32, "2 times as long"), (33, "")):
        fabric = spec(FabricKind.RAIL_OPTIMIZED, domains, 8, nics=4)
        direct = SizedCollective(*DIRECT, (domains, 8), 1e8, gpus_per_nic=2)
        assert told in (price := direct.price(fabric))
        assert bool(told) == bool(price)


def test_a_matrix_is_not_followed_on_whole_domains_of_too_many_gpus() -> None:
    grid = JobGrid(3, 100, tuple((domain, gpu) for domain in (1, 2) for gpu in range(2, 100)))
    fabric = replace(spec(FabricKind.RAIL_ONLY, *grid.shape), missing=grid.missing)
    skewed = replace(sized(DIRECT, grid, 1e6), matrix=Skew(Preset.HOT_RANK))
    assert "as long as" not in skewed.price(replace(fabric, bandwidth_scale=1.0))


def test_a_matrix_of_bytes_has_no_price_against_gpus_without_rows(tmp_path: Path) -> None:
    rows = [[0 if source == to else 1_000_000 for to in range(5)] for source in range(5)]
    work = f"workloads: [{{collective: all-to-all, algorithm: direct, matrix: {rows}}}]\n"
    (tmp_path / "x.yaml").write_text(SIZES.format([2, 2, 1]) + work)
    scenario = load(tmp_path / "x.yaml", [])
    prices = {case.task.price(scenario.spec_of(case.kind)) for case in scenario.cases}
    assert prices == {"5 GPUs in domains of 2, 2, 1: 1 of 2 rails are in all of them"}


def test_gpus_with_several_nics_keep_them_in_the_price() -> None:
    fabric = replace(spec(FabricKind.RAIL_ONLY, 3, 2, nics=4), missing=((1, 1),))
    took = SizedCollective(*DIRECT, (3, 2), 1e8, missing=((1, 1),))
    one_nic = replace(fabric, nic=replace(fabric.nic, per_domain=None))
    several, one = (took.price(replace(some, bandwidth_scale=1.0)) for some in (fabric, one_nic))
    assert several == one


def test_paper_counts_the_gpus_that_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = RING.replace("size_scale: 10", "communicator: domains")
    (tmp_path / "x.yaml").write_text(SIZES.format([3, 2]) + work)
    app(["predict", str(tmp_path / "x.yaml"), "--json"], standalone_mode=False)
    case = json.loads(capsys.readouterr().out)["cases"][0]
    assert (case["fabric"]["gpus"], case["fabric"]["missing"]) == (5, ["d1g2"])
    assert (case["gpus"], case["busbw"]) == (None, None)
    assert case["algbw"] > 0
    app(["predict", str(tmp_path / "x.yaml")], standalone_mode=False)
    assert "on 5 GPUs in HB domains of up to 3" in " ".join(capsys.readouterr().out.split())
    app(["predict", str(tmp_path / "x.yaml"), "--like", "nccl-tests"], standalone_mode=False)
    assert capsys.readouterr().out.startswith("# not predicted: rail-only/all-reduce/ring/domains")


def test_the_gpu_left_of_those_that_share_a_nic_has_its_link() -> None:
    fabric = spec(FabricKind.RAIL_ONLY, 2, 2)
    nic = replace(fabric.nic, per_domain=1)
    fabric = replace(fabric, nic=nic, missing=((1, 0),), bandwidth_scale=1.0)
    direct = SizedCollective(*DIRECT, (2, 2), 1e6, missing=((1, 0),), gpus_per_nic=2)
    # d1g1 holds the link of its domain: of the pairs with d0g0 and d0g1, the latter's are half.
    assert "50% of pairs use a peer's NIC" in direct.price(fabric)


def test_nics_whose_transfers_are_followed_have_a_limit(tmp_path: Path) -> None:
    head = "fabric: {domains: 200, domain_size: 8, nics_per_domain: 4, platform: dgx-h100}\n"
    assert "at most 1024 GPUs times their NIC ports, got 1600" in refused(tmp_path, head + RING)


def test_a_custom_fabric_has_no_price_against_links_that_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(
        "fabric: {domains: 2, domain_size: 2, nics_per_domain: 1, platform: dgx-h100,"
        ' bandwidth_scale: 20000, links: [{from: "d[0-1]g0", to: a}]}\n' + RING
    )
    scenario = load(tmp_path / "x.yaml", [])
    (price,) = (case.task.price(scenario.spec_of(case.kind)) for case in scenario.cases)
    assert price.startswith("2 x 2 GPUs, 2 a NIC: ")
    assert "as long as" not in price


def test_one_gpu_and_one_domain_are_singular(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(
        "fabric: {kinds: rail-only, domains: 3, domain_size: 1, platform: dgx-h100,"
        " bandwidth_scale: 20000}\n" + RING
    )
    assert next(described(load(tmp_path / "x.yaml", []))).startswith(
        "rail-only: 3 domains x 1 GPU,"
    )
