"""The results of the twins: against the model at their size, and against the paper's scale."""

from collections.abc import Iterator, Sequence
from typing import Any

from model.errors import EmulationError
from model.training.job import Job, cluster_of
from model.training.search import best
from results.verdicts.verdict import Verdict, worst
from scenarios.scenario import Case
from studies.decision.designs import loss_with_nics, losses
from studies.paper.study import DEFAULT, DOMAIN_SIZES, transformer
from studies.twins.iterations import gains, relative_times, trends
from studies.twins.plan import Planned
from studies.twins.points import EXPERIMENTS
from studies.twins.rail_only_losses import all_to_alls, cost_and_performance, trend
from traffic_gen.workloads.training_iteration import Iteration

Result = dict[str, Any]
KEYS = ("case", "algorithm", "measured_s", "modeled_s", "ratio", "time_dilation")
JUDGED = ("verdict", "reasons")


def measured_object(plan: Sequence[Planned], results: Sequence[Result]) -> Result:
    """Return the object that `paper --measure --json` prints."""
    pairs = list(zip(plan, results, strict=True))
    points = [point for planned, result in pairs for point in _points(planned, result)]
    rows, slowdowns = list(relative_times(points)), list(all_to_alls(points))
    return {
        "schema": "railbed.paper-measured/1",
        "verdict": worst(Verdict(result["verdict"]) for result in results).value,
        "machine": results[0].get("machine", {}),
        "points": points,
        "iterations": rows,
        "gains": list(gains(rows)),
        "trends": [*trends(rows), trend(slowdowns)],
        "all_to_all": slowdowns,
        "table2": cost_and_performance(points),
        "failures": {
            "at_scale": list(lost_at_scale()),
            "experiments": list(lost_in_experiments(results)),
        },
    }


def _points(planned: Planned, result: Result) -> Iterator[Result]:
    """Yield the cases of a twin's run."""
    planned_cases = {case.name: case for case in planned.scenario.cases}
    for case in result["cases"]:
        yield {
            "figure": planned.twin.figure,
            "place": dict(planned.twin.place),
            "run_id": result["run_id"],
            **{key: case[key] for key in (*KEYS, *JUDGED)},
            "microbatches": _microbatches(planned_cases[case["case"]]),
        }


def _microbatches(case: Case) -> float:
    """The ratio of the whole iteration's microbatches to the executed ones; 1 if not reduced."""
    changes = case.task.iteration.changes if isinstance(case.task, Iteration) else ()
    return next((one.full / one.reduced for one in changes if one.what == "microbatches"), 1.0)


def lost_at_scale() -> Iterator[Result]:
    """Yield the losses of an iteration of GPT-1T at the paper's scale, by domain size and part.

    A lost NIC's traffic is spread over all other rails, or falls to one neighbour, whose NIC then
    carries two transfers in every step of a ring.
    """
    for size in DOMAIN_SIZES:
        cluster = cluster_of(DEFAULT.platform, DEFAULT.gpus, size)
        job = Job(transformer("gpt-1t"), DEFAULT.batch, DEFAULT.recomputation, cluster)
        evaluation = best(job)
        if evaluation is None:
            raise EmulationError(f"no strategy for GPT-1T with {DEFAULT}")
        lost = losses(job, evaluation)
        yield {
            "K": size,
            **lost,
            "nic_link_to_one": loss_with_nics(job, evaluation, 0.5),
            "domain": lost["gpu"],  # a GPU without a spare takes its domain
        }


def lost_in_experiments(results: Sequence[Result]) -> Iterator[Result]:
    """Yield the losses of the failure experiments: with the fault, or after it on spares."""
    for row in (row for result in results for row in result["failures"]):
        yield {
            "experiment": row["scenario"],
            "part": EXPERIMENTS[row["scenario"]],
            "fabric": row["fabric"],
            "measured": row["degraded_s"] / row["baseline_s"] - 1,
            "modeled": row["modeled_degraded_s"] / row["modeled_baseline_s"] - 1,
            "blackout_ms": row["blackout_ms"],
            "verdict": row["verdict"],
        }
