"""Statistics, verdicts, the JSON contract and the store."""

import dataclasses
import io
import json
from errno import ENOSPC
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.spec import FabricKind
from model.fabric.topology import Topology
from model.measurement.records import CaseExecutions, Repeat, TransferRecord
from model.prediction.fluid import Prediction, path_class, predict
from model.workload.schedule import Schedule
from model.workload.transfers.collective import Collective
from results.render.terminal import print_sections
from results.sections.run import run_sections
from results.sections.section import human_bytes, human_seconds
from results.store.records import plain
from results.store.runs import (
    SCHEMA,
    find_run,
    new_run_id,
    read_result,
    read_state,
    stored_runs,
)
from results.verdicts.model_comparison import CaseResult, Measured, Mismatch, busbw_factor, compare
from results.verdicts.run import RunResult
from results.verdicts.summary import summarize
from results.verdicts.verdict import Thresholds, Verdict, worst
from tests.unit.fabrics import spec, transfer_paths
from tests.unit.run_folders import begun_run
from traffic_gen.workloads.sized_collective import SizedCollective

LIMITS = Thresholds(warn=0.02, fail=0.05)


def modeled(
    kind: FabricKind, collective: Collective, algorithm: str
) -> tuple[Topology, Schedule, Prediction]:
    topology = build_topology(spec(kind, 2, 2, 2))
    schedule = SizedCollective(collective, algorithm, (2, 2), 4_000_000).steps()
    paths = transfer_paths(schedule.transfers, Epoch(topology), topology.job_gpus)
    return (
        topology,
        schedule,
        predict(
            schedule,
            [Epoch(topology)],
            dict.fromkeys((path_class(hops) for hops in paths if hops), 0),
        ),
    )


def repeat(number: int, seconds: float, **changes: Any) -> Repeat:
    facts: dict[str, Any] = {"complete": True, "errors": (), "records": (), "retransmitted": ()}
    return Repeat(
        number, **{**facts, **changes}, completion_s=seconds, start_skew_s=0, agents_cpu_s=0
    )


def result(
    ratio: float = 1.0,
    kind: FabricKind = FabricKind.RAIL_ONLY,
    collective: Collective = Collective.ALL_TO_ALL,
    algorithm: str = "two-step",
    **changes: Any,
) -> CaseResult:
    topology, schedule, prediction = modeled(kind, collective, algorithm)
    seconds = prediction.completion_s * ratio
    repeats = (repeat(0, seconds, **changes),)
    measured = Measured(topology, schedule, CaseExecutions(repeats), epoch=Epoch(topology))
    return compare(f"{kind}/{collective}/{algorithm}", measured, prediction, 10.0, LIMITS)


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=30))
def test_statistics_are_in_order(values: list[float]) -> None:
    summary = summarize(values)
    ordered = [summary.min, summary.p50, summary.p95, summary.p99, summary.max]
    assert ordered == sorted(ordered)
    assert summary.min <= summary.median <= summary.max
    assert summary.values == tuple(values)


def test_percentiles_and_the_interval_of_the_median_are_those_of_tables() -> None:
    """Nearest ranks; and of 100 values the 40th and the 61st enclose the median with 96.5 %."""
    for count in range(1, 201):
        summary = summarize([float(number) for number in range(count, 0, -1)])
        ranks = [-(-percent * count // 100) for percent in (50, 95, 99)]
        assert [summary.p50, summary.p95, summary.p99] == ranks
    interval = summarize([float(number) for number in range(1, 101)]).interval
    assert interval is not None
    assert (interval.low, interval.high) == (40, 61)
    assert interval.confidence == pytest.approx(0.9648, abs=1e-4)
    assert interval.away(50) == pytest.approx(11 / 50)


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.0, "pass"), (1.019, "pass"), (1.03, "warn"), (1.06, "fail")]
)
def test_the_verdict_follows_the_ratio(ratio: float, verdict: str) -> None:
    assert result(ratio).verdict.value == verdict


@given(st.lists(st.sampled_from(Verdict)))
def test_the_worst_verdict_wins(verdicts: list[Verdict]) -> None:
    expected = next((v for v in reversed(Verdict) if v in verdicts), Verdict.PASS)
    assert worst(verdicts) is expected


def test_a_measurement_below_the_bound_fails() -> None:
    case = result(0.5)
    assert case.verdict is Verdict.FAIL
    assert any("the testbed is wrong" in reason for reason in case.reasons)


@pytest.mark.parametrize("changes", [{"complete": False}, {"errors": ("rank 1: wrong",)}])
def test_wrong_and_incomplete_results_fail(changes: dict[str, Any]) -> None:
    assert result(1.0, **changes).verdict is Verdict.FAIL


def test_what_is_not_of_one_thing_is_not_compared() -> None:
    topology, schedule, prediction = modeled(
        FabricKind.RAIL_ONLY, Collective.ALL_TO_ALL, "two-step"
    )
    other = modeled(FabricKind.RAIL_OPTIMIZED, Collective.ALL_TO_ALL, "direct")
    for measured in (
        Measured(other[0], schedule, CaseExecutions((repeat(0, 1),))),
        Measured(topology, other[1], CaseExecutions((repeat(0, 1),))),
    ):
        with pytest.raises(Mismatch, match="prediction is for another"):
            compare("case", measured, prediction, 1.0, LIMITS)


def test_bandwidths_are_those_of_nccl_tests_on_the_real_platform() -> None:
    case = result(1.0, collective=Collective.ALL_REDUCE, algorithm="hierarchical")
    real_s = case.measured_s.median / case.work.time_dilation
    assert case.real_s == pytest.approx(real_s)
    real_bytes = case.work.bytes * case.work.size_scale
    reduced, exchanged = case.algbw_gbyte_per_s, result().algbw_gbyte_per_s
    assert reduced == pytest.approx(real_bytes / real_s / 1e9)
    assert reduced is not None
    assert case.busbw_gbyte_per_s == pytest.approx(reduced * 2 * 3 / 4)
    assert exchanged is not None
    assert result().busbw_gbyte_per_s == pytest.approx(exchanged * 3 / 4)


@pytest.mark.parametrize(("members", "factor"), [(None, None), (2, 1 / 2), (0, 3 / 4)])
def test_bus_bandwidth_is_of_communicators_if_they_are_of_one_size(
    members: int | None, factor: float | None
) -> None:
    topology, schedule, prediction = modeled(
        FabricKind.RAIL_ONLY, Collective.ALL_TO_ALL, "two-step"
    )
    asked = dataclasses.replace(schedule, members=members)
    measured = Measured(topology, asked, CaseExecutions((repeat(0, 1.0),)))
    case = compare("case", measured, prediction, 1.0, LIMITS)
    assert case.work.gpus == (4 if members == 0 else members)
    assert case.algbw_gbyte_per_s
    expected = None if factor is None else pytest.approx(case.algbw_gbyte_per_s * factor)
    assert case.busbw_gbyte_per_s == expected


BUSBW_FACTORS_OF_4 = {
    Collective.ALL_REDUCE: 3 / 2,
    Collective.ALL_GATHER: 3 / 4,
    Collective.REDUCE_SCATTER: 3 / 4,
    Collective.ALL_TO_ALL: 3 / 4,
    Collective.BROADCAST: 1,
    Collective.REDUCE: 1,
    Collective.GATHER: 3 / 4,
    Collective.SCATTER: 3 / 4,
    Collective.SEND_RECV: 1,
}


@pytest.mark.parametrize("collective", Collective)
def test_every_collective_has_its_own_bus_bandwidth(collective: Collective) -> None:
    """The table of PERFORMANCE.md of nccl-tests, for 4 GPUs."""
    assert busbw_factor(collective, 4) == BUSBW_FACTORS_OF_4[collective]


def both_fabrics() -> list[CaseResult]:
    return [
        result(1.01),
        result(1.0, FabricKind.RAIL_OPTIMIZED, algorithm="direct"),
    ]


def test_the_contract() -> None:
    found = plain(RunResult("id", "scenario", Path("/folder"), both_fabrics()))
    assert list(found)[:6] == ["schema", "run_id", "scenario", "verdict", "folder", "cases"]
    assert found["schema"] == "railbed.run/2"
    case = found["cases"][0]
    assert case["fabric"] == {
        "kind": "rail-only",
        "domains": 2,
        "domain_size": 2,
        "platform": "dgx-h100",
    }
    wanted = "case collective algorithm gpus bytes bandwidth_scale time_dilation modeled_s ratio"
    assert set(wanted.split()) | {"algbw_gbyte_per_s", "busbw_gbyte_per_s"} <= case.keys()
    assert list(case["measured_s"]) == [
        "median",
        "p50",
        "p95",
        "p99",
        "min",
        "max",
        "values",
        "interval",
    ]
    assert case["ratio"] == pytest.approx(case["measured_s"]["median"] / case["modeled_s"])
    json.dumps(found)


def test_the_slowdown_is_against_the_fastest_rail_optimized_case() -> None:
    cases = [*both_fabrics(), result(1.0, FabricKind.RAIL_OPTIMIZED)]
    (slowdown,) = plain(RunResult("id", "scenario", Path(), cases))["slowdowns"]
    assert slowdown["baseline"] == "rail-optimized/all-to-all/direct"
    two_step, direct = (
        modeled(kind, Collective.ALL_TO_ALL, algorithm)[2].completion_s
        for kind, algorithm in (
            (FabricKind.RAIL_ONLY, "two-step"),
            (FabricKind.RAIL_OPTIMIZED, "direct"),
        )
    )
    assert slowdown["modeled"] == pytest.approx(two_step / direct - 1)
    assert slowdown["measured"] == pytest.approx(1.01 * (1 + slowdown["modeled"]) - 1)


def overlapping(case: CaseResult, overlap: float | None) -> CaseResult:
    return dataclasses.replace(case, overlap=overlap)


def test_chunks_and_the_modeled_overlap_are_in_the_object_and_under_the_table() -> None:
    """Steps of an all-to-all that follow one another do not overlap."""
    case = result()
    assert case.work.chunks == 16
    assert case.overlap == pytest.approx(0, abs=0.01)
    found = plain(RunResult("id", "scenario", Path(), [overlapping(case, 0.251)]))
    assert (found["cases"][0]["chunks"], found["cases"][0]["overlap"]) == (16, 0.251)
    text = io.StringIO()
    print_sections(run_sections(found), Console(file=text, width=80))
    lines = [line.split() for line in text.getvalue().splitlines()]
    assert ["all-to-all/two-step", "16", "25.1%"] in lines


def test_a_run_without_a_known_overlap_has_no_table_of_it() -> None:
    text = io.StringIO()
    found = plain(RunResult("id", "scenario", Path(), [overlapping(result(), None)]))
    print_sections(run_sections(found), Console(file=text, width=80))
    assert "overlap" not in text.getvalue().lower()


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_shows_all_and_cuts_nothing(width: int) -> None:
    text = io.StringIO()
    found = plain(RunResult("id", "scenario", Path("/folder"), both_fabrics()))
    print_sections(run_sections(found), Console(file=text, width=width))
    for word in ("two-step", "direct", "pass", "against direct", "/ 20000", "/ 10"):
        assert word in text.getvalue()
    assert "…" not in text.getvalue()


def test_what_auto_chose_is_in_the_object_and_under_the_table() -> None:
    scales = [{"key": "bandwidth_scale", "value": 15000.0, "why": "data takes 49%"}]
    found = plain(RunResult("id", "scenario", Path(), both_fabrics(), scales=scales))
    assert found["scales"] == scales
    text = io.StringIO()
    print_sections(run_sections(found), Console(file=text, width=120))
    assert "bandwidth_scale: auto is 15000: data takes 49%" in text.getvalue()


def test_quantities_for_people() -> None:
    assert human_bytes(11_375_000) == "11.4 MB"
    assert human_bytes(12) == "12 B"
    assert human_seconds(0.000585) == "585 us"
    assert human_bytes(999_700) == "1 MB"
    assert [human_seconds(s) for s in (0.0009998, 0.9996, 1234.5)] == ["1 ms", "1 s", "1230 s"]
    assert [human_seconds(s) for s in (0.0, 2.5e-10, None)] == ["0 ns", "0.25 ns", "-"]


@given(st.floats(1e-10, 1e5))
def test_no_quantity_has_an_exponent(value: float) -> None:
    assert "e" not in human_seconds(value) + human_bytes(value * 1e9)


def test_a_run_folder_keeps_everything(tmp_path: Path) -> None:
    topology, schedule, prediction = modeled(
        FabricKind.RAIL_ONLY, Collective.ALL_TO_ALL, "two-step"
    )
    run_id = new_run_id("quick")
    folder = begun_run(tmp_path, run_id, "text: 1\n", {"kernel": "6"})
    folder.begin_case("a/b", topology, prediction)
    records = tuple(
        TransferRecord(0, t.id, t.source, t.destination, 1, 2, 3, 4, 5) for t in schedule.transfers
    )
    done = repeat(0, 1.0, records=records)
    folder.add_repeat("a/b", done)
    executions = CaseExecutions((repeat(2, 1.0),), (done,), (repeat(1, 1.0),))
    folder.end_case("a/b", executions, {"link": {"sent": 1}}, {"link": {"sent": 2}})
    with folder.locked(), pytest.raises(InputError, match="is running"):
        read_result(folder.path)
    with pytest.raises(InputError, match="the run is ended: its process is gone"):
        read_result(folder.path)
    kept = {"schema": SCHEMA, "run_id": run_id, "folder": str(folder.path)}
    folder.complete(kept)
    assert read_result(find_run(tmp_path, "latest")) == kept
    assert read_result(find_run(tmp_path, run_id[:-1])) == kept
    assert stored_runs(tmp_path) == [folder.path]
    rows = (folder.path / "a_b" / "transfers.csv").read_text().splitlines()
    assert len(rows) == 1 + len(records)
    kept_repeats = json.loads((folder.path / "a_b" / "repeats.json").read_text())
    told_apart = [(row["number"], row["warmup"], row["disturbed"]) for row in kept_repeats]
    assert told_apart == [(0, True, False), (1, False, True), (2, False, False)]


@pytest.mark.parametrize("cause", ["no space left", "\x00" * 10_000])
def test_a_run_that_filled_the_disk_is_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    folder = begun_run(tmp_path, "r1", "", {})
    full = Mock(side_effect=OSError(ENOSPC, "No space left on device"))
    monkeypatch.setattr("results.store.runs.write_json", full)
    folder.incomplete(cause)
    assert (folder.path / "state.json").stat().st_size <= 4096
    state = read_state(folder.path)
    assert (state["state"], cause.startswith(state["cause"])) == ("incomplete", True)


def test_a_broken_run_says_why(tmp_path: Path) -> None:
    folder = begun_run(tmp_path, "r1", "", {})
    folder.incomplete("the controller died")
    assert read_state(folder.path) == {"state": "incomplete", "cause": "the controller died"}
    with pytest.raises(InputError, match="the controller died"):
        read_result(folder.path)
    with pytest.raises(InputError, match="no run named 'other'"):
        find_run(tmp_path, "other")
    with pytest.raises(InputError, match=r"has no runs .*railbed run"):
        find_run(tmp_path / "empty", "latest")
