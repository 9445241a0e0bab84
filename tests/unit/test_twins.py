"""Twins of the paper's figures: their scenarios, what is stored, and the page."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from model.errors import InputError
from model.fabric.platforms import PLATFORMS
from model.fabric.topology import build_topology
from model.measurement.records import Repeat, TransferRecord
from model.prediction.fluid import Prediction
from model.training.steps import DIMENSIONS, IterationSteps
from results.store.runs import RunFolder, digest_of
from results.tables.paper import print_measured
from scenarios.execution.progress import Lines
from scenarios.loader import load
from scenarios.planning.schedules import case_schedule
from scenarios.spec.scenario import Scenario
from scenarios.twins.comparison import measured_object
from scenarios.twins.measuring import measure, scenario_of
from scenarios.twins.page import write_page
from scenarios.twins.points import ALL_TO_ALL, GPUS, TWINS, Twin
from scenarios.twins.recorded_traffic import recorded_traffic


def result_of(scenario: Scenario) -> dict[str, Any]:
    """A run whose cases take 2 s less for each GPU of a domain, and 1 % more than modeled."""
    modeled_s = 40.0 - 2 * scenario.fabrics[0].domain_size
    return {
        "schema": "railbed.run/1",
        "run_id": f"run-{digest_of(scenario.text)[:8]}",
        "scenario_digest": digest_of(scenario.text),
        "verdict": "pass",
        "machine": {"cores": 2, "kernel": "6.18"},
        "cases": [
            {
                "case": case.name,
                "algorithm": case.algorithm,
                "measured_s": {"median": 1.01 * modeled_s, "values": [1.01 * modeled_s]},
                "modeled_s": modeled_s,
                "ratio": 1.01,
                "verdict": "pass",
                "reasons": [],
            }
            for case in scenario.cases
        ],
        "slowdowns": [
            {"case": case.name, "baseline": "…", "measured": 0.12, "modeled": 0.11}
            for case in scenario.cases
            if case.kind == "rail-only"
        ],
    }


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: f"{twin.figure}-{twin.place}")
def test_every_twin_has_16_gpus_and_nics_that_can_be_emulated(twin: Twin) -> None:
    for spec in scenario_of(twin).fabrics:
        assert spec.gpus == GPUS
        assert 5e6 <= spec.emulated_nic_bps <= spec.emulated_hb_bps <= 250e6


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
        RunFolder.create(tmp_path, result["run_id"], scenario.text, {}).complete(result)
        return result

    with pytest.raises(KeyboardInterrupt):
        measure(TWINS, tmp_path, run, lines)
    assert "point 1 of 9 begins; remaining time not known yet" in out.getvalue()
    before, ran = ran, []
    results = measure(TWINS[:5], tmp_path, run, lines)
    assert len(results) == 5
    assert ran == [scenario_of(twin).text for twin in TWINS[3:5]]
    assert not set(before) & set(ran)
    assert out.getvalue().count("stored as run-") == 3


def test_a_run_of_another_scenario_does_not_count(tmp_path: Path) -> None:
    changed = Twin("fig8", "1", "paper-fig8", (*TWINS[0].changes, "repeats=2"))
    lines = Lines(Console(quiet=True))
    ran: list[str] = []

    def run(scenario: Scenario) -> dict[str, Any]:
        ran.append(scenario.text)
        result = result_of(scenario)
        RunFolder.create(tmp_path, result["run_id"], scenario.text, {}).complete(result)
        return result

    measure([changed, TWINS[0]], tmp_path, run, lines)
    assert len(ran) == 2


def test_the_page_has_every_point_beside_the_model_at_both_sizes(tmp_path: Path) -> None:
    found = measured_object(TWINS, [result_of(scenario_of(twin)) for twin in TWINS])
    assert found["verdict"] == "pass"
    assert {row["platform"] for row in found["all_to_all"]} == set(PLATFORMS)
    largest = [row for row in found["fig8"] if row["domain_size"] == 8]
    assert [(row["measured"], row["modeled"], row["at_scale"]) for row in largest] == [
        (1, 1, 1)
    ] * 2
    assert all(row["at_scale"] >= 1 for row in found["fig8"])
    page = write_page(found, tmp_path / "figures")
    text = page.read_text()
    for row in ("| fig8 | 1 | rail-only/iteration/gpt-146b | 38.380 s | 38.000 s | 1.0100 |",):
        assert row in text
    assert text.count(f"| {ALL_TO_ALL} |") == 3 * len(PLATFORMS)
    assert "| dgx-h100 | 11.1% | 12.0% | 11.0% |" in text
    assert (page.parent / "measured-fig8.svg").exists()
    out = io.StringIO()
    print_measured({**found, "page": str(page)}, Console(file=out, width=160))
    assert "fig8, 1: rail-only/iteration/gpt-146b" in out.getvalue()


ITERATION = """\
fabric: {domains: 4, domain_size: 4, platform: dgx-a100, bandwidth_scale: 10000, kinds: rail-only}
workloads:
  - {iteration: gpt-146b, microbatches: 2, time_dilation: 2}
  - {collective: all-reduce, algorithm: ring, size: 1 MB}
"""


def recorded(folder: Path, *, complete: bool) -> tuple[Path, IterationSteps]:
    """A run of an iteration, with records as of agents; its last execution may have a hole."""
    file = folder / "some.yaml"
    file.write_text(ITERATION)
    scenario = load(file)
    case, (spec,) = scenario.cases[0], scenario.fabrics
    steps = case_schedule(case, spec)
    assert isinstance(steps, IterationSteps)
    run = RunFolder.create(folder / "runs", "run-1", scenario.text, {})
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
                step.size_bytes,
                1,
                1,
                0 if hole and step.id == 7 else 2,
                2,
            )
            for step in steps.transfers
        )
        run.add_repeat(case.name, Repeat(number, not hole, 1.0, 0.0, 0.0, 0, (), records))
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


def test_a_run_without_a_whole_iteration_is_a_sentence(tmp_path: Path) -> None:
    run, _ = recorded(tmp_path, complete=False)
    with pytest.raises(InputError, match="gpt-146b has no whole execution"):
        recorded_traffic(run)
    with pytest.raises(InputError, match="has no iteration 'rail-only/all-reduce/ring'"):
        recorded_traffic(run, "rail-only/all-reduce/ring")
