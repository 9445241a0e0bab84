"""Figures 8 to 10: times relative to a base point, measured, modeled, at the paper's scale."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

from studies.paper import numbers, published
from studies.paper.study import DEFAULT, DOMAIN_SIZES, GBIT, TBIT, iteration_s
from studies.twins.points import (
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
    Place,
)

Row = dict[str, Any]
# At the paper's scale, values that differ by less are equal: their order means nothing.
SAME = 0.01
PARTS = ("measured", "modeled", "at_scale")


# The part of a place that makes it the base of its figure, whose time counts as 1.
BASES: dict[str, Place] = {FIG8: {"K": IDEAL}, FIG9: SLOWEST, FIG10: {"K": IDEAL}}


def _at_scale_s(place: Place) -> float:
    """Seconds at the paper's scale, with the model, bandwidths and batch that a place gives."""
    setting = replace(DEFAULT, batch=int(place.get("batch", DEFAULT.batch)))
    rates = (TBIT * float(place[HB]), GBIT * float(place[NIC])) if HB in place else ()
    size = STANDS_FOR[int(place["K"])]
    return iteration_s(str(place.get("model", "gpt-1t")), setting, size, *rates)


def relative_times(points: Sequence[Row]) -> Iterator[Row]:
    """Yield the points of figures 8 to 10, with times over that of the figure's base."""
    for point in points:
        if point["figure"] in BASES:
            place = point["place"]
            base = _at(points, point["figure"], {**place, **BASES[point["figure"]]})
            median_s = base["measured_s"]["median"]
            yield {
                "figure": point["figure"],
                "place": place,
                "stands_for": STANDS_FOR[int(place["K"])],
                "measured": point["measured_s"]["median"] / median_s,
                "executions": [one / median_s for one in point["measured_s"]["values"]],
                "modeled": point["modeled_s"] / base["modeled_s"],
                "at_scale": _at_scale_s(place) / _at_scale_s(base["place"]),
                "real_s": _real_s(point),
                "at_scale_s": _at_scale_s(place),
            }


def _at(points: Sequence[Row], figure: str, place: Place) -> Row:
    return next(one for one in points if one["figure"] == figure and one["place"] == place)


def _real_s(point: Row) -> float:
    """The measured time on the real platform, of all microbatches; without the bubble."""
    reduced_s = float(point["measured_s"]["median"]) / float(point["time_dilation"])
    return reduced_s * float(point["microbatches"])


def gains(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield figure 9's percentages: faster with four times a bandwidth, mean over the other one."""
    claims = {row["id"]: numbers(row["value"])[0] for row in published("claims")}
    for size, full in zip((SMALL, LARGE), DOMAIN_SIZES, strict=True):
        mine = [row for row in rows if row["figure"] == FIG9 and row["place"]["K"] == size]
        for key, other, name in ((HB, NIC, "hb"), (NIC, HB, "nic")):
            yield {
                "K": size,
                "stands_for": full,
                "faster_by": key,
                **{part: _gain(mine, key, other, part) for part in PARTS},
                "paper": claims[f"fig9-k{full}-{name}"],
            }


def _gain(rows: Sequence[Row], key: str, other: str, part: str) -> float:
    shares: list[float] = []
    for value in {row["place"][other] for row in rows}:
        line = sorted(
            (row["place"][key], row[part]) for row in rows if row["place"][other] == value
        )
        shares.append(float(line[0][1] / line[-1][1] - 1))
    return 100 * mean(shares)


def trends(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield for each curve of a figure the number of pairs of points in the order at scale."""
    for name in dict.fromkeys(row["figure"] for row in rows):
        for of, group in _curves(name, [row for row in rows if row["figure"] == name]):
            times = [(row["measured"], row["at_scale"]) for row in group]
            yield {"figure": name, "of": of, **same_order(times)}


def _curves(figure: str, rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield the comparable points of each figure, under a name."""
    if figure == FIG10:
        yield "GPT-1T, all", [row for row in rows if row["place"]["K"] != IDEAL]
        return
    key = "model" if figure == FIG8 else "K"
    for value in dict.fromkeys(row["place"][key] for row in rows):
        yield f"{key} {value}", [row for row in rows if row["place"][key] == value]


def same_order(values: Sequence[tuple[float, float]]) -> dict[str, int]:
    """Count the pairs of points that have an order at scale, and those measured in the same one.

    `values` has for each point the measured value, and the value at the paper's scale.
    """
    pairs = [
        (one[0] < other[0]) == (one[1] < other[1])
        for number, one in enumerate(values)
        for other in values[:number]
        if abs(one[1] / other[1] - 1) > SAME
    ]
    return {"same_order": sum(pairs), "pairs": len(pairs)}
