"""The benchmarks' own arithmetic; their measurements need a fabric."""

import json
import re
from collections.abc import Iterator
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.bench import bench
from model.errors import EmulationError, OutOfTolerance
from model.fabric.build import build_topology
from model.fabric.spec import COMPARED, Datapath, FabricSpec
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import streams
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.scenario import Scenario
from studies.benchmarks import BENCHMARKS, Needs, data_plane, published, traces
from studies.benchmarks.accuracy import POINTS, accuracy
from studies.benchmarks.capacity import ON_RAILS, Ring
from studies.benchmarks.costs import exchange_size
from studies.benchmarks.data_plane import capacity, datapaths
from studies.benchmarks.rows import FAILED, SIXTEEN, Row, is_judged_right, part, sized
from tests.playground import SAMPLE
from traffic_gen.agents.client import programs_of
from traffic_gen.traces.formats.nodes import Defaults
from traffic_gen.traces.reading import read_trace

sizes = st.tuples(st.integers(2, 32), st.integers(2, 8))


@pytest.mark.parametrize(
    ("error", "right"),
    [
        (0.01, {"pass", "warn"}),
        (0.019, {"pass", "warn"}),
        (0.02, {"pass", "warn", "fail"}),
        (0.03, {"pass", "warn", "fail"}),
        (0.031, {"warn", "fail"}),
        (0.08, {"warn", "fail"}),
        (0.081, {"fail"}),
        (3.0, {"fail"}),
    ],
)
def test_a_verdict_is_right_if_it_turns_in_time_and_not_too_early(
    error: float, right: set[str]
) -> None:
    verdicts = ("pass", "warn", "fail")
    assert {verdict for verdict in verdicts if is_judged_right(error, verdict)} == right


def test_a_part_that_ends_early_is_a_row_that_says_so() -> None:
    def rows() -> Iterator[Row]:
        yield {"case": "first"}
        raise OutOfTolerance("a link is slow\nwhat to do")

    assert list(part(rows(), gpus=16)) == [
        {"gpus": 16, "case": "first"},
        {"gpus": 16, FAILED: "a link is slow"},
    ]
    assert issubclass(OutOfTolerance, EmulationError)


@given(sizes)
def test_fabrics_of_all_sizes_have_the_same_sum_of_links(size: tuple[int, int]) -> None:
    spec = sized(*size)
    total = SIXTEEN.emulated_nic_bps * SIXTEEN.gpus
    assert spec.gpus == size[0] * size[1]
    assert spec.emulated_nic_bps * spec.gpus == pytest.approx(total, rel=1e-4)


@given(sizes)
def test_the_growth_benchmark_keeps_nics_busy_for_as_long_in_every_size(
    size: tuple[int, int],
) -> None:
    spec = sized(*size)
    across = exchange_size(spec) * (spec.domains - 1) / spec.domains
    assert across * 8 * 1514 / 1448 / spec.emulated_nic_bps == pytest.approx(10, rel=1e-3)


def test_the_self_check_lasts_as_long_at_every_rate() -> None:
    slow = load(LIBRARY / "self-check.yaml")
    fast = load(LIBRARY / "self-check.yaml", ["fabric.bandwidth_scale=800"])
    for one, other in zip(slow.cases, fast.cases, strict=True):
        assert other.emulated_bytes == pytest.approx(25 * one.emulated_bytes, rel=1e-5)


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(8, 15)), unique=True), st.integers(1, 3))
def test_every_transfer_of_streams_is_sent_and_received_once(
    pairs: list[tuple[int, int]], rounds: int
) -> None:
    sent = streams([(source, destination, 1000) for source, destination in pairs], rounds)
    built = programs_of(range(16), sent, {(*pair, 0): "10.0.0.1" for pair in pairs}, sized(2, 8))
    begun = sorted(entry[0] for program in built.values() for entry in program["sends"])
    received = sorted(entry[0] for program in built.values() for entry in program["receives"])
    assert begun == received == list(range(len(pairs) * rounds))
    for rank, program in built.items():
        assert program["rank"] == rank
        assert set(program["peers"]) == {entry[1] for entry in program["sends"]}


@pytest.mark.parametrize(("judged", "fails"), [((True, True), False), ((True, False), True)])
def test_a_benchmark_with_a_wrong_verdict_fails(
    judged: tuple[bool, ...],
    fails: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def routing(_store: Path) -> Iterator[Row]:
        yield from ({"judged_right": right} for right in judged)

    monkeypatch.setattr("studies.benchmarks.computation.routing", routing)
    assert bench("routing") is fails
    assert capsys.readouterr().out.count("judged_right") == len(judged)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_is_a_function_of_its_module(name: str) -> None:
    benchmark = BENCHMARKS[name]
    module = import_module(f"studies.benchmarks.{benchmark.module}")
    function = getattr(module, benchmark.function.rpartition(".")[2])
    assert benchmark.stores == ("store" in signature(function).parameters)


def test_needs_add_up() -> None:
    soak = BENCHMARKS["soak"].needs
    assert all(needs in soak for needs in (Needs.FABRIC, Needs.CONTAINERS, Needs.REAL_CLOCK))
    assert Needs.NOISE not in soak


@pytest.mark.parametrize("name", POINTS)
def test_points_of_a_benchmark_are_scenarios_that_load(name: str) -> None:
    for point in POINTS[name]():
        assert load(LIBRARY / f"{point.scenario}.yaml", point.changes).cases


def test_the_rows_of_a_run_are_its_cases_and_what_it_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = json.loads(SAMPLE.read_text())
    crafted = {**result["cases"][0], "generator": "scapy", "fidelity": {"verdict": "pass"}}
    result["cases"][0]["inference"] = {"latency_s": {"p50": {"measured": 2.0, "modeled": 1.0}}}
    result["interference"] = [{"job": "top", "alone_s": {"measured": 1.0, "modeled": 0.9}}]
    result["failures"] = [{"fault": "down", "fidelity": {"baseline": {"idle": 1}}, "times": []}]
    monkeypatch.setattr(
        "studies.benchmarks.accuracy.run",
        lambda *_: {**result, "cases": [*result["cases"], crafted]},
    )
    rows = list(accuracy(tmp_path, "spine-selection"))
    first = rows[: len(rows) // 3]
    assert {row["spine_selection"] for row in first} == {"destination"}
    assert [row["case"] for row in first if "ratio" in row] == [c["case"] for c in result["cases"]]
    assert [row["latency_s"] for row in first if "percentile" in row] == [2.0]
    assert [row["measured_alone_s"] for row in first if "job" in row] == [1.0]
    (failure,) = [row for row in first if "fault" in row]
    assert set(failure) == {"scenario", "proxies", "spine_selection", "fault"}


def test_a_benchmark_of_another_size_is_the_same_platform() -> None:
    assert sized(4, 4) == SIXTEEN


def test_a_ring_on_rails_fills_every_nic_link_in_both_directions() -> None:
    topology = build_topology(SIXTEEN)
    flows = ON_RAILS.flows(Mock(topology=topology))
    ranks = list(range(SIXTEEN.gpus))
    for ends in ([flow[0] for flow in flows], [flow[1] for flow in flows]):
        assert sorted(ends) == ranks
    for source, destination, size_bytes in flows:
        one, other = topology.gpus[source], topology.gpus[destination]
        assert (one.rail, one.domain) != (other.rail, other.domain)
        assert one.rail == other.rail
        assert size_bytes * 8 * 1514 / 1448 / SIXTEEN.emulated_nic_bps == pytest.approx(5, rel=1e-3)


@pytest.mark.parametrize(
    ("last", "kept_up"),
    [
        ({"ratio": 1.029, "verdict": "warn"}, [True, True, True]),
        ({"ratio": 1.031, "verdict": "pass"}, [True, False]),
        ({"ratio": 1.001, "verdict": "fail"}, [True, False]),
    ],
)
def test_the_capacity_of_a_datapath_ends_at_the_first_rate_that_it_does_not_keep_up(
    last: Row, kept_up: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    specs: list[FabricSpec] = []

    def at_once(spec: FabricSpec, rings: list[Ring], trials: int) -> Iterator[Row]:
        assert (rings, trials) == ([ON_RAILS], 1)
        specs.append(spec)
        yield last if len(specs) == 2 else {"ratio": 1.0, "verdict": "pass"}

    monkeypatch.setattr(data_plane, "at_once", at_once)
    rows = list(capacity(Datapath.USER_SPACE, (10, 20, 40)))
    assert [row["kept_up"] for row in rows] == kept_up
    assert [row["nic_mbit_per_s"] for row in rows] == [10, 20, 40][: len(rows)]
    assert [spec.emulated_nic_bps for spec in specs] == [
        row["nic_mbit_per_s"] * 1e6 for row in rows
    ]
    assert {spec.datapath for spec in specs} == {Datapath.USER_SPACE}


def test_datapaths_are_compared_by_costs_capacity_and_judged_ratios(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (case, *_) = json.loads(SAMPLE.read_text())["cases"]
    asked: list[Datapath | None] = []

    def run(scenario: Scenario, *_: object) -> dict[str, Any]:
        asked.append(scenario.fabrics[0].datapath)
        return {"cases": [case]}

    monkeypatch.setattr(data_plane, "_costs", lambda *_: [{"up_s": 1.0}])
    monkeypatch.setattr(data_plane, "capacity", lambda _: [{"kept_up": True}])
    monkeypatch.setattr(data_plane, "run", run)
    rows = list(datapaths(tmp_path))
    assert asked == list(Datapath)
    for datapath in Datapath:
        of = [row for row in rows if row["datapath"] == datapath]
        assert [row["fabric"] for row in of if "up_s" in row] == list(COMPARED)
        assert [row["gpus"] for row in of if "kept_up" in row] == [SIXTEEN.gpus]
        assert [row["case"] for row in of if "judged_right" in row] == [case["case"]]


def test_traces_are_written_in_four_formats_of_about_as_many_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"NODES": 400, "RANKS": 4, "LAYERS": 20, "BLOCKS": 4, "CHUNKS": 3}.items():
        monkeypatch.setattr(traces, name, value)
    read = [read_trace(path, Defaults(4, 48)) for path in traces.written(tmp_path)]
    # Around the ring, a GPU copies, sends and receives once, and passes two chunks on.
    assert [(trace.format, trace.ranks, len(trace)) for trace in read] == [
        ("Chakra", 4, 408),
        ("GOAL", 4, 408),
        ("AICB", 4, 400),
        ("MSCCL XML", 4, 4 * 4 * 3 * 7),
    ]


def test_what_others_published_has_its_address_and_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "BUILT_IN", {(Collective.ALL_REDUCE, "rings")})
    textbook, larger, forms, simulator, *reports = published.published(Path())
    for computed in (textbook, larger, forms):
        assert computed["deviation"] == pytest.approx(0, abs=1e-6)
    assert abs(simulator["deviation"]) < 1e-3
    assert len(reports) == len(published.REPORTS.read_text().splitlines()) - 1
    for row in reports:
        assert row["source"].startswith("https://")
        assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?", row["date"])
        assert row["deviation"] == pytest.approx(row["on_paper"] / row["published"] - 1)
