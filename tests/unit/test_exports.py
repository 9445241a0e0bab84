"""Exports of what ran: files of other tools, which read as what ran."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings

from commands.export import export as command
from commands.export_nccl_tests import export_nccl_tests
from commands.export_simulators import Ran, export_chakra, export_htsim
from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.job_grid import JobGrid
from model.measurement.records import CaseExecutions, TransferRecord
from model.prediction.fluid import path_class, predict
from model.workload.schedule import Steps
from model.workload.trace import Trace, trace_of
from model.workload.transfers.columns import NONE
from results.store.records import plain
from results.verdicts.model_comparison import Measured, compare
from results.verdicts.run import RunResult
from results.verdicts.verdict import Thresholds
from scenarios.library_files import LIBRARY
from scenarios.load import load
from tests.unit.fabrics import transfer_paths
from tests.unit.run_folders import begun_run
from tests.unit.test_results import repeat
from tests.unit.test_traces import MESSAGES
from tests.unit.traces import same
from traffic_gen.traces.formats.chakra_writing import chakra_files
from traffic_gen.traces.rank_placement import PlacementRule, placed
from traffic_gen.traces.reading import read_trace, trace_in
from traffic_gen.traces.replay import Replay

SCENARIO = f"""\
fabric: {{domains: 2, domain_size: 2, platform: dgx-h100, bandwidth_scale: 20000}}
workloads:
  - {{trace: {LIBRARY / "traces" / "pipeline.goal"}, size_scale: 100, kinds: rail-only}}
  - {{collective: all-reduce, algorithm: ring, size: 8 MB, size_scale: 4, kinds: rail-only}}
  - {{collective: all-reduce, algorithm: ring, size: 4 MB, size_scale: 4, kinds: rail-only}}
"""

PLACES = "out_of_place", "in_place"
SUMMED_UP = "out_of_bounds", "average_bus_bandwidth"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stored run whose executions took what the model says."""
    folder = tmp_path_factory.mktemp("store")
    (folder / "x.yaml").write_text(SCENARIO)
    scenario = load(folder / "x.yaml")
    store = begun_run(folder, "run-a", scenario.text, {})
    (spec,) = (spec for spec in scenario.fabrics if spec.kind is scenario.cases[0].kind)
    topology, results = build_topology(spec), []
    for case in scenario.cases:
        steps = case.schedule(spec)
        paths = transfer_paths(steps.transfers, Epoch(topology), topology.job_gpus)
        latencies = {path_class(hops): 1e-3 for hops in paths if hops}
        prediction = predict(steps, [Epoch(topology)], latencies)
        execution = repeat(
            0, prediction.completion_s, records=_records(steps, prediction.arrival_s)
        )
        store.begin_case(case.name, topology, prediction)
        store.add_repeat(case.name, execution)
        store.end_case(case.name, CaseExecutions((execution,)), {}, {})
        measured = Measured(topology, steps, CaseExecutions((execution,)))
        results.append(compare(case.name, measured, prediction, case.size_scale, Thresholds(1, 2)))
    store.complete(plain(RunResult("run-a", "x", store.path, results)))
    return store.path


def _records(steps: Steps, arrival_s: Sequence[float]) -> tuple[TransferRecord, ...]:
    """Records of an execution as modeled; transfers begin 1 us before they arrive."""
    moments = [round(moment_s * 1e9) for moment_s in arrival_s]
    took = [step.compute_ns or 1000 for step in steps.transfers]
    return tuple(
        TransferRecord(0, s.id, s.source, s.destination, s.size_bytes, at - ns, at, at, at)
        for s, at, ns in zip(steps.transfers, moments, took, strict=True)
    )


def test_chakra_traces_read_as_what_ran(run: Path, tmp_path: Path) -> None:
    files = export_chakra(run, tmp_path)
    assert len(files) == 3 * 4
    scenario = load(run / "scenario.yaml")
    for case in scenario.cases:
        name = case.name.replace("/", "_")
        found = read_trace(tmp_path / f"{name}.0.et")
        assert found.format == "Chakra"
        assert same(found, trace_of(case.schedule(scenario.fabrics[0]).transfers, 4))


@settings(max_examples=30)
@given(MESSAGES)
def test_the_trace_of_a_replay_replays_as_it_did(trace: Trace) -> None:
    ran = _replayed(trace).transfers
    again = _replayed(trace_in(chakra_files(trace_of(ran, trace.ranks)))).transfers
    keys = [
        sorted(
            (s.source, s.destination, s.size_bytes, s.compute_ns // 1000, len(s.after)) for s in of
        )
        for of in (ran, again)
    ]
    assert keys[0] == keys[1]


def _replayed(trace: Trace) -> Steps:
    grid = JobGrid(1, trace.ranks)
    return Replay(trace, "x", placed(PlacementRule.WRAP, trace.ranks, grid), grid).steps()


def test_compute_waits_for_what_had_its_turn_before_it(tmp_path: Path) -> None:
    """The second calculation began first; the third had a processor of its own."""
    calculations = "calc 3000\ncalc 2000\ncalc 5000 cpu 1\nsend 1b to 1\n"
    ranks = f"rank 0 {{\n{calculations}}}\nrank 1 {{\nrecv 1b from 0\n}}\n"
    steps = _replayed(trace_in([f"num_ranks 2\n{ranks}".encode()]))
    turns = {3000: (2000, 5000), 2000: (0, 2000), 5000: (0, 5000), 0: (0, 9)}
    begun, ended = np.array([turns[step.compute_ns] for step in steps.transfers]).T
    moved = {"started_ns": begun, "arrived_ns": ended, "confirmed_ns": ended}
    with patch("commands.export_simulators.cases_that_ran", return_value=[Ran("x", steps, moved)]):
        export_chakra(tmp_path, tmp_path)
    again = _replayed(read_trace(tmp_path / "x.0.et")).transfers
    assert (again.processor == NONE).all()
    waits = {
        step.compute_ns: [again[earlier].compute_ns for earlier in step.after] for step in again
    }
    assert waits == {3000: [2000], 2000: [], 5000: [], 0: []}


def test_connections_of_htsim_begin_as_the_transfers_did(run: Path, tmp_path: Path) -> None:
    (matrix,) = (file for file in export_htsim(run, tmp_path) if "pipeline" in file.name)
    lines = matrix.read_text().splitlines()
    assert lines[:2] == ["Nodes 4", "Connections 6"]
    assert len(lines) == 8
    assert lines[2].split()[0] == "0->1"
    starts = [int(line.split()[4]) for line in lines[2:]]
    assert all(line.split()[3::2] == ["start", "size"] for line in lines[2:])
    assert min(starts) >= 200_000_000_000  # picoseconds: the first stage computes for 0.2 s
    assert lines[2].endswith("size 320000")


def test_a_table_of_nccl_tests(run: Path, tmp_path: Path) -> None:
    table, document = export_nccl_tests(run, tmp_path)
    rows = [line.split() for line in table.read_text().splitlines() if not line.startswith("#")]
    result = json.loads((run / "result.json").read_text())
    cases = {case["bytes"] * case["size_scale"]: case for case in result["cases"][1:]}
    assert [int(row[0]) for row in rows] == [4_000_000, 8_000_000] == sorted(cases)
    for row in rows:
        case = cases[int(row[0])]
        assert float(row[5]) == pytest.approx(case["real_s"] * 1e6, abs=0.01)
        assert float(row[7]) == pytest.approx(case["busbw_gbyte_per_s"], abs=0.01)
        assert row[8] == "N/A"
    found = json.loads(document.read_text())
    assert [row["size"] for row in found["results"]] == [4_000_000, 8_000_000]
    assert {row[place]["nwrong"] for row in found["results"] for place in PLACES} == {None}
    assert [found[of]["okay"] for of in SUMMED_UP] == ["true", "unchecked"]
    busbw = [case["busbw_gbyte_per_s"] for case in cases.values()]
    assert found["average_bus_bandwidth"]["bandwidth"] == pytest.approx(sum(busbw) / 2)


@contextmanager
def only(run: Path, cases: list[dict[str, Any]]) -> Iterator[None]:
    """Let the run have these cases alone."""
    place = run / "result.json"
    text = place.read_text()
    try:
        place.write_text(json.dumps({**json.loads(text), "cases": cases}))
        yield
    finally:
        place.write_text(text)


def test_a_run_without_collectives_has_no_table(run: Path, tmp_path: Path) -> None:
    (iteration, *_) = json.loads((run / "result.json").read_text())["cases"]
    broken = {**iteration, "incomplete": True}
    hints: list[tuple[list[dict[str, Any]], str]] = [
        ([iteration, broken], "chakra or htsim"),
        ([broken], "json"),
        ([], "json"),
    ]
    for cases, hint in hints:
        said = rf"needs a timed collective without faults \(use --format {hint}\)"
        with only(run, cases), pytest.raises(InputError, match=said):
            export_nccl_tests(run, tmp_path)


@pytest.mark.parametrize("export", [export_chakra, export_htsim])
def test_a_run_of_faults_alone_is_refused(
    run: Path, tmp_path: Path, export: Callable[[Path, Path], list[Path]]
) -> None:
    with only(run, []), pytest.raises(InputError, match="needs a complete execution of a case"):
        export(run, tmp_path)


@pytest.mark.parametrize("export", [export_chakra, export_htsim])
def test_a_case_that_broke_off_is_left_out(
    run: Path, tmp_path: Path, export: Callable[[Path, Path], list[Path]]
) -> None:
    """As the records of crafted packets, of which some were lost."""
    broken = shutil.copytree(run, tmp_path / run.name)
    cases = json.loads((run / "result.json").read_text())["cases"]
    repeats = broken / cases[0]["case"].replace("/", "_") / "repeats.json"
    repeats.write_text(repeats.read_text().replace('"complete": true', '"complete": false'))
    whole = export(run, tmp_path / "whole")
    with only(broken, [{**cases[0], "incomplete": True}, *cases[1:]]):
        left = export(broken, tmp_path / "left")
    assert {file.name for file in left} == {f.name for f in whole if "pipeline" not in f.name}


def test_each_generator_has_a_table_but_of_cases_whose_data_was_checked(
    run: Path, tmp_path: Path
) -> None:
    (_, *cases) = json.loads((run / "result.json").read_text())["cases"]
    timed = [{**cases[0], "generator": name} for name in ("agent", "iperf3")]
    checked = [
        {**cases[1], "generator": name, "data_is_right": right}
        for name, right in (("agent", True), ("scapy", False))
    ]
    with only(run, timed + checked):
        tables = [file for file in export_nccl_tests(run, tmp_path) if file.suffix == ".txt"]
    name = "rail-only_all-reduce_ring"
    assert [file.name for file in tables] == [f"{name}.txt", f"{name}_iperf3.txt"]
    assert tables[1].read_text().startswith("# Railbed: rail-only/all-reduce/ring/iperf3, 4 ranks")
    assert all(
        len(json.loads(file.with_suffix(".json").read_text())["results"]) == 1 for file in tables
    )
    with only(run, checked), pytest.raises(InputError, match="needs a timed collective"):
        export_nccl_tests(run, tmp_path)


@pytest.mark.parametrize(
    ("collective", "count"),
    [
        ("all-reduce", 2_000_000),
        ("broadcast", 2_000_000),
        ("all-gather", 500_000),
        ("reduce-scatter", 500_000),
        ("all-to-all", 500_000),
        ("send-recv", 2_000_000),
    ],
)
def test_the_count_of_a_table_is_as_nccl_tests_print_it(
    run: Path, tmp_path: Path, collective: str, count: int
) -> None:
    (_, case, _) = json.loads((run / "result.json").read_text())["cases"]
    with only(run, [{**case, "collective": collective}]):
        table, document = export_nccl_tests(run, tmp_path)
    (row,) = (line.split() for line in table.read_text().splitlines() if line[0] != "#")
    assert [int(cell) for cell in row[:2]] == [8_000_000, count]
    assert json.loads(document.read_text())["results"][0]["count"] == count


def test_algorithms_with_dots_have_a_table_each(run: Path, tmp_path: Path) -> None:
    (_, case, _) = json.loads((run / "result.json").read_text())["cases"]
    with only(run, [{**case, "algorithm": name} for name in ("ring", "ring.v1", "ring.v2")]):
        written = export_nccl_tests(run, tmp_path)
    names = [f"rail-only_all-reduce_{name}" for name in ("ring", "ring.v1", "ring.v2")]
    wanted = [f"{name}.{end}" for name in names for end in ("txt", "json")]
    assert [file.name for file in written] == wanted


def test_a_target_that_is_a_file_is_named_and_the_run_is_not(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"^\S*/file: cannot be written"):
        command(run.name, "csv", tmp_path / "file", run.parent)


def test_what_ran_is_exported_though_its_steps_are_too_short_for_this_machine(
    run: Path, tmp_path: Path
) -> None:
    elsewhere = shutil.copytree(run, tmp_path / run.name)
    strict = "expect: {ratio_within: 1.0e-6, ratio_limit: 1.0e-6}\n"
    with (elsewhere / "scenario.yaml").open("a") as file:
        file.write(strict)
    with pytest.raises(InputError, match="timers are late"):
        load(elsewhere / "scenario.yaml")
    assert export_chakra(elsewhere, tmp_path)


def test_other_steps_than_those_that_ran_are_refused(run: Path, tmp_path: Path) -> None:
    text = (run / "scenario.yaml").read_text()
    try:
        (run / "scenario.yaml").write_text(text.replace("size_scale: 100", "placement: rails"))
        with pytest.raises(InputError, match="has changed since the run"):
            export_chakra(run, tmp_path)
    finally:
        (run / "scenario.yaml").write_text(text)


@pytest.mark.parametrize("export", [export_chakra, export_htsim])
@pytest.mark.parametrize("name", ["repeats.json", "transfers.csv"])
def test_a_run_without_records_is_a_sentence(
    run: Path, tmp_path: Path, export: Callable[[Path, Path], list[Path]], name: str
) -> None:
    damaged = shutil.copytree(run, tmp_path / run.name)
    for records in damaged.glob(f"*/{name}"):
        records.unlink()
    with pytest.raises(InputError, match="no rows of rail-only"):
        export(damaged, tmp_path / "to")
