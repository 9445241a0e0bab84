"""Several jobs at once: their partitions, steps, modeled times and interference."""

import io
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from commands.check import described
from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.job_grid import JobGrid
from model.fabric.spec import FabricKind, FabricSpec, SpineSelection
from model.fabric.topology import Hop
from model.job.concurrent_jobs import ConcurrentJobs, Partition, PlacedSteps
from model.measurement.records import CaseExecutions, Repeat, TransferRecord
from model.prediction.fluid import path_class, predict
from model.routing.paths import Routing
from model.workload.transfers.collective import Collective
from model.workload.transfers.proof import ScheduleError
from results.render.terminal import print_sections
from results.report.run import answer
from results.sections.run import run_sections
from results.store.records import plain
from results.store.tables import judged_rows
from results.verdicts.model_comparison import CaseResult, Measured, compare
from results.verdicts.run import RunResult
from results.verdicts.verdict import Thresholds, Verdict
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.planning.plan import plan, plan_section
from scenarios.scenario import Case, Scenario
from tests.unit.fabrics import accepts, spec, transfer_paths
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS
from traffic_gen.workloads.sized_collective import SizedCollective

DOMAINS, SIZE = 4, 4
GRID = JobGrid(DOMAINS, SIZE)
HEAD = "fabric: {domains: 4, domain_size: 4, platform: dgx-h100, bandwidth_scale: 20000}\n"
TOP = "{name: top, domains: 0-1, collective: all-to-all, algorithm: pairwise, size: 8 MB}"
ALL_TO_ALL = "collective: all-to-all, algorithm: direct"
BOTTOM = "{name: bottom, domains: 2-3, collective: all-gather, algorithm: ring, size: 1 MB}"


def loaded(file: Path, *jobs: str, more: str = "") -> Scenario:
    listed = "".join(f"    - {job}\n" for job in jobs)
    file.write_text(f"{HEAD}workloads:\n- time_dilation: 10000\n  jobs:\n{listed}{more}")
    return load(file)


def spans(count: int) -> st.SearchStrategy[tuple[int, int]]:
    """First and last of consecutive numbers below a count."""
    numbers = st.integers(0, count - 1)
    return st.tuples(numbers, numbers).map(lambda two: (min(two), max(two)))


def spans_apart(count: int) -> st.SearchStrategy[tuple[tuple[int, int], tuple[int, int]]]:
    """Two spans of numbers below a count, the first of smaller numbers."""
    four = st.lists(st.integers(0, count - 1), min_size=4, max_size=4).map(sorted)
    return four.filter(lambda n: n[1] < n[2]).map(lambda n: ((n[0], n[1]), (n[2], n[3])))


PARTITIONS = st.builds(Partition, spans(DOMAINS), spans(SIZE))
BESIDE = st.tuples(spans(DOMAINS), spans(DOMAINS), spans_apart(SIZE)).map(
    lambda found: (Partition(found[0], found[2][0]), Partition(found[1], found[2][1]))
)
BELOW = st.tuples(spans_apart(DOMAINS), spans(SIZE), spans(SIZE)).map(
    lambda found: (Partition(found[0][0], found[1]), Partition(found[0][1], found[2]))
)
# A straight line parts any two rectangles that do not overlap.
APART = st.one_of(BESIDE, BELOW)
Two = tuple[Partition, Partition]


@given(PARTITIONS, PARTITIONS)
def test_partitions_overlap_if_a_gpu_is_in_both(one: Partition, other: Partition) -> None:
    assert one.is_within(GRID)
    assert one.overlaps(other) == bool({*one.ranks(GRID)} & {*other.ranks(GRID)})
    assert len(one.ranks(GRID)) == prod(one.of(GRID).shape)


def hops_within(routing: Routing, partition: Partition) -> set[Hop]:
    gpus = [routing.topology.gpus[rank] for rank in partition.ranks(GRID)]
    pairs = ((a, b) for a in gpus for b in gpus if a != b)
    return {hop for a, b in pairs for hop in routing.path(a, b)}


def share_links(fabric: FabricSpec, one: Partition, other: Partition) -> bool:
    """Whether a direction of a link is on paths within both partitions."""
    routing = Routing(build_topology(fabric))
    return bool(hops_within(routing, one) & hops_within(routing, other))


@given(APART)
def test_partitions_share_no_link_of_a_rail_only_fabric(two: Two) -> None:
    """Nor of a rail-optimized one with a spine switch for each domain."""
    assert not two[0].overlaps(two[1])
    assert not share_links(spec(FabricKind.RAIL_ONLY, DOMAINS, SIZE), *two)
    assert not share_links(spec(FabricKind.RAIL_OPTIMIZED, DOMAINS, SIZE, spines=DOMAINS), *two)


@given(BESIDE, st.integers(1, 3), st.sampled_from(SpineSelection))
def test_partitions_on_rails_of_their_own_share_no_uplink(
    two: Two, spines: int, how: SpineSelection
) -> None:
    fabric = spec(FabricKind.RAIL_OPTIMIZED, DOMAINS, SIZE, spines=spines, spine_selection=how)
    assert not share_links(fabric, *two)


def test_partitions_on_common_rails_share_uplinks_of_too_few_spines() -> None:
    top, bottom = Partition((0, 1), (0, SIZE - 1)), Partition((2, 3), (0, SIZE - 1))
    assert share_links(spec(FabricKind.RAIL_OPTIMIZED, DOMAINS, SIZE, spines=2), top, bottom)


@st.composite
def jobs_apart(draw: st.DrawFn) -> tuple[PlacedSteps, PlacedSteps]:
    """Two collectives on partitions of two GPUs or more."""
    two = draw(APART.filter(lambda two: (1, 1) not in [one.of(GRID).shape for one in two]))
    return placed(draw, two[0]), placed(draw, two[1])


def placed(draw: st.DrawFn, partition: Partition) -> PlacedSteps:
    shape = partition.of(GRID).shape
    possible = [named for named in ALGORITHMS if accepts(named, *shape)]
    named = draw(st.sampled_from(possible))
    size = draw(st.sampled_from((1000, 500_000)))
    name = "-".join((*named, *map(str, partition.ranks(GRID))))
    return PlacedSteps(name, partition, SizedCollective(*named, shape, size).steps())


def together(*jobs: PlacedSteps) -> ConcurrentJobs:
    return ConcurrentJobs(GRID, jobs)


def modeled_s(steps: ConcurrentJobs, fabric: FabricSpec) -> dict[str, float]:
    """The modeled time of each job, where every path has the same latency."""
    topology = build_topology(fabric)
    paths = transfer_paths(steps.transfers, Epoch(topology), topology.job_gpus)
    latency_s = {path_class(hops): 0.0001 for hops in paths if hops}
    return steps.ends(predict(steps, [Epoch(topology)], latency_s).arrival_s)


@given(jobs_apart())
def test_jobs_together_are_the_jobs_alone_side_by_side(jobs: tuple[PlacedSteps, ...]) -> None:
    """Each has its own ranks and transfers; none waits for the other's."""
    one, other = jobs
    both = together(one, other)
    transfers = both.transfers
    for job, mine in both.places():
        alone = together(job).transfers
        for column in ("source", "destination", "size_bytes", "compute_ns", "reduce"):
            assert (getattr(transfers, column)[mine] == getattr(alone, column)).all()
        assert {*transfers.source[mine].tolist()} <= {*job.partition.ranks(GRID)}
        for here, there in zip(transfers[mine], alone, strict=True):
            assert here.after == tuple(mine.start + earlier for earlier in there.after)
            assert (here.ready is None) == (there.ready is None)
            assert here.ready is None or there.ready is not None
            assert here.ready is None or here.ready - mine.start == there.ready
    assert both.size_bytes == one.steps.size_bytes + other.steps.size_bytes
    assert len({both.digest, together(other, one).digest, together(one).digest}) == 3


@given(jobs_apart())
def test_on_rail_only_a_job_takes_as_long_as_alone(jobs: tuple[PlacedSteps, ...]) -> None:
    fabric = spec(FabricKind.RAIL_ONLY, DOMAINS, SIZE)
    both_s = modeled_s(together(*jobs), fabric)
    for job in jobs:
        assert both_s[job.name] == pytest.approx(
            modeled_s(together(job), fabric)[job.name], rel=1e-5
        )


def test_jobs_share_nics_as_the_fabric_does(file: Path) -> None:
    rings = "collective: all-reduce, algorithm: rings, size: 1 MB"
    jobs = f"{{name: a, rails: 0-1, {rings}}}", f"{{name: b, rails: 2-3, {rings}}}"
    loaded(file, *jobs)
    file.write_text(file.read_text().replace("size: 4,", "size: 4, nics_per_domain: 2,"))
    tasks = [job.task for case in load(file).cases for job in getattr(case.task, "jobs", ())]
    assert tasks
    assert {len(task.job_grid.shared_rails) for task in tasks} == {1}


def test_jobs_that_share_gpus_or_leave_the_grid_cannot_be_built() -> None:
    ring = SizedCollective(Collective.ALL_GATHER, "ring", (2, 2), 1000).steps()
    corner = PlacedSteps("corner", Partition((0, 1), (0, 1)), ring)
    for name, partition, wrong in (
        ("near", Partition((1, 2), (1, 2)), "corner and near share GPUs"),
        ("far", Partition((3, 4), (0, 1)), "job far: domains 3-4, rails 0-1 are outside the grid"),
        ("thin", Partition((2, 3), (3, 3)), "job thin: its steps are for 4 ranks"),
    ):
        with pytest.raises(ScheduleError, match=wrong):
            together(corner, PlacedSteps(name, partition, ring))


def test_jobs_are_a_case_each_and_one_together_at_one_scale(file: Path) -> None:
    scenario = loaded(file, TOP, BOTTOM)
    assert [case.name for case in scenario.cases] == [
        f"{kind}/jobs/{name}"
        for kind in ("rail-only", "rail-optimized")
        for name in ("top", "bottom", "top+bottom")
    ]
    assert {case.size_scale for case in scenario.cases} == {2.0}
    for top, bottom, both in (scenario.cases[:3], scenario.cases[3:]):
        assert top.task.size_bytes + bottom.task.size_bytes == both.task.size_bytes


def test_jobs_may_be_traces_and_iterations_and_have_matrices_in_files(file: Path) -> None:
    Path("bytes.txt").write_text("0 5\n7 0\n")
    Path("own.goal").write_text((LIBRARY / "traces" / "pipeline.goal").read_text())
    scenario = loaded(
        file,
        "{name: model, rails: 0, iteration: gpt-146b, pipeline: 1, microbatches: 1}",
        "{name: trace, domains: 0-1, rails: 1-3, trace: own.goal, placement: rails}",
        "{name: skewed, domains: 2, rails: 2-3, collective: all-to-all, algorithm: direct, "
        "matrix: bytes.txt}",
        more="allow_overload: true\n",
    )
    case = scenario.cases[3]
    steps = case.schedule(scenario.fabrics[0])
    assert isinstance(steps, ConcurrentJobs)
    assert [job.steps.task for job in steps.jobs] == ["iteration", "trace", "all-to-all"]
    assert [job.steps.gpus for job in steps.jobs] == [4, 6, 2]
    told = [line for line in described(scenario) if "own.goal" in line]
    assert any("rails 1-3, of a trace: GOAL, 4 ranks, 20 nodes" in line for line in told)
    assert str(Path.cwd() / "own.goal") in scenario.text
    file.write_text(
        HEAD.replace("domains: 4, domain_size: 4", "domains: 2, domain_size: 3")
        + "workloads: [{trace: own.goal, placement: rails, time_dilation: 10000}]"
    )
    whole = load(file)
    alone = whole.cases[0].schedule(whole.fabrics[0])
    assert steps.jobs[1].steps.digest == alone.digest
    stored = Path("elsewhere") / "scenario.yaml"
    stored.parent.mkdir()
    stored.write_text(scenario.text)
    again = load(stored).cases[3].schedule(scenario.fabrics[0])
    assert again.digest == steps.digest


@pytest.mark.parametrize(
    ("jobs", "more", "message"),
    [
        ((TOP, BOTTOM.replace("2-3", "1-2")), "", "workloads.0.jobs.1: job bottom (domains 1-2, "),
        ((TOP, BOTTOM.replace("2-3", "2-4")), "", "domains: job bottom: must be domains 0"),
        ((TOP, BOTTOM.replace("2-3", "2, rails: 0")), "", "must have two GPUs or more, got one"),
        ((TOP, BOTTOM.replace("2-3", "3-2")), "", "must begin with the smaller number, got '3-2'"),
        ((TOP, BOTTOM.replace("2-3", "two")), "", "must be a number from 0, or two with a hyphen"),
        ((TOP, BOTTOM.replace("bottom", "top")), "", "duplicate job 'top'"),
        ((TOP,), "", "workloads.0.jobs: must have two jobs or more, got 1"),
        (
            (TOP, "{name: served, domains: 2-3, inference: gpt-18.4b}"),
            "",
            "workloads.0.jobs.1: must have one of collective, trace, iteration, got inference",
        ),
        ((TOP, BOTTOM.replace("size", "sise")), "", "unknown key 'sise' (did you mean 'size'?)"),
        (
            (TOP, "{name: six, domains: 2-3, rails: 0-2, collective: all-reduce, "
             "algorithm: halving-doubling, size: 1 MB}"),
            "",
            "jobs.1: all-reduce with the algorithm 'halving-doubling' on 2 x 3 GPUs is not",
        ),
        (
            (TOP, "{name: model, domains: 2-3, iteration: gpt-146b, tensor: 3}"),
            "",
            "workloads.0.jobs.1.tensor: tensor 8, pipeline 8, data 24 cannot",
        ),
        ((TOP, BOTTOM), "check_data: true\n", "check_data: cannot be combined with several jobs"),
        ((TOP, BOTTOM), "faults: [{what: nic-link}]\n", "faults: cannot be combined with several"),
    ],
)  # fmt: skip
def test_mistakes_of_jobs_are_named(
    file: Path, jobs: tuple[str, ...], more: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        loaded(file, *jobs, more=more)
    assert message in str(caught.value)


def test_jobs_on_too_many_gpus_are_refused(file: Path) -> None:
    with pytest.raises(InputError, match="several jobs can have at most 256 GPUs, got 272"):
        load(LIBRARY / "several-jobs.yaml", ["fabric.domains=68"])


def test_check_and_plan_say_what_the_jobs_are_and_how_they_interfere() -> None:
    scenario = load(LIBRARY / "several-jobs.yaml")
    out = io.StringIO()
    assert "  top: all-to-all/pairwise on domains 0-1, rails 0-3" in described(scenario)
    print_sections([plan_section(plan(scenario, None), None)], Console(file=out, width=200))
    text = out.getvalue()
    for case, slower in (
        ("rail-only/jobs/top+bottom (", "as long as alone"),
        ("rail-optimized/jobs/top+b", "1.7"),
    ):
        after = text[text.rindex(case) :]
        assert f", {slower}" in after.splitlines()[2], after


def test_a_job_that_bursts_alone_carry_has_a_time(file: Path) -> None:
    tiny = [f"{{name: j{n}, domains: {n}, {ALL_TO_ALL}, size: 8 kB}}" for n in (0, 1)]
    plans = plan(loaded(file, *tiny, more="allow_overload: true\n"), None)
    assert ", as long as alone" in str(plan_section(plans, None))


def measured(
    case: Case,
    scenario: Scenario,
    slower: dict[str, float],
    executions: Sequence[tuple[float, bool]] = ((1.0, True),),
) -> CaseResult:
    """A case whose jobs took so many times as long as modeled.

    Each execution was slower still by a factor, and complete or not.
    """
    (fabric,) = (fabric for fabric in scenario.fabrics if fabric.kind is case.kind)
    steps = case.schedule(fabric)
    assert isinstance(steps, ConcurrentJobs)
    topology = build_topology(fabric)
    paths = transfer_paths(steps.transfers, Epoch(topology), topology.job_gpus)
    prediction = predict(
        steps, [Epoch(topology)], {path_class(hops): 0.0 for hops in paths if hops}
    )
    times = np.array(
        [slower[job.name] for job, mine in steps.places() for _ in steps.transfers[mine]]
    )
    repeats = []
    for factor, complete in executions:
        ended_s = factor * times * np.array(prediction.arrival_s)
        records = tuple(
            TransferRecord(
                0, t.id, t.source, t.destination, t.size_bytes, 0, *([round(end_s * 1e9)] * 3)
            )
            for t, end_s in zip(steps.transfers, ended_s.tolist(), strict=True)
        )
        repeats.append(Repeat(0, complete, float(ended_s.max()), 0.0, 0.0, (), (), records))
    found = Measured(topology, steps, CaseExecutions(tuple(repeats)), epoch=Epoch(topology))
    return compare(case.name, found, prediction, case.size_scale, Thresholds(0.02, 0.05))


@pytest.mark.parametrize("early", ["top", "bottom"])
def test_a_job_that_ends_early_is_judged_though_the_case_ends_on_time(early: str) -> None:
    scenario = load(LIBRARY / "roce-two-jobs.yaml")
    (case,) = (
        one for one in scenario.cases if "top+bottom" in one.name and "rail-only" in one.name
    )
    slower = {"top": 1.0, "bottom": 1.0}
    assert measured(case, scenario, slower).verdict is Verdict.PASS
    found = measured(case, scenario, slower | {early: 0.6})
    assert found.verdict is Verdict.FAIL
    assert found.reasons == (f"job {early}: 40.0% away from the model, more than 5.0%",)


def test_the_time_of_a_job_is_the_median_of_whole_executions(file: Path) -> None:
    scenario = loaded(file, TOP, BOTTOM)
    case, slower = scenario.cases[2], {"top": 1.0, "bottom": 1.0}
    executions = [(1.4, True), (9.0, False), (1.0, True), (1.1, True)]
    found = measured(case, scenario, slower, executions)
    for job in found.breakdown.jobs:
        assert len(job.measured_s.values) == 3
        assert job.ratio == pytest.approx(1.1)
        assert job.measured_s.median == pytest.approx(1.1 * job.modeled_s)
    assert sum(job.bytes for job in found.breakdown.jobs) == found.work.bytes
    assert measured(case, scenario, slower, [(1.0, False)]).breakdown.jobs == ()


def test_flows_of_jobs_that_share_links_are_in_the_result() -> None:
    scenario = load(LIBRARY / "roce-two-jobs.yaml")
    both = [case for case in scenario.cases if "top+bottom" in case.name]
    cases = [measured(case, scenario, {"top": 1.0, "bottom": 1.0}) for case in both]
    rail_only, rail_optimized = plain(RunResult("id", "some", Path("runs/id"), cases))["cases"]
    assert rail_optimized["contention"]["flows"] == 2
    assert "contention" not in rail_only


def test_a_run_has_the_time_of_each_job_and_the_interference(file: Path) -> None:
    """The shorter job is judged, too, though the case ends with the longer one."""
    scenario = loaded(file, TOP, BOTTOM)
    slower = ({"top": 1.0}, {"bottom": 1.0}, {"top": 1.0, "bottom": 1.1})
    cases = [
        measured(case, scenario, times)
        for case, times in zip(scenario.cases[:3], slower, strict=True)
    ]
    assert [case.verdict for case in cases] == [Verdict.PASS, Verdict.PASS, Verdict.FAIL]
    result = plain(RunResult("id", "some", Path("runs/id"), cases))
    top, bottom = result["cases"][2]["jobs"]
    assert (bottom["domains"], bottom["rails"]) == ("2-3", "0-3")
    assert (bottom["collective"], bottom["algorithm"]) == ("all-gather", "ring")
    assert top["ratio"] == pytest.approx(1.0)
    assert bottom["ratio"] == pytest.approx(1.1)
    assert [found["job"] for found in result["interference"]] == ["top", "bottom"]
    found = result["interference"][1]
    assert (found["case"], found["alone"]) == ("rail-only/jobs/top+bottom", "rail-only/jobs/bottom")
    assert [one["verdict"] for one in result["interference"]] == ["fail", "fail"]
    assert found["interference"]["measured"] == pytest.approx(1.1)
    assert found["interference"]["modeled"] == pytest.approx(1.0)
    broken = plain(
        RunResult("id", "some", Path("runs/id"), [replace(cases[0], incomplete=True), *cases[1:]])
    )
    assert [found["job"] for found in broken["interference"]] == ["bottom"]
    out = io.StringIO()
    print_sections(run_sections(result), Console(file=out, width=120))
    assert "job bottom: 10.0% away from the model" in out.getvalue()
    assert "interference: together over alone" in out.getvalue()
    slowest = "Together, jobs take up to 1.10 times (modeled: 1.00) as long as alone on rail-only."
    assert slowest in " ".join(answer(result))
    row = judged_rows(result)["interference"][1]
    assert None not in row.values()
    assert (row["job"], row["alone"]) == ("bottom", "rail-only/jobs/bottom")
    assert row["interference"] == pytest.approx(row["together_s"] / row["alone_s"])
    assert row["modeled_interference"] == pytest.approx(1.0)
