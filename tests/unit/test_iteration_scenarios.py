"""Training iterations in scenario files, results and tables."""

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from commands.check import described
from model.errors import InputError
from model.fabric.build import build_topology
from model.measurement.records import CaseExecutions, Repeat, TransferRecord
from model.prediction.fluid import Prediction
from model.training.steps import IterationSteps, begins_s
from results.render.terminal import print_sections
from results.sections.run import run_sections
from results.store.records import plain
from results.verdicts.model_comparison import CaseResult, Measured, compare
from results.verdicts.run import RunResult
from results.verdicts.verdict import Thresholds
from scenarios.format.keys import ScenarioFile
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.planning.plan import plan
from scenarios.scenario import Scenario
from traffic_gen.workloads.training_iteration import Iteration

HEAD = "fabric: {domains: 2, domain_size: 4, platform: dgx-a100, bandwidth_scale: 10000}\n"
OWN = """\
layers: 4
hidden: 1024
heads: 8
sequence: 512
vocabulary: 1000
batch: 8
gpus: 16
platform: dgx-a100
recomputation: none
strategy: {tensor: 2, pipeline: 2, interleave: 1, microbatch: 1}
"""


def loaded(file: Path, entry: str, more: str = "") -> Scenario:
    file.write_text(f"{HEAD}workloads:\n  - {entry}\n{more}")
    return load(file)


def problems(file: Path, entry: str, more: str = "") -> list[str]:
    with pytest.raises(InputError) as caught:
        loaded(file, entry, more)
    return [str(problem) for problem in caught.value.problems]


def test_an_iteration_is_a_case_on_each_fabric_with_the_same_bytes(file: Path) -> None:
    Path("own.yaml").write_text(OWN)
    scenario = loaded(file, "{iteration: own.yaml, time_dilation: 50}")
    names = [case.name for case in scenario.cases]
    assert names == ["rail-only/iteration/own", "rail-optimized/iteration/own"]
    assert len({case.emulated_bytes for case in scenario.cases}) == 1
    assert {case.size_scale for case in scenario.cases} == {10000 / 50}


def test_iterations_that_differ_in_degrees_are_named_for_them(file: Path) -> None:
    second = "{iteration: gpt-146b, tensor: 4, pipeline: 1, microbatches: 3, kinds: rail-only}"
    scenario = loaded(file, f"{{iteration: gpt-146b, kinds: rail-only}}\n  - {second}")
    assert [case.name for case in scenario.cases] == [
        "rail-only/iteration/gpt-146b/t2p2d2m14",
        "rail-only/iteration/gpt-146b/t4p1d2m3",
    ]


@pytest.mark.parametrize(
    ("key", "part"),
    [("zero: false", "zero-false"), ("layers: 2", "layers-2"), ("batch: 1152", "batch-1152")],
)
def test_iterations_that_differ_in_another_key_are_named_for_it(
    file: Path, key: str, part: str
) -> None:
    same = "iteration: gpt-146b, microbatches: 2, kinds: rail-only"
    scenario = loaded(file, f"{{{same}}}\n  - {{{same}, {key}}}")
    first, second = (case.name for case in scenario.cases)
    assert second == f"{first}/{part}"


def test_a_batch_of_its_own_changes_the_share_of_the_gradients(file: Path) -> None:
    """A microbatch stays as it is; half as many of them leave each twice the gradients."""
    entry = "{iteration: gpt-146b, batch: %d, microbatches: 1, kinds: rail-only}"
    whole, half = (loaded(file, entry % batch).cases[0].task for batch in (2304, 1152))
    own = loaded(file, "{iteration: gpt-146b, microbatches: 1, kinds: rail-only}").cases[0].task
    assert isinstance(whole, Iteration)
    assert isinstance(half, Iteration)
    assert own == whole
    assert half.iteration.tensor_bytes == whole.iteration.tensor_bytes
    assert half.iteration.gradient_bytes == 2 * whole.iteration.gradient_bytes


def test_a_plan_has_the_time_of_compute(file: Path) -> None:
    """Emulated five times slower, all steps of compute of a rank take five times as long."""
    scenario = loaded(file, "{iteration: gpt-146b, microbatches: 2, time_dilation: 5}")
    for planned, spec in zip(plan(scenario, None), scenario.fabrics, strict=True):
        steps = planned.case.schedule(spec)
        computed_ns = np.bincount(steps.transfers.destination, steps.transfers.compute_ns)
        assert planned.completion_s > computed_ns.max() / 1e9


def test_check_says_what_is_reduced(file: Path) -> None:
    scenario = loaded(file, "{iteration: gpt-146b, kinds: rail-only}")
    said = "\n".join(described(scenario))
    assert "reduced: gpus 1536 -> 8, tensor 8 -> 2, pipeline 8 -> 2, data 24 -> 2" in said


def test_counts_of_a_large_iteration_have_all_digits() -> None:
    said = "\n".join(described(load(LIBRARY / "paper-iteration.yaml")))
    assert "reduced: gpus 32768 -> 16, " in said
    assert "bubble 0.9375 -> 0" in said


@pytest.mark.parametrize(
    ("entry", "more", "message"),
    [
        (
            "{iteration: gpt-146}",
            "",
            "x.yaml:3 workloads.0.iteration: gpt-146: not found, and no shipped "
            "configuration of this name (did you mean 'gpt-146b'?)",
        ),
        (
            "{iteration: gpt-146b, tensr: 2}",
            "",
            "x.yaml:3 workloads.0.tensr: unknown key 'tensr' (did you mean 'tensor'?)",
        ),
        (
            "{iteration: gpt-146b, tensor: two}",
            "",
            "x.yaml:3 workloads.0.tensor: must be a whole number, got 'two'",
        ),
        (
            "{iteration: gpt-146b, batch: 100}",
            "",
            "x.yaml:3 workloads.0.iteration: gpt-146b: no strategy with tensor 8, "
            "pipeline 8, interleave 1, microbatch 1 divides 1536 GPUs, 80 layers, 96 heads "
            "and a batch of 100 sequences evenly (use other GPUs, another "
            "batch, or another strategy)",
        ),
        (
            "{iteration: gpt-146b, tensor: 3}",
            "",
            "x.yaml:3 workloads.0.iteration: tensor 8, pipeline 8, data 24 cannot be reduced "
            "to 2 x 4 GPUs with tensor 3 without losing a dimension: it needs 3 domains of 4 GPUs "
            "(use another grid of GPUs, or other degrees)",
        ),
        (
            "{iteration: gpt-146b}",
            "check_data: true\n",
            "x.yaml:4 check_data: cannot be combined with an iteration, which has no result to "
            "check (leave it out)",
        ),
    ],
)
def test_mistakes_of_an_iteration_are_named(
    file: Path, entry: str, more: str, message: str
) -> None:
    assert problems(file, entry, more) == [message]


def case_result(scenario: Scenario, number: int, *executions: tuple[float, bool]) -> CaseResult:
    """Executions, complete or not, in which everything took so many times as long as modeled."""
    case, spec = scenario.cases[number], scenario.fabrics[number]
    steps = case.schedule(spec)
    assert isinstance(steps, IterationSteps)
    topology = build_topology(spec)
    end_s = np.cumsum(np.full(len(steps.transfers), 0.01)) + steps.transfers.compute_ns.max() / 1e9
    begin_s = begins_s(steps, end_s)
    prediction = Prediction(topology.digest, steps.digest, float(end_s.max()), 0.0, tuple(end_s))
    repeats = []
    for ratio, complete in executions:
        records = tuple(
            TransferRecord(
                0,
                step.id,
                step.source,
                step.destination,
                step.size_bytes,
                *(round(moment_s * ratio * 1e9) for moment_s in (begin, end, end, end)),
            )
            for step, begin, end in zip(steps.transfers, begin_s, end_s, strict=True)
        )
        seconds = float(end_s.max()) * ratio
        repeats.append(Repeat(0, complete, seconds, 0.0, 0.0, (), (), records))
    measured = Measured(topology, steps, CaseExecutions(tuple(repeats)))
    return compare(case.name, measured, prediction, case.size_scale, Thresholds(0.02, 0.05))


def test_the_parts_of_an_iteration_are_in_the_result_and_in_the_table(file: Path) -> None:
    scenario = loaded(file, "{iteration: gpt-146b, microbatches: 1, time_dilation: 1}")
    executions = [(1.0, True), (9.0, False), (1.02, True)]
    cases = [case_result(scenario, number, *executions) for number in range(2)]
    result = plain(RunResult("id", "some", Path("runs/id"), cases))
    for case in result["cases"]:
        assert (case["collective"], case["algorithm"]) == ("iteration", "gpt-146b")
        assert case["algbw_gbyte_per_s"] is None
        parts = case["iteration"]["parts_s"].values()
        assert sum(part["modeled"] for part in parts) == pytest.approx(case["modeled_s"])
        for part in parts:
            assert part["measured"] == pytest.approx(1.01 * part["modeled"], abs=1e-6)
    assert result["slowdowns"][0]["measured"] == pytest.approx(0.0)
    out = io.StringIO()
    print_sections(run_sections(result), Console(file=out, width=120))
    for shown in ("iteration/gpt-146b", "waiting", "gpt-146b: reduced: gpus 1536 -> 8"):
        assert shown in out.getvalue()


def test_the_iterations_of_the_library_are_those_of_the_documentation() -> None:
    scenario = load(LIBRARY / "training-iteration.yaml")
    names = [case.name for case in scenario.cases]
    assert names == [
        f"{kind}/iteration/{name}"
        for kind in ("rail-only", "rail-optimized")
        for name in ("gpt-146b", "moe-1.3b")
    ]


def test_the_library_executes_interleaved_pipelines_and_gradients_without_zero() -> None:
    scenario = load(LIBRARY / "pipeline-schedules.yaml", ["fabric.kinds=rail-only"])
    interleaved, summed = (case.task for case in scenario.cases)
    assert isinstance(interleaved, Iteration)
    assert isinstance(summed, Iteration)
    assert (interleaved.iteration.strategy.interleave, interleaved.zero) == (2, True)
    assert (summed.iteration.strategy.interleave, summed.zero) == (1, False)


def test_a_stored_scenario_with_a_whole_path_is_checked_without_a_folder() -> None:
    """As `compare` does with the scenarios of runs."""
    fabric = {"domains": 2, "domain_size": 2, "platform": "dgx-h100"}
    given = {"fabric": fabric, "workloads": [{"iteration": "/some/own.yaml"}]}
    (workload,) = ScenarioFile.model_validate(given).model_dump()["workloads"]
    assert workload["iteration"] == "/some/own.yaml"
