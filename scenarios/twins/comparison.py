"""What the twins show: measured against the model at their size, and against the paper's scale."""

from collections.abc import Iterator, Sequence
from typing import Any

from model.fabric.platforms import PLATFORMS
from results.verdicts.verdict import Verdict, worst
from scenarios.paper.study import DEFAULT, iteration_s
from scenarios.twins.points import ALL_TO_ALL, DOMAIN_SIZES, FIG8, Twin

Result = dict[str, Any]


def measured_object(twins: Sequence[Twin], results: Sequence[Result]) -> Result:
    """Return the object that `paper --measure --json` prints."""
    pairs = list(zip(twins, results, strict=True))
    points = [point for twin, result in pairs for point in _points(twin, result)]
    return {
        "schema": "railbed.paper-measured/1",
        "verdict": worst(Verdict(point["verdict"]) for point in points).value,
        "machine": results[0].get("machine", {}),
        "points": points,
        "fig8": list(_figure_8(points)),
        "all_to_all": [_slowdowns(twin, one) for twin, one in pairs if twin.figure == ALL_TO_ALL],
    }


def _points(twin: Twin, result: Result) -> Iterator[Result]:
    """Yield the cases of a twin's run."""
    for case in result["cases"]:
        yield {
            "figure": twin.figure,
            "place": twin.place,
            "run_id": result["run_id"],
            **{key: case[key] for key in ("case", "algorithm", "measured_s", "modeled_s")},
            **{key: case[key] for key in ("ratio", "verdict", "reasons")},
        }


def _figure_8(points: Sequence[Result]) -> Iterator[Result]:
    """Yield times relative to the largest domain: measured, modeled, and at the paper's scale."""
    found = [point for point in points if point["figure"] == FIG8]
    for name in dict.fromkeys(point["algorithm"] for point in found):
        mine = {int(point["place"]): point for point in found if point["algorithm"] == name}
        last = max(mine)
        full = {size: iteration_s(name, DEFAULT, size) for size in DOMAIN_SIZES}
        for size, point in sorted(mine.items()):
            median_s = mine[last]["measured_s"]["median"]
            yield {
                "configuration": name,
                "domain_size": size,
                "measured": point["measured_s"]["median"] / median_s,
                "modeled": point["modeled_s"] / mine[last]["modeled_s"],
                "at_scale": full[size] / full[last],
            }


def _slowdowns(twin: Twin, result: Result) -> Result:
    """Return what the all-to-alls of rail-only lose on a platform, against rail-optimized."""
    platform = PLATFORMS[twin.place]
    lost = {one["case"].split("/")[-1]: one for one in result["slowdowns"]}
    return {
        "platform": twin.place,
        "paper": platform.nic_rate_bps / platform.hb_rate_bps,
        **{
            key: {part: lost[name][part] for part in ("measured", "modeled")}
            for key, name in (("two_step", "two-step"), ("pipelined", "two-step-pipelined"))
        },
    }
