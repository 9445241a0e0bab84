"""The results of the twins: against the model at their size, and against the paper's scale."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from model.errors import EmulationError
from model.fabric.spec import PLATFORMS
from model.training.iteration import best
from model.training.job import Job, cluster_of
from results.sections.section import without_fabric
from results.verdicts.verdict import Verdict, worst
from scenarios.scenario import Case
from studies.decision.designs import loss_with_nics, losses
from studies.paper.study import DEFAULT, DOMAIN_SIZES, transformer
from studies.paper.values import table2
from studies.twins.iterations import gains, relative_times, same_order, trends
from studies.twins.plan import Planned
from studies.twins.points import ALL_TO_ALL, EXPERIMENTS, TABLE2, USUAL_DOMAINS
from traffic_gen.workloads.training_iteration import Iteration

Result = dict[str, Any]
KEYS = ("case", "algorithm", "measured_s", "modeled_s", "ratio", "time_dilation")
JUDGED = ("verdict", "reasons")
# The all-to-all of rail-optimized, and those of rail-only with their names in the object.
DIRECT = "direct"
ALGORITHMS = {"two_step": "two-step", "pipelined": "two-step-pipelined"}
TABLE2_PLATFORM = "dgx-a100"


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


def all_to_alls(points: Sequence[Result]) -> Iterator[Result]:
    """Yield the losses of all-to-alls on rail-only: for each platform, and number of domains y.

    `limit` is C_S/C_F, the paper's value, which holds for many GPUs and domains.
    """
    mine = [point for point in points if point["figure"] == ALL_TO_ALL]
    for place, cases in groupby(mine, lambda point: point["place"]):
        times = {case["algorithm"]: case for case in cases}
        platform = PLATFORMS[place["platform"]]
        yield {
            **place,
            "limit": platform.nic_rate_bps / platform.hb_rate_bps,
            **{key: extra_time(times[name], times[DIRECT]) for key, name in ALGORITHMS.items()},
        }


def trend(rows: Sequence[Result]) -> Result:
    """Count the pairs of platforms whose two-step losses are in the order of C_S/C_F."""
    values = [
        (row["two_step"]["measured"], row["limit"]) for row in rows if row["y"] == USUAL_DOMAINS
    ]
    return {"figure": ALL_TO_ALL, "of": "platforms, two-step", **same_order(values)}


def extra_time(case: Result, baseline: Result) -> Result:
    """The extra time of a case over a baseline, as shares of the baseline's time."""
    median_s = baseline["measured_s"]["median"]
    return {
        "measured": case["measured_s"]["median"] / median_s - 1,
        "executions": [one / median_s - 1 for one in case["measured_s"]["values"]],
        "modeled": case["modeled_s"] / baseline["modeled_s"] - 1,
    }


def cost_and_performance(points: Sequence[Result]) -> Result:
    """Table II: costs of the networks, and the completion time that rail-only loses."""
    return {"cost": table2(), "performance": [*_same_work(points), *_all_to_alls(points)]}


def _same_work(points: Sequence[Result]) -> Iterator[Result]:
    """Yield the workloads of the twin of table II, which are the same on both fabrics."""
    by_case = {point["case"]: point for point in points if point["figure"] == TABLE2}
    for name in dict.fromkeys(map(without_fabric, by_case)):
        both = (by_case[f"{kind}/{name}"] for kind in ("rail-only", "rail-optimized"))
        yield {"workload": name, **extra_time(*both)}


def _all_to_alls(points: Sequence[Result]) -> Iterator[Result]:
    """Yield the all-to-alls on the platform of that twin."""
    for row in all_to_alls(points):
        if (row["platform"], row["y"]) == (TABLE2_PLATFORM, USUAL_DOMAINS):
            for key, name in ALGORITHMS.items():
                yield {"workload": f"all-to-all/{name}", **row[key]}


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
