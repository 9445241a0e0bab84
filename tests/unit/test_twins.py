"""Twins of the paper's figures: their scenarios, what is stored, and the page."""

import io
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from execution.cases.progress import Lines
from execution.sweep.runner import human_remaining
from model.errors import InputError
from model.fabric.build import build_topology
from model.measurement.records import Repeat, TransferRecord
from model.prediction.fluid import Prediction
from model.training.steps import DIMENSIONS, IterationSteps
from results.render.terminal import print_sections
from results.sections.modeled import twins_sections
from results.store.runs import digest_of
from scenarios.load import load
from scenarios.scenario import Scenario
from studies.paper.study import PLATFORM_NAMES
from studies.twins import page as page_module
from studies.twins.comparison import measured_object, same_order, shown_rows
from studies.twins.page import DRAWINGS, HEAT_MAPS, HeatMap, draw_heat_maps, write_page
from studies.twins.points import (
    ALL_TO_ALL,
    DOMAINS,
    EXPERIMENTS,
    FAULTS,
    GPUS,
    TWINS,
    Twin,
    measure,
    planned,
    scenario_of,
    to_run,
)
from studies.twins.recorded_traffic import recorded_traffic
from tests.unit.run_folders import begun_run


def result_of(scenario: Scenario) -> dict[str, Any]:
    """A run that took 1 % more than modeled: 2 s less for each GPU of a domain, 10 s on GPUs."""
    modeled_s = 40.0 - 2 * scenario.fabrics[0].domain_size
    cases = () if scenario.has_faults else scenario.cases
    return {
        "schema": "railbed.run/2",
        "run_id": f"run-{digest_of(scenario.text)[:8]}",
        "scenario_digest": digest_of(scenario.text),
        "verdict": "pass",
        "machine": {"cores": 2, "kernel": "6.18"},
        "cases": [
            {
                "case": case.name,
                "algorithm": case.task.algorithm,
                "measured_s": {
                    "median": 1.01 * modeled_s,
                    "values": [part * modeled_s for part in (1.0, 1.01, 1.03)],
                },
                "modeled_s": modeled_s + (case.task.algorithm == "two-step"),
                "ratio": 1.01,
                "time_dilation": 20.0,
                "verdict": "pass",
                "reasons": [],
                "fidelity": {"verdict": "pass"},
            }
            for case in cases
        ],
        "failures": [failure_of(scenario.name, case.kind) for case in scenario.cases]
        if scenario.has_faults
        else [],
    }


def failure_of(scenario: str, kind: str) -> dict[str, Any]:
    """An experiment that lost 70 %, as modeled."""
    times = {"baseline_s": 1.0, "degraded_s": 1.7}
    modeled = {f"modeled_{key}": value for key, value in times.items()}
    seen = {"blackout_ms": None, "verdict": "pass", "fidelity": {"baseline": {"verdict": "pass"}}}
    return {"scenario": scenario, "fabric": kind, **times, **modeled, **seen}


@cache
def measured() -> dict[str, Any]:
    """The object of all twins, measured as above."""
    plan = planned(TWINS, Path("nowhere"))
    return measured_object(plan, [result_of(point.scenario) for point in plan])


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_every_twin_is_small_enough_to_be_emulated(twin: Twin) -> None:
    for spec in scenario_of(twin).fabrics:
        assert spec.gpus == GPUS or (twin.figure == ALL_TO_ALL and spec.domain_size == 4)
        assert 2.5e6 <= spec.emulated_nic_bps <= spec.emulated_hb_bps <= 250e6


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_a_twin_of_the_paper_must_agree_within_3_percent(twin: Twin) -> None:
    if twin.figure != FAULTS:
        assert scenario_of(twin).thresholds.fail == 0.03


def test_all_twins_together_take_less_than_an_hour() -> None:
    plan = planned(TWINS, Path("nowhere"))
    points = to_run(plan).values()
    assert len(points) < len(plan)  # figures 8 and 10 share points
    assert 0 < sum(point.estimated_s for point in points) < 0.75 * 3600


def test_what_is_stored_is_not_run_again(tmp_path: Path) -> None:
    """A measurement that ends after three points goes on with the fourth."""
    ran: list[str] = []
    out = io.StringIO()
    lines = Lines(Console(file=out, width=200))

    def run(scenario: Scenario) -> dict[str, Any]:
        if len(ran) == 3:
            raise KeyboardInterrupt
        ran.append(scenario.text)
        result = result_of(scenario)
        begun_run(tmp_path, result["run_id"], scenario.text, {}).complete(result)
        return result

    plan = planned(TWINS, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        measure(plan, run, lines)
    assert f"point 1 of {len(to_run(plan))} begins; about" in out.getvalue()
    before, ran = ran, []
    results = measure(planned(TWINS[:5], tmp_path), run, lines)
    assert len(results) == 5
    assert ran == [scenario_of(twin).text for twin in TWINS[3:5]]
    assert not set(before) & set(ran)
    assert out.getvalue().count("stored as run-") == 3


def test_points_of_two_figures_run_once(tmp_path: Path) -> None:
    ran: list[str] = []

    def run(scenario: Scenario) -> dict[str, Any]:
        ran.append(scenario.text)
        return result_of(scenario)

    ideal = [twin for twin in TWINS if twin.place.get("K") == GPUS]
    results = measure(planned(ideal, tmp_path), run, Lines(Console(quiet=True)))
    assert len(results) == len(ideal) == len(ran) + 1 == 7


def test_a_run_of_another_scenario_does_not_count(tmp_path: Path) -> None:
    changed = replace(TWINS[0], changes=(*TWINS[0].changes, "repeats=2"))
    result = result_of(scenario_of(changed))
    text = scenario_of(changed).text
    begun_run(tmp_path, result["run_id"], text, {}).complete(result)
    known, missing = (point.stored for point in planned([changed, TWINS[0]], tmp_path))
    assert known is not None
    assert (known["run_id"], missing) == (result["run_id"], None)


def kept(store: Path, result: dict[str, Any], scenario: Scenario) -> None:
    """Keep a run with this result, as the latest of a store."""
    number = len(list(store.glob("run-*")))
    run_id = f"{result['run_id']}-{number}"
    begun_run(store, run_id, scenario.text, {}).complete({**result, "run_id": run_id})


def stored_in(store: Path, twin: Twin) -> str | None:
    (point,) = planned([twin], store)
    return None if point.stored is None else point.stored["run_id"]


FAILED = {"verdict": "fail"}


def test_times_of_the_virtual_clock_do_not_count(tmp_path: Path) -> None:
    scenario = scenario_of(TWINS[0])
    result = result_of(scenario)
    kept(tmp_path, {**result, "clock": {"kind": "virtual"}}, scenario)
    assert stored_in(tmp_path, TWINS[0]) is None
    kept(tmp_path, result, scenario)
    kept(tmp_path, {**result, "clock": {"kind": "virtual"}}, scenario)
    assert stored_in(tmp_path, TWINS[0]) == f"{result['run_id']}-1"


def test_a_point_on_which_the_machine_did_not_keep_up_is_measured_again(tmp_path: Path) -> None:
    (twin, fault) = TWINS[0], next(twin for twin in TWINS if twin.figure == FAULTS)
    scenario, experiment = scenario_of(twin), scenario_of(fault)
    result, lost = result_of(scenario), result_of(experiment)
    kept(tmp_path, {**result, "cases": [{**result["cases"][0], "fidelity": FAILED}]}, scenario)
    phases = {"baseline": {"verdict": "pass"}, "during_fault": FAILED}
    kept(tmp_path, {**lost, "failures": [{**lost["failures"][0], "fidelity": phases}]}, experiment)
    assert [stored_in(tmp_path, one) for one in (twin, fault)] == [None, None]


def test_a_point_away_from_its_model_is_a_result(tmp_path: Path) -> None:
    scenario = scenario_of(TWINS[0])
    result = result_of(scenario)
    cases = [{**case, "verdict": "fail"} for case in result["cases"]]
    kept(tmp_path, {**result, "verdict": "fail", "cases": cases}, scenario)
    assert stored_in(tmp_path, TWINS[0]) == f"{result['run_id']}-0"


def test_remaining_time_follows_the_pace_of_the_points_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, now_s, out = planned(TWINS[:2], tmp_path), [0.0], io.StringIO()
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])

    def run(scenario: Scenario) -> dict[str, Any]:
        now_s[0] += 10 * plan[0].estimated_s
        return result_of(scenario)

    measure(plan, run, Lines(Console(file=out, width=200)))
    before, after = (line for line in out.getvalue().splitlines() if " begins; " in line)
    first_s, second_s = (point.estimated_s for point in plan)
    assert before.endswith(human_remaining(first_s + second_s))
    assert after.endswith(human_remaining(10 * second_s))


def test_iterations_are_over_their_base_measured_and_at_the_papers_scale() -> None:
    rows = measured()["iterations"]
    ideal = [row for row in rows if row["place"]["K"] == GPUS]
    assert [(row["measured"], row["modeled"], row["at_scale"]) for row in ideal] == [(1, 1, 1)] * 7
    assert all(row["at_scale"] >= 1 for row in rows if row["figure"] in ("fig8", "fig10"))
    small = next(row for row in rows if row["figure"] == "fig8" and row["place"]["K"] == 2)
    assert small["measured"] == pytest.approx(36 / 8)
    assert small["executions"] == pytest.approx([36 / 8 / 1.01, 36 / 8, 36 / 8 / 1.01 * 1.03])
    # 16 microbatches of 4096 sequences over 256 copies, twenty times slower.
    assert small["real_s"] == pytest.approx(16 * 1.01 * 36 / 20)
    batch = next(row for row in rows if row["place"].get("batch") == 512)
    assert batch["real_s"] == pytest.approx(2 * 1.01 * 36 / 20)


def test_gains_and_trends_are_beside_the_papers() -> None:
    found = measured()
    assert [(one["K"], one["faster_by"], one["paper"]) for one in found["gains"]] == [
        (2, "HB Tbit/s", 8.0),
        (2, "NIC Gbit/s", 35.9),
        (8, "HB Tbit/s", 13.3),
        (8, "NIC Gbit/s", 8.0),
    ]
    assert all(
        one["measured"] == 0 for one in found["gains"]
    )  # times that bandwidths do not change
    trends = {(one["figure"], one["of"]): one for one in found["trends"]}
    for model in ("gpt-146b", "gpt-1t"):
        assert trends["fig8", f"model {model}"]["same_order"] == 10
        assert trends["fig8", f"model {model}"]["pairs"] == 10
    assert trends[ALL_TO_ALL, "platforms, two-step"]["pairs"] == 7


def test_a_trend_counts_the_pairs_in_the_other_order() -> None:
    """The last two points are equal at scale, so their order does not count."""
    assert same_order([(3.0, 4.0), (2.0, 3.0), (2.5, 2.0), (1.0, 1.999)]) == {
        "same_order": 4,
        "pairs": 5,
    }


def test_what_rail_only_loses_is_over_the_direct_all_to_all() -> None:
    found = measured()
    assert {row["platform"] for row in found["all_to_all"]} == set(PLATFORM_NAMES)
    assert {row["y"] for row in found["all_to_all"]} == set(DOMAINS)
    first = found["all_to_all"][0]
    assert first["two_step"]["measured"] == 0
    assert first["two_step"]["modeled"] == pytest.approx(1 / 32)
    names = [row["workload"] for row in found["table2"]["performance"]]
    assert names == [
        "all-reduce/hierarchical",
        "iteration/gpt-1t",
        "iteration/moe-1.3b",
        "all-to-all/two-step",
        "all-to-all/two-step-pipelined",
    ]


def test_losses_are_modeled_at_scale_beside_the_experiments() -> None:
    found = measured()["failures"]
    (small, large) = found["at_scale"]
    assert (small["K"], large["K"]) == (8, 256)
    assert small["nic_link_to_one"] > small["nic_link"] > large["nic_link"] > 0
    assert small["domain"] == pytest.approx(8 / (32768 - 8))
    assert {row["experiment"] for row in found["experiments"]} == set(EXPERIMENTS)
    assert all(row["measured"] == pytest.approx(0.7) for row in found["experiments"])


def test_the_tables_of_the_documentation_have_every_point_order_and_claim() -> None:
    found = measured()
    rows = list(shown_rows(found))
    assert sum(row.get("points", 0) for row in rows) == len(found["points"])
    assert sum(row.get("pairs", 0) for row in rows) == sum(one["pairs"] for one in found["trends"])
    claims = {row["claim"]: row for row in rows if "claim" in row}
    assert claims["NIC bandwidth times four, K = 2: faster by"]["paper"] == pytest.approx(0.359)
    two_step = claims["all-to-all/two-step, dgx-h100: slower on rail-only by"]
    assert two_step["paper"] == pytest.approx(1 / 9)
    lost = {name.partition(",")[0] for name in claims} & set(EXPERIMENTS)
    assert lost == set(EXPERIMENTS)
    assert len(claims) == len(rows) - sum("points" in row or "pairs" in row for row in rows)


def test_the_page_has_every_point_beside_the_model_at_both_sizes(tmp_path: Path) -> None:
    found = measured()
    assert found["verdict"] == "pass"
    page = write_page(found, tmp_path / "figures")
    text = page.read_text()
    case = "rail-only/iteration/paper-gpt-1t"
    assert f"| fig8, model gpt-1t, K 2: {case} | 36.360 s | 3.0% | 36.000 s | 1.0100 |" in text
    assert "| dgx-h100 | 4 | 11.1% | 0.0% | 3.1% | 0.0% | 0.0% |" in text
    assert "| 8 | NIC bandwidth | 0.0% | 0.0% | 8.0% | 256 | 8% |" in text
    assert text.count(f"| {ALL_TO_ALL}, platform ") == 3 * len(found["all_to_all"])
    drawn = re.findall(r"\(measured-(.*)\.svg\)", text)
    assert all((page.parent / f"measured-{name}.svg").exists() for name in DRAWINGS)
    assert set(drawn) == {*DRAWINGS, *HEAT_MAPS}
    out = io.StringIO()
    print_sections(twins_sections({**found, "page": str(page)}), Console(file=out, width=160))
    assert "fig8, model gpt-1t, K 2: rail-only/iteration/paper-gpt-1t" in out.getvalue()


ITERATION = """\
fabric: {domains: 4, domain_size: 4, platform: dgx-a100, bandwidth_scale: 10000, kinds: rail-only}
workloads:
  - {iteration: gpt-146b, microbatches: 2, time_dilation: 2}
  - {collective: all-reduce, algorithm: ring, size: 1 MB}
"""


def recorded(folder: Path, *, complete: bool, part: int = 1) -> tuple[Path, IterationSteps]:
    """A run of an iteration, with records as of agents; its last execution may have a hole.

    The run's scale sent a `part` of the bytes that it would send today.
    """
    file = folder / "some.yaml"
    file.write_text(ITERATION)
    scenario = load(file)
    case, (spec,) = scenario.cases[0], scenario.fabrics
    steps = case.schedule(spec)
    assert isinstance(steps, IterationSteps)
    run = begun_run(folder / "runs", "run-1", scenario.text, {})
    topology = build_topology(spec)
    run.begin_case(case.name, topology, Prediction(topology.digest, steps.digest, 1.0, 0.0, ()))
    for number in range(2):
        hole = number == 1 or not complete
        records = tuple(
            TransferRecord(
                number,
                step.id,
                step.source,
                step.destination,
                step.size_bytes // part,
                1,
                1,
                0 if hole and step.id == 7 else 2,
                2,
            )
            for step in steps.transfers
        )
        run.add_repeat(case.name, Repeat(number, not hole, 1.0, 0.0, 0.0, (), (), records))
    return run.path, steps


def test_the_traffic_of_an_executed_iteration_is_that_of_its_records(tmp_path: Path) -> None:
    """Bytes of the real platform, by dimension, of the last execution without a hole."""
    run, steps = recorded(tmp_path, complete=True)
    name, found = recorded_traffic(run)
    assert name == "rail-only/iteration/gpt-146b"
    assert (found.gpus, found.domain_size) == (16, 4)
    sent = steps.transfers.size_bytes * 5000
    assert found.every.total == sent.sum()
    for number, dimension in enumerate(DIMENSIONS):
        assert found.flows[dimension].total == sent[steps.dimensions == number].sum()
    assert found.cross_rail_bytes() == 0


def test_recorded_traffic_is_the_platforms_whatever_scale_the_run_had(tmp_path: Path) -> None:
    run, steps = recorded(tmp_path, complete=True, part=7)
    _, found = recorded_traffic(run)
    assert found.every.total == pytest.approx(steps.transfers.size_bytes.sum() * 5000)


def test_heat_maps_are_drawn_from_the_records_of_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = recorded(tmp_path, complete=True)
    case = "rail-only/iteration/gpt-146b"
    twin = HeatMap("GPT-146B", "table2", {}, case)
    monkeypatch.setattr(page_module, "HEAT_MAPS", {"fig5": twin})
    point = {"figure": "table2", "place": {}, "case": case, "run_id": run.name}
    draw_heat_maps([point], run.parent, tmp_path / "figures")
    drawn = {file.name for file in (tmp_path / "figures").glob("*.svg")}
    assert drawn == {"fig5.svg", "measured-fig5.svg"}


def test_a_run_without_a_whole_iteration_is_a_sentence(tmp_path: Path) -> None:
    run, _ = recorded(tmp_path, complete=False)
    with pytest.raises(InputError, match="gpt-146b has no complete execution"):
        recorded_traffic(run)
    with pytest.raises(InputError, match="unknown iteration 'rail-only/all-reduce/ring'"):
        recorded_traffic(run, "rail-only/all-reduce/ring")
