"""Section IV-B and table II: measured and modeled losses of rail-only, beside its savings."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from model.fabric.spec import PLATFORMS
from results.sections.section import without_fabric
from studies.paper.tables import table2
from studies.twins.iterations import same_order
from studies.twins.points import ALL_TO_ALL, TABLE2, USUAL_DOMAINS

Row = dict[str, Any]
# The all-to-all of rail-optimized, and those of rail-only with their names in the object.
DIRECT = "direct"
ALGORITHMS = {"two_step": "two-step", "pipelined": "two-step-pipelined"}
TABLE2_PLATFORM = "dgx-a100"


def all_to_alls(points: Sequence[Row]) -> Iterator[Row]:
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
            **{key: lost(times[name], times[DIRECT]) for key, name in ALGORITHMS.items()},
        }


def trend(rows: Sequence[Row]) -> Row:
    """Count the pairs of platforms whose two-step losses are in the order of C_S/C_F."""
    values = [
        (row["two_step"]["measured"], row["limit"]) for row in rows if row["y"] == USUAL_DOMAINS
    ]
    return {"figure": ALL_TO_ALL, "of": "platforms, two-step", **same_order(values)}


def lost(case: Row, baseline: Row) -> Row:
    """The extra time of a case over a baseline, as shares of the baseline's time."""
    median_s = baseline["measured_s"]["median"]
    return {
        "measured": case["measured_s"]["median"] / median_s - 1,
        "executions": [one / median_s - 1 for one in case["measured_s"]["values"]],
        "modeled": case["modeled_s"] / baseline["modeled_s"] - 1,
    }


def cost_and_performance(points: Sequence[Row]) -> Row:
    """Table II: costs of the networks, and the completion time that rail-only loses."""
    return {"cost": table2(), "performance": [*_same_work(points), *_all_to_alls(points)]}


def _same_work(points: Sequence[Row]) -> Iterator[Row]:
    """Yield the workloads of the twin of table II, which are the same on both fabrics."""
    by_case = {point["case"]: point for point in points if point["figure"] == TABLE2}
    for name in dict.fromkeys(map(without_fabric, by_case)):
        both = (by_case[f"{kind}/{name}"] for kind in ("rail-only", "rail-optimized"))
        yield {"workload": name, **lost(*both)}


def _all_to_alls(points: Sequence[Row]) -> Iterator[Row]:
    """Yield the all-to-alls on the platform of that twin."""
    for row in all_to_alls(points):
        if (row["platform"], row["y"]) == (TABLE2_PLATFORM, USUAL_DOMAINS):
            for key, name in ALGORITHMS.items():
                yield {"workload": f"all-to-all/{name}", **row[key]}
