"""The results of the twins: against the model at their size, and against the paper's scale."""

from collections.abc import Iterator, Sequence
from typing import Any

from results.verdicts.verdict import Verdict, worst
from scenarios.scenario import Case
from studies.twins.fault_losses import lost_at_scale, lost_in_experiments
from studies.twins.iterations import gains, relative_times, trends
from studies.twins.plan import Planned
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
    cases = {case.name: case for case in planned.scenario.cases}
    for found in result["cases"]:
        yield {
            "figure": planned.twin.figure,
            "place": dict(planned.twin.place),
            "run_id": result["run_id"],
            **{key: found[key] for key in (*KEYS, *JUDGED)},
            "microbatches": _microbatches(cases[found["case"]]),
        }


def _microbatches(case: Case) -> float:
    """The ratio of the whole iteration's microbatches to the executed ones; 1 if not reduced."""
    changes = case.task.iteration.changes if isinstance(case.task, Iteration) else ()
    return next((one.full / one.reduced for one in changes if one.what == "microbatches"), 1.0)
