"""All-to-alls with a matrix: what is asked, what is sent, and how a spreading one deals it out."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.job_grid import JobGrid, Shape
from model.fabric.spec import COMPARED, FabricKind
from model.fabric.topology import Topology
from model.prediction.fluid import path_class, predict
from model.workload.schedule import Schedule
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import Transfers
from model.workload.transfers.lanes import ELEMENT_BYTES
from scenarios.format.files import matrix_text
from scenarios.format.workloads.collective import CollectiveWorkload
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.planning.plan import plan
from tests.unit.fabrics import spec, transfer_paths
from tests.unit.traces import peak_below
from traffic_gen.traces.formats.byte_matrix import numbers_in
from traffic_gen.workloads.algorithms.all_to_all import (
    Given,
    Matrix,
    Preset,
    Skew,
    Spread,
    dealt_out_all_to_all,
    two_step_all_to_all,
)
from traffic_gen.workloads.algorithms.builder import Builder
from traffic_gen.workloads.algorithms.collectives import algorithms_of
from traffic_gen.workloads.sized_collective import SizedCollective

ALGORITHM = st.sampled_from(algorithms_of(Collective.ALL_TO_ALL))
SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 4)).filter(lambda shape: shape > (1, 1))
SKEWS = st.builds(Skew, st.sampled_from(Preset), st.integers(0, 9))


def scheduled(algorithm: str, shape: Shape, size: int, matrix: Matrix | None) -> Schedule:
    return SizedCollective(Collective.ALL_TO_ALL, algorithm, shape, size, matrix=matrix).steps()


@st.composite
def matrices(draw: st.DrawFn) -> tuple[Shape, Given]:
    """A grid of GPUs, and bytes for all of its pairs, of which many have none."""
    shape = draw(SHAPES)
    n = shape[0] * shape[1]
    numbers = st.one_of(st.just(0), st.integers(0, 100_000))
    row = st.lists(numbers, min_size=n, max_size=n).map(tuple)
    rows = draw(st.lists(row, min_size=n, max_size=n).map(tuple))
    return shape, Given((*rows[:-1], (n, *rows[-1][1:])))


@given(ALGORITHM, matrices())
def test_every_algorithm_delivers_any_matrix(algorithm: str, drawn: tuple[Shape, Given]) -> None:
    """The proof passes, and each GPU receives the bytes of its column, but for rounding."""
    shape, matrix = drawn
    schedule = scheduled(algorithm, shape, round(matrix.size_bytes), matrix)
    asked, n = np.zeros((len(matrix.rows),) * 2), len(matrix.rows)
    demand = schedule.demand
    chunks = demand.wanted.chunks
    sources = demand.holders.values[demand.holders.starts[chunks]]
    np.add.at(asked, (sources, demand.wanted.ranks), demand.chunk_bytes[chunks])
    rows, rounded = np.array(matrix.rows), n * 4 * ELEMENT_BYTES
    assert ((asked > 0) == (rows > 0)).all()
    assert (np.abs(asked - rows) <= rounded).all()


@example("two-step", (2, 2), Skew(Preset.HOT_EXPERT), 1_000_000)
@example("two-step", (4, 2), Skew(Preset.RAGGED_SOURCES), 1_000_000)
@given(ALGORITHM, SHAPES, SKEWS, st.integers(1, 1_000_000))
def test_no_transfer_has_more_than_the_largest(
    algorithm: str, shape: Shape, skew: Skew, size: int
) -> None:
    """A GPU that forwards sends the data of several pairs at once."""
    task = SizedCollective(Collective.ALL_TO_ALL, algorithm, shape, size, matrix=skew)
    rounded = task.job_grid.gpus * 4 * ELEMENT_BYTES
    assert task.transfers().size_bytes.max() <= task.largest_bytes + rounded


@given(ALGORITHM, SHAPES, SKEWS, st.integers(1, 1_000_000))
def test_every_algorithm_delivers_every_preset(
    algorithm: str, shape: Shape, skew: Skew, size: int
) -> None:
    schedule = scheduled(algorithm, shape, size, skew)
    assert schedule.variant == skew.name
    rounded = schedule.gpus * skew.phases * 4 * ELEMENT_BYTES
    assert size - 1 <= schedule.size_bytes <= size + rounded


@given(ALGORITHM, SHAPES, st.integers(1, 1_000_000))
def test_a_uniform_matrix_is_an_all_to_all_without_one(
    algorithm: str, shape: Shape, size: int
) -> None:
    uniform = scheduled(algorithm, shape, size, Skew(Preset.UNIFORM, 5))
    assert uniform.transfers.objects == scheduled(algorithm, shape, size, None).transfers.objects


@given(SHAPES, st.integers(1, 1_000_000), st.integers(1, 4), st.integers(1, 2))
def test_equal_data_are_dealt_out_as_in_two_steps(
    shape: Shape, each: int, slices: int, phases: int
) -> None:
    equal = np.full((shape[0] * shape[1]) ** 2 * slices * phases, each)
    dealt, in_two = (Builder(JobGrid(*shape), equal, slices, phases) for _ in range(2))
    dealt_out_all_to_all(dealt)
    two_step_all_to_all(in_two)
    assert dealt.transfers.objects == in_two.transfers.objects


@given(SKEWS, st.integers(2, 4), st.integers(2, 4))
def test_the_rails_between_two_domains_differ_by_one_slice_at_most(
    skew: Skew, domains: int, size: int
) -> None:
    """Largest first: the last one that the fullest rail got found it the least loaded."""
    n, slices = domains * size, 4
    elements = np.random.default_rng(skew.seed).integers(0, 1000, n * n * slices)
    spread = Spread(Builder(JobGrid(domains, size), elements, slices), 0)
    for source in range(domains):
        for destination in range(domains):
            load = np.zeros(size, np.int64)
            for number in range(slices):
                block = np.ix_(
                    *(np.arange(d * size, (d + 1) * size) for d in (source, destination))
                )
                rails = spread.rail[number][block]
                np.add.at(load, rails, elements.reshape(n, n, slices)[..., number][block])
            assert load.max() - load.min() <= elements.max()


def nic_loads(transfers: Transfers, size: int) -> dict[int, int]:
    """Bytes that each GPU receives from other domains."""
    found: dict[int, int] = defaultdict(int)
    for transfer in transfers:
        if transfer.source // size != transfer.destination // size:
            found[transfer.destination] += transfer.size_bytes
    return found


@pytest.mark.parametrize("preset", [Preset.HOT_EXPERT, Preset.HOT_RANK])
def test_spreading_relieves_the_rail_of_a_hot_gpu(preset: Preset) -> None:
    """4 times as much for one of 4 GPUs of a domain: 7/4 of the others' mean, and not 4."""
    two, spread = (
        nic_loads(scheduled(name, (4, 4), 10_000_000, Skew(preset)).transfers, 4)
        for name in ("two-step-pipelined", "spreading")
    )
    assert max(two.values()) >= 3.9 * min(two.values())
    assert max(spread.values()) <= 2 * min(spread.values())
    assert sum(spread.values()) == sum(two.values())


def modeled_s(algorithm: str, topology: Topology, matrix: Matrix) -> float:
    shape = topology.spec.job_shape
    schedule = scheduled(algorithm, shape, 40_000_000, matrix)
    paths = transfer_paths(schedule.transfers, Epoch(topology), topology.job_gpus)
    latency_s = {path_class(hops): 0.0 for hops in paths if hops}
    prediction = predict(schedule, [Epoch(topology)], latency_s)
    assert prediction.completion_s >= prediction.lower_bound_s - 1e-9
    return prediction.completion_s


@pytest.mark.parametrize("kind", COMPARED)
def test_spreading_is_modeled_faster_for_a_hot_gpu_and_as_fast_for_none(kind: FabricKind) -> None:
    topology = build_topology(spec(kind, 4, 4, spines=4))
    hot, even = Skew(Preset.HOT_EXPERT), Skew(Preset.UNIFORM)
    assert modeled_s("spreading", topology, hot) < 0.6 * modeled_s(
        "two-step-pipelined", topology, hot
    )
    assert modeled_s("spreading", topology, even) == modeled_s("two-step-pipelined", topology, even)


def test_a_hotspot_rotates_over_domains_and_rails_in_phases_that_follow_one_another() -> None:
    skew = Skew(Preset.ROTATING_HOTSPOT)
    shares = skew.shares(JobGrid(4, 4))
    hot = shares.sum(axis=0).argmax(axis=0)
    assert sorted(hot // 4) == sorted(hot % 4) == [0, 1, 2, 3]
    schedule = scheduled("direct", (4, 4), 1_000_000, skew)
    assert len(schedule.transfers) == 4 * 16 * 15
    first, later = schedule.transfers[0], schedule.transfers[16 * 15]
    assert (first.source, first.destination) == (later.source, later.destination)
    assert len(later.after) > len(first.after)


@given(SKEWS, SHAPES)
def test_a_rank_has_one_share_on_average(skew: Skew, shape: Shape) -> None:
    shares = skew.shares(JobGrid(*shape))
    n = shape[0] * shape[1]
    assert shares.shape == (n, n, skew.phases)
    assert shares.sum() == pytest.approx(n)
    assert (shares == replace(skew).shares(JobGrid(*shape))).all()


SCENARIO = """\
fabric: {domains: 2, domain_size: 2, platform: dgx-h100, bandwidth_scale: 20000}
workloads:
  - {collective: all-to-all, algorithm: spreading, matrix: MATRIX}
"""


def write(folder: Path, matrix: str) -> Path:
    file = folder / "x.yaml"
    file.write_text(SCENARIO.replace("MATRIX", matrix))
    return file


def test_a_file_of_bytes_is_part_of_the_stored_scenario(tmp_path: Path) -> None:
    (tmp_path / "moe.csv").write_text("# bytes\n0,10,20,30\n40 0 50 60\n\n7\t8\t0\t9\n1, 2, 3, 0\n")
    scenario = load(write(tmp_path, "moe.csv"), ["allow_overload=true"])
    assert scenario.cases[0].name == "rail-only/all-to-all/spreading/matrix"
    assert scenario.cases[0].task.size_bytes == 240 / 4
    again = tmp_path / "again.yaml"
    again.write_text(scenario.text)
    (tmp_path / "moe.csv").unlink()
    assert load(again).cases[0].task == scenario.cases[0].task
    assert all(planned.completion_s > 0 for planned in plan(scenario, None))


NUMBERS = st.lists(st.integers(0, 10**12) | st.floats(1, 1e12), min_size=4, max_size=4)


@given(st.lists(NUMBERS, min_size=4, max_size=4))
def test_the_text_of_a_matrix_has_its_numbers(rows: list[list[float]]) -> None:
    assert [row for _, row in numbers_in(matrix_text(rows))] == rows


def large(folder: Path, algorithms: tuple[str, ...]) -> Path:
    """Return a scenario of some all-to-alls, each with a matrix of 72 rows in a file."""
    rows = [[10**8 * (source != other) for other in range(72)] for source in range(72)]
    (folder / "moe.csv").write_text(matrix_text(rows))
    path, shape = folder / "x.yaml", "domains: 9, domain_size: 8, platform: dgx-h100"
    work = "  - {{collective: all-to-all, algorithm: {}, size_scale: 9, matrix: moe.csv}}\n"
    entries = "".join(map(work.format, algorithms))
    path.write_text(f"fabric: {{{shape}, bandwidth_scale: 20000}}\nworkloads:\n{entries}")
    return path


def test_a_stored_scenario_with_several_matrices_is_read_again(tmp_path: Path) -> None:
    scenario = load(large(tmp_path, ("two-step", "spreading")))
    (tmp_path / "again.yaml").write_text(scenario.text)
    (tmp_path / "moe.csv").unlink()
    assert load(tmp_path / "again.yaml") == scenario


def test_a_stored_matrix_has_the_fractions_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "moe.csv").write_text("0 1000000.5 1e6 1e6\n" + "1e6 0 1e6 1e6\n" * 3)
    scenario = load(write(tmp_path, "moe.csv"))
    assert "0 1000000.5 1000000 1000000" in scenario.text
    (tmp_path / "again.yaml").write_text(scenario.text)
    assert load(tmp_path / "again.yaml").cases[0].task == scenario.cases[0].task


def test_matrices_whose_sizes_differ_late_are_cases_of_their_own() -> None:
    entry = "{collective: all-to-all, algorithm: direct, matrix: [[0, %d], [10000000, 0]]}"
    fabric = "fabric={domains: 2, domain_size: 1, platform: dgx-h100, kinds: rail-only}"
    work = f"workloads=[{entry % 10_000_000}, {entry % 10_000_008}]"
    names = [case.name for case in load(LIBRARY / "quickstart.yaml", [fabric, work]).cases]
    assert [name.rpartition("/")[2] for name in names] == ["10000000B", "10000004B"]


def test_matrices_of_equal_sizes_are_told_apart_by_their_workloads() -> None:
    entry = "{collective: all-to-all, algorithm: direct, matrix: [[0, %d], [%d, 0]]}"
    fabric = "fabric={domains: 2, domain_size: 1, platform: dgx-h100, kinds: rail-only}"
    one, other = entry % (2 * 10**7, 10**7), entry % (10**7, 2 * 10**7)
    scenario = load(LIBRARY / "quickstart.yaml", [fabric, f"workloads=[{one}, {other}]"])
    names = [case.name for case in scenario.cases]
    assert [name.rpartition("/")[2] for name in names] == ["workload-0", "workload-1"]
    for entries, name in ((f"{one}, {one}", "matrix"), (f"{one}, {one}, {other}", "workload-0")):
        with pytest.raises(InputError, match=f"/{name} is defined twice .leave one out; .* scales"):
            load(LIBRARY / "quickstart.yaml", [fabric, f"workloads=[{entries}]"])


def test_a_scenario_that_could_not_be_read_again_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"x\.yaml:1: exceeds its bounds together .* than 0\.25 MiB, 0\.29"
    ):
        load(large(tmp_path, ("two-step",) * 6))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("0 1 2 x", "moe.csv: line 1: must be numbers of bytes, such as 64 or 1.5M, got 'x'"),
        ("0 1\n1 0", "must have 4 rows, one for each GPU, got 2"),
        ("0 1\n\n1 0 3", "moe.csv: line 3: must have 2 numbers, one for each row, got 3"),
        ("0 0\n0 0", "no GPU sends to another GPU"),
        ("0 -1\n1 0", "moe.csv: line 1: must be numbers of bytes, such as 64 or 1.5M, got '-1'"),
        ("0 9999999999999999\n1 0", "line 1: must be 0 to 281474976710656 bytes, got"),
        ("", "must have 2 to 96 rows, got 0"),
    ],
)
def test_a_wrong_matrix_is_bad_input_with_its_line(tmp_path: Path, rows: str, said: str) -> None:
    (tmp_path / "moe.csv").write_text(rows)
    with pytest.raises(InputError) as caught:
        load(write(tmp_path, "moe.csv"))
    (problem,) = caught.value.problems
    assert str(problem).startswith(f"{tmp_path}/x.yaml:3 workloads.0.matrix")
    assert said in str(problem)


def test_a_misspelt_preset_is_told_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load(write(tmp_path, "hot-expart"))
    assert "hot-expart: not found (did you mean 'hot-expert'? presets: " in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "workloads.0.matrix=[[0, 1], [1, 0, 3]]",
            "row 2 must have 2 numbers, one for each row, got 3",
        ),
        ("workloads.0.collective=all-gather", "unknown algorithm 'spreading' of all-gather"),
        (
            "workloads.0.matrix=[[0, 0.5], [1, 0]]",
            "0.matrix: must be at least a byte, got 0.5",
        ),
        ("workloads.0.matrix=hot-rank", "workloads.0.size: is required"),
        (
            "workloads.0.communicator=strided-9",
            "stride must be 1 to 2, of 4 GPUs, got 9",
        ),
        ("workloads.0.matrix_seed=3", "matrix_seed: needs a preset as matrix: uniform, hot-expert"),
    ],
)
def test_a_matrix_and_a_size_must_fit(tmp_path: Path, change: str, said: str) -> None:
    (tmp_path / "moe.csv").write_text("0 1 2 3\n" * 4)
    with pytest.raises(InputError, match=said):
        load(write(tmp_path, "moe.csv"), [change])


def test_a_preset_for_too_many_gpus_is_refused_before_it_is_computed(tmp_path: Path) -> None:
    wide = ["fabric.domains=512", "fabric.domain_size=8", "workloads.0.size=4 MB"]
    with (
        peak_below(100 * 2**20),
        pytest.raises(InputError, match="supports at most 256 GPUs, got 4096"),
    ):
        load(write(tmp_path, "hot-rank"), wide)


@given(st.lists(st.floats(0.001, 100), min_size=2, max_size=2), st.integers(1000, 10**6))
def test_numbers_of_a_matrix_are_multiplied_by_the_size(numbers: list[float], size: int) -> None:
    one, other = numbers
    given_size = {"collective": "all-to-all", "algorithm": "direct", "size": f"{size} B"}
    work = CollectiveWorkload.model_validate({**given_size, "matrix": [[0, one], [other, 0]]})
    assert work.pair_sizes == Given(((0, int(one * size)), (int(other * size), 0)))
    assert work.size_bytes == (int(one * size) + int(other * size)) / 2


def test_the_library_measures_every_skewed_preset_in_two_steps_and_spread() -> None:
    scenario = load(LIBRARY / "moe-skew.yaml", ["fabric.kinds=rail-only"])
    skewed = set(Preset) - {Preset.UNIFORM}
    assert {case.task.name for case in scenario.cases} == {
        f"all-to-all/{algorithm}/{Skew(preset).name}"
        for preset in skewed
        for algorithm in ("two-step-pipelined", "spreading")
    }
