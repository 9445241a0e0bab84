"""Traces as workloads: their cases, what `check` says of them, and what is refused."""

import shutil
from pathlib import Path
from typing import NoReturn
from unittest.mock import patch

import pytest

from commands.check import described
from model.errors import InputError
from model.fabric.job_grid import JobGrid
from model.fabric.spec import FabricKind
from model.workload.trace import Action
from model.workload.transfers.collective import Collective
from scenarios.library_files import LIBRARY
from scenarios.load import load
from tests.unit.machines import TWO_CORES
from traffic_gen.traces import reading
from traffic_gen.traces.formats.chakra_writing import chakra_files
from traffic_gen.traces.formats.nodes import Node, Nodes
from traffic_gen.traces.rank_placement import PlacementRule, placed
from traffic_gen.traces.reading import read_trace
from traffic_gen.traces.replay import Replay

SAMPLES = LIBRARY / "traces"


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A scenario beside its trace, named with its path from the scenario."""
    shutil.copy(SAMPLES / "pipeline.goal", tmp_path)
    path = tmp_path / "x.yaml"
    path.write_text(
        "fabric: {domains: 2, domain_size: 2, platform: dgx-h100, bandwidth_scale: 20000}\n"
        "workloads:\n"
        "  - {trace: pipeline.goal, size_scale: 100}\n"
    )
    return path


def test_a_trace_is_a_case_of_each_fabric(scenario: Path) -> None:
    loaded = load(scenario, machine=TWO_CORES)
    assert [case.name for case in loaded.cases] == [
        "rail-only/trace/pipeline.goal",
        "rail-optimized/trace/pipeline.goal",
    ]
    case, spec = loaded.cases[0], loaded.fabrics[0]
    assert spec.kind is FabricKind.RAIL_ONLY
    steps = case.schedule(spec)
    assert steps.size_bytes == 6 * 320_000
    # Eight microbatches compute a millisecond each, 200 times as long.
    assert steps.transfers.compute_ns.sum() == 8 * 200_000_000


def test_the_size_of_a_trace_is_one_wherever_it_is_told(scenario: Path) -> None:
    """That of a collective operation, not the bytes that its transfers take."""
    layer = f"workloads=[{{trace: {SAMPLES}/layer, size_scale: 100}}]"
    loaded = load(scenario, [layer])
    case, spec = loaded.cases[0], loaded.fabrics[0]
    assert case.schedule(spec).size_bytes == case.emulated_bytes == 17_600_000
    assert case.transfers(spec).size_bytes.sum() != 17_600_000


def test_check_names_format_ranks_nodes_and_bytes(scenario: Path) -> None:
    said = "\n".join([*described(load(scenario)), ""])
    assert "1920000 bytes of a trace: GOAL, 4 ranks, 20 nodes, 192000000 bytes" in said
    assert "  ranks: 4 on 4 GPUs\n  sends: 6, 192000000 bytes\n" in said
    assert "\n  compute: 8 nodes, up to 0.002 s a rank\n" in said


def test_check_describes_groups_by_size_and_place() -> None:
    nodes = Nodes(ranks=6, left_out=["2 updates"])
    for ranks in ((0,), (0, 1), (1, 0), (2, 3), (0, 4), (0, 3, 4), (0, 1, 2, 3, 4, 5)):
        nodes.collective(Collective.ALL_REDUCE, 10, ranks, 0)
    nodes.collective(Collective.ALL_GATHER, 5, (0, 1), 0)
    for rank, peer in ((0, 5), (1, 2)):
        nodes.add(Node(Action.SEND, rank, 0, peer=peer, size_bytes=7))
        nodes.add(Node(Action.RECEIVE, peer, 0, peer=rank))
    grid = JobGrid(2, 2)
    gpu_of = placed(PlacementRule.WRAP, 6, grid)
    assert list(Replay(nodes.trace("made"), "x", gpu_of, grid).details) == [
        "ranks: 6 on 4 GPUs",
        "groups: 1 of 1 rank (on one GPU), 2 of 2 ranks (in one HB domain), "
        "1 of 2 ranks (on one GPU), 1 of 3 ranks (across domains and rails), 1 of 6 ranks (all)",
        "all-gather: 1 operation, 5 bytes",
        "all-reduce: 7 operations, 70 bytes",
        "sends: 2, 14 bytes",
        "not replayed: 2 updates",
    ]


def test_the_runs_copy_of_a_scenario_finds_the_trace(scenario: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "run" / "scenario.yaml"
    elsewhere.parent.mkdir()
    elsewhere.write_text(load(scenario).text)
    assert load(elsewhere).cases == load(scenario).cases


def test_a_placement_that_is_listed(scenario: Path) -> None:
    case = load(scenario, ["workloads.0.placement=[3,2,1,0]"]).cases[0]
    assert isinstance(case.task, Replay)
    assert case.task.gpu_of.tolist() == [3, 2, 1, 0]


def test_more_ranks_than_gpus_need_a_placement_and_are_named(scenario: Path) -> None:
    fewer = "fabric.domains=1"
    with pytest.raises(InputError, match="placement: is required to put 4 ranks on 2 GPUs"):
        load(scenario, [fewer])
    for rule in ("wrap", "block", "[0, 1, 1, 0]"):
        case = load(scenario, [fewer, f"workloads.0.placement={rule}"]).cases[0]
        assert case.name == "rail-only/trace/pipeline.goal/4-ranks-on-2"


def test_a_file_of_a_rank_that_has_changed_is_read_again(scenario: Path) -> None:
    folder = scenario.parent / "ranks"
    folder.mkdir()
    for rank, content in enumerate(chakra_files(read_trace(SAMPLES / "pipeline.goal"))):
        (folder / f"x.{rank}.et").write_bytes(content)
    for path in ("ranks", "ranks/x.0.et"):
        assert load(scenario, [f"workloads.0.trace={path}"]).cases
    first = folder / "x.1.et"
    first.write_bytes(first.read_bytes()[:-1])
    for path in ("ranks", "ranks/x.0.et"):
        with pytest.raises(InputError, match=r"x\.1\.et: byte \d+: ends within a message"):
            load(scenario, [f"workloads.0.trace={path}"])


def test_only_a_placement_is_blamed_on_the_placement(scenario: Path) -> None:
    def broken(*_: object) -> NoReturn:
        raise ValueError("none of a placement's")

    with patch.object(reading, "read_trace", broken), pytest.raises(ValueError, match="none of a"):
        load(scenario)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("workloads.0.placement=[0, 1]", "must list 4 GPUs, one for each rank, got 2"),
        ("workloads.0.placement=[0, 1, 2, 4]", "must be GPUs 0 to 3, got 4"),
        ("workloads.0.placement=[0, 0, 0, 0]", "no GPU sends to another GPU"),
        ("workloads.0.placement=spiral", "must be 'wrap', 'block' or 'rails', got 'spiral'"),
        ("workloads.0.trace=/nowhere", "--set workloads.0.trace: /nowhere: not found"),
        ("workloads.0.trace=x.yaml", "x.yaml: is a scenario, must be a trace"),
        ("workloads.0.sise_scale=1", "did you mean 'size_scale'?"),
        ("check_data=true", "check_data: cannot be combined with a trace"),
        ("workloads.0.size_scale=auto", None),
        ("workloads.0.time_dilation=auto", "cannot be combined with size_scale"),
    ],
)
def test_what_does_not_fit_is_refused(scenario: Path, change: str, said: str | None) -> None:
    if said is None:
        assert load(scenario, [change], TWO_CORES).cases[0].size_scale > 1
        return
    with pytest.raises(InputError) as refused:
        load(scenario, [change])
    assert said in str(refused.value)


def test_what_is_left_out_explains_why_nothing_is_sent(scenario: Path) -> None:
    (scenario.parent / "own.matrix").write_text("5 0\n0 5\n")
    said = r"no GPU sends to another GPU \(not replayed: 10 bytes of ranks to themselves"
    with pytest.raises(InputError, match=said):
        load(scenario, ["workloads.0.trace=own.matrix"])


def test_a_part_of_a_byte_is_told(scenario: Path) -> None:
    (scenario.parent / "parts.matrix").write_text("0 1.5M 5.5 7\n" + "1 1 1 1\n" * 3)
    changes = ["workloads.0.trace=parts.matrix", "allow_overload=true"]
    left_out = load(scenario, changes).cases[0].task.left_out
    assert "parts of bytes of 1 number; `size` multiplies fractions" in left_out


def test_compute_of_more_than_a_day_of_emulated_time_is_refused(scenario: Path) -> None:
    trace = scenario.parent / "pipeline.goal"
    trace.write_text(trace.read_text().replace("calc 1000000", "calc 1000000000000"))
    loaded = load(scenario)
    with pytest.raises(InputError, match=r"x\.yaml:3 workloads\.0: cannot be executed: must comp"):
        loaded.cases[0].schedule(loaded.fabrics[0])
