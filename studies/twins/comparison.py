"""The results of the twins: against the model at their size, and against the paper's scale."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, groupby
from operator import itemgetter
from statistics import mean
from typing import Any

from model.fabric.spec import PLATFORMS
from results.sections.section import without_fabric
from results.verdicts.verdict import Verdict, worst
from scenarios.scenario import Case
from studies.decision import losses
from studies.paper import claimed
from studies.paper.claims import table2
from studies.paper.study import DEFAULT, DOMAIN_SIZES, GBIT, TBIT, iteration
from studies.twins.points import (
    ALL_TO_ALL,
    EXPERIMENTS,
    FIG8,
    FIG9,
    FIG10,
    HB,
    IDEAL,
    LARGE,
    NIC,
    SLOWEST,
    SMALL,
    STANDS_FOR,
    TABLE2,
    USUAL_DOMAINS,
    Place,
    Planned,
)
from traffic_gen.workloads.training_iteration import Iteration

Result = dict[str, Any]
KEYS = (
    *("case", "algorithm", "measured_s", "modeled_s", "ratio", "time_dilation"),
    *("verdict", "reasons"),
)
# The all-to-all of rail-optimized, and those of rail-only with their names in the object.
DIRECT = "direct"
ALGORITHMS = {"two_step": "two-step", "pipelined": "two-step-pipelined"}
TABLE2_PLATFORM = "dgx-a100"
# At the paper's scale, values that differ by less are equal: their order means nothing.
SAME = 0.01
PARTS = ("measured", "modeled", "at_scale")
# The part of a place that makes it the base of its figure, whose time counts as 1.
BASES: dict[str, Place] = {FIG8: {"K": IDEAL}, FIG9: SLOWEST, FIG10: {"K": IDEAL}}


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
        "trends": list(trends(rows, slowdowns)),
        "all_to_all": slowdowns,
        "table2": {"cost": table2(), "performance": list(performance(points, slowdowns))},
        "failures": {
            "at_scale": list(lost_at_scale()),
            "experiments": list(lost_in_experiments(results)),
        },
    }


def shown_rows(result: Result) -> Iterator[Result]:
    """Yield the rows of the documentation's tables: ratios, pairs in order, and claims as shares.

    `result` is the object of `measured_object`.
    """
    for figure, points in groupby(result["points"], itemgetter("figure")):
        ratios = [point["ratio"] for point in points]
        least, most = min(ratios), max(ratios)
        yield {"figure": figure, "points": len(ratios), "ratio_least": least, "ratio_most": most}
    yield from result["trends"]
    for row in result["gains"]:
        what = f"{row['faster_by'].split()[0]} bandwidth times four, K = {row['K']}: faster by"
        yield {"claim": what, **{part: row[part] / 100 for part in ("paper", *PARTS)}}
    for row in (one for one in result["all_to_all"] if one["y"] == USUAL_DOMAINS):
        for key, name in ALGORITHMS.items():
            what = f"all-to-all/{name}, {row['platform']}: slower on rail-only by"
            yield {"claim": what, "paper": row["limit"], **_both(row[key])}
    for row in result["table2"]["performance"]:
        if not row["workload"].startswith("all-to-all"):
            yield {"claim": f"{row['workload']}: slower on rail-only by", **_both(row)}
    for row in result["failures"]["experiments"]:
        yield {"claim": f"{row['experiment']}, {row['fabric']}: slower by", **_both(row)}


def _both(row: Result) -> Result:
    return {part: row[part] for part in ("modeled", "measured")}


def _points(planned: Planned, result: Result) -> Iterator[Result]:
    planned_cases = {case.name: case for case in planned.scenario.cases}
    for case in result["cases"]:
        yield {
            "figure": planned.twin.figure,
            "place": dict(planned.twin.place),
            "run_id": result["run_id"],
            **{key: case[key] for key in KEYS},
            "microbatches": _microbatches(planned_cases[case["case"]]),
        }


def _microbatches(case: Case) -> float:
    """The ratio of the whole iteration's microbatches to the executed ones; 1 if not reduced."""
    changes = case.task.iteration.changes if isinstance(case.task, Iteration) else ()
    return next((one.full / one.reduced for one in changes if one.what == "microbatches"), 1.0)


def relative_times(points: Sequence[Result]) -> Iterator[Result]:
    """Yield the points of figures 8 to 10, with times over that of the figure's base."""
    for point in points:
        if point["figure"] in BASES:
            place = point["place"]
            at = point["figure"], {**place, **BASES[point["figure"]]}
            base = next(one for one in points if (one["figure"], one["place"]) == at)
            median_s, reduced_s = (one["measured_s"]["median"] for one in (base, point))
            yield {
                "figure": point["figure"],
                "place": place,
                "stands_for": STANDS_FOR[int(place["K"])],
                "measured": reduced_s / median_s,
                "executions": [one / median_s for one in point["measured_s"]["values"]],
                "modeled": point["modeled_s"] / base["modeled_s"],
                "at_scale": _at_scale_s(place) / _at_scale_s(base["place"]),
                # Of all microbatches; without the bubble.
                "real_s": reduced_s / point["time_dilation"] * point["microbatches"],
                "at_scale_s": _at_scale_s(place),
            }


def _at_scale_s(place: Place) -> float:
    """Seconds at the paper's scale, with the model, bandwidths and batch that a place gives."""
    setting = replace(DEFAULT, batch=int(place.get("batch", DEFAULT.batch)))
    rates = (TBIT * float(place[HB]), GBIT * float(place[NIC])) if HB in place else ()
    size = STANDS_FOR[int(place["K"])]
    return iteration(str(place.get("model", "gpt-1t")), setting, size, *rates).iteration_s


def gains(rows: Sequence[Result]) -> Iterator[Result]:
    """Yield figure 9's percentages: faster with four times a bandwidth, mean over the other one."""
    for size in (SMALL, LARGE):
        mine = [row for row in rows if row["figure"] == FIG9 and row["place"]["K"] == size]
        full = STANDS_FOR[size]
        for key, other, name in ((HB, NIC, "hb"), (NIC, HB, "nic")):
            yield {
                "K": size,
                "stands_for": full,
                "faster_by": key,
                **{part: _gain(mine, key, other, part) for part in PARTS},
                "paper": claimed(f"fig9-k{full}-{name}")[0],
            }


def _gain(rows: Sequence[Result], key: str, other: str, part: str) -> float:
    lines: dict[float, list[tuple[float, float]]] = {}
    for row in rows:
        lines.setdefault(row["place"][other], []).append((row["place"][key], row[part]))
    return 100 * mean(min(line)[1] / max(line)[1] - 1 for line in lines.values())


def trends(rows: Sequence[Result], slowdowns: Sequence[Result]) -> Iterator[Result]:
    """Yield for each curve of a figure the number of pairs of points in the order at scale.

    And of platforms, those whose two-step losses are in the order of C_S/C_F.
    """
    curves: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in rows:
        figure, place = row["figure"], row["place"]
        key = "model" if figure == FIG8 else "K"
        of = "GPT-1T, all" if figure == FIG10 else f"{key} {place[key]}"
        if (figure, place["K"]) != (FIG10, IDEAL):
            curves.setdefault((figure, of), []).append((row["measured"], row["at_scale"]))
    curves[ALL_TO_ALL, "platforms, two-step"] = [
        (row["two_step"]["measured"], row["limit"])
        for row in slowdowns
        if row["y"] == USUAL_DOMAINS
    ]
    for (figure, of), values in curves.items():
        yield {"figure": figure, "of": of, **same_order(values)}


def same_order(values: Sequence[tuple[float, float]]) -> dict[str, int]:
    """Count the pairs of points that have an order at scale, and those measured in the same one.

    `values` has for each point the measured value, and the value at the paper's scale.
    """
    pairs = [
        (one[0] < other[0]) == (one[1] < other[1])
        for other, one in combinations(values, 2)
        if abs(one[1] / other[1] - 1) > SAME
    ]
    return {"same_order": sum(pairs), "pairs": len(pairs)}


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


def extra_time(case: Result, baseline: Result) -> Result:
    """The extra time of a case over a baseline, as shares of the baseline's time."""
    median_s = baseline["measured_s"]["median"]
    return {
        "measured": case["measured_s"]["median"] / median_s - 1,
        "executions": [one / median_s - 1 for one in case["measured_s"]["values"]],
        "modeled": case["modeled_s"] / baseline["modeled_s"] - 1,
    }


def performance(points: Sequence[Result], slowdowns: Sequence[Result]) -> Iterator[Result]:
    """Yield the completion time that rail-only loses, beside the savings of table II.

    For the workloads of the table's twin, which are the same on both fabrics, and for all-to-alls
    on its platform.
    """
    by_case = {point["case"]: point for point in points if point["figure"] == TABLE2}
    for name in dict.fromkeys(map(without_fabric, by_case)):
        both = (by_case[f"{kind}/{name}"] for kind in ("rail-only", "rail-optimized"))
        yield {"workload": name, **extra_time(*both)}
    for row in slowdowns:
        if (row["platform"], row["y"]) == (TABLE2_PLATFORM, USUAL_DOMAINS):
            for key, name in ALGORITHMS.items():
                yield {"workload": f"all-to-all/{name}", **row[key]}


def lost_at_scale() -> Iterator[Result]:
    """Yield the losses of an iteration of GPT-1T at the paper's scale, by domain size and part.

    A lost NIC's traffic is spread over all other rails, or `to_one` neighbour, whose NIC then
    carries two transfers in every step of a ring.
    """
    for size in DOMAIN_SIZES:
        lost = losses(iteration("gpt-1t", DEFAULT, size))
        # a GPU without a spare takes its domain
        yield {"K": size, **lost, "domain": lost["gpu"]}


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
