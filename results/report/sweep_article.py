"""The article about a sweep: curves with spread over the first parameter, a picture a case."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from results.report.article import Article, Section
from results.report.drawings.charts import bus_bandwidth
from results.report.drawings.pictures import (
    DASHES,
    MARKERS,
    MODELED,
    SERIES,
    Picture,
    drawing,
    plain,
)
from results.store.runs import without_fabric
from results.tables.measured.run import is_checked
from results.tables.style import range_of

Point = Mapping[str, Any]
# A picture with more lines than this is illegible.
MOST_LINES = 6
# Values whose extremes differ by this factor have a logarithmic axis.
DECADES = 20


def sweep_article(result: Mapping[str, Any]) -> Article:
    """Return the article of a sweep, from its JSON object."""
    points = result["points"]
    lost = [point for point in points if point["run_id"] is None]
    sections = [
        Section(
            "Completion times",
            "A dot is the median of a point's executions, its bar their range; thin lines are the "
            "model. Points without a result are missing. A workload has one scale on all fabrics.",
            [_picture(points, name, number) for number, name in enumerate(_names(points))],
            ("parameters", "case", "measured s", "least", "most", "modeled s", "ratio", "verdict"),
            [row for point in points for row in _rows(point)],
        )
    ]
    if sizes := _over_sizes(points):
        text = "As nccl-tests print it, in figures of the real platform."
        sections.append(Section("Bus bandwidth against size", text, [bus_bandwidth(sizes)]))
    if lost:
        causes = [[_parameters(point), point["cause"]] for point in lost]
        text = "These points ended without a result."
        sections.append(Section("Without a result", text, (), ("parameters", "cause"), causes))
    return Article(f"Sweep of {result['scenario']}", result["sweep"], _answer(result), sections)


def _names(points: Sequence[Point]) -> list[str]:
    """The names of all cases; those of one workload on several fabrics are neighbours."""
    names = dict.fromkeys(case["case"] for point in points for case in point["cases"])
    workloads = list(dict.fromkeys(map(without_fabric, names)))
    return sorted(names, key=lambda name: workloads.index(without_fabric(name)))


def _over_sizes(points: Sequence[Point]) -> list[Mapping[str, Any]]:
    """The collectives whose size the first parameter changes, named by the other parameters."""
    found = [
        {**case, "case": ", ".join(filter(None, (case["case"], _others(point))))}
        for point in points
        for case in point["cases"]
        if case["busbw_gbyte_per_s"] is not None
    ]
    sizes: dict[str, set[float]] = {}
    for case in found:
        sizes.setdefault(case["case"], set()).add(case["bytes"] * case["size_scale"])
    return [case for case in found if len(sizes[case["case"]]) > 1]


def _others(point: Point) -> str:
    """The parameters of a point but the first."""
    return ", ".join(f"{key} = {value}" for key, value in list(point["parameters"].items())[1:])


def _answer(result: Mapping[str, Any]) -> str:
    points = result["points"]
    cases = [case for point in points for case in point["cases"]]
    ratios = [case["ratio"] for case in cases if not is_checked(case)]
    ended = sum(point["run_id"] is not None for point in points)
    told = f"{ended} of {len(points)} points have a result."
    if ratios:
        told += f" Measured over modeled is {range_of(ratios)}."
    return f"{told} The verdict is {result['verdict']}."


def _parameters(point: Point) -> str:
    return ", ".join(f"{key} = {value}" for key, value in point["parameters"].items())


def _rows(point: Point) -> Iterator[list[object]]:
    for case in point["cases"]:
        measured = case["measured_s"]
        seconds = (measured["median"], measured["min"], measured["max"], case["modeled_s"])
        figures = [f"{value:.3f}" for value in seconds]
        verdict = f"{case['ratio']:.4f}", case["verdict"]
        yield [_parameters(point), case["case"], *figures, *verdict]


def _picture(points: Sequence[Point], name: str, number: int) -> Picture:
    """Draw a case over the first parameter, with a line for each setting of the others."""
    key = next(iter(points[0]["parameters"]))
    places = _places([point["parameters"][key] for point in points])
    lines: dict[str, list[tuple[float, Mapping[str, Any]]]] = {}
    for point in points:
        for case in (case for case in point["cases"] if case["case"] == name):
            place = places[str(point["parameters"][key])]
            lines.setdefault(_others(point), []).append((place, case))
    with drawing(2.8) as figure:
        axes = figure.add_subplot()
        for index, (others, found) in enumerate(list(lines.items())[:MOST_LINES]):
            _line(axes, sorted(found, key=lambda pair: pair[0]), others, index)
        axes.plot([], [], color=MODELED, linewidth=0.8, label="modeled")
        if _spans_decades(places.values()):
            axes.set_xscale("log")
            axes.minorticks_off()
        axes.set_xticks(list(places.values()), list(places))
        axes.set_xlabel(key)
        axes.set_ylabel("completion time (s)")
        _scale_times(axes, _times_s(points, without_fabric(name)))
        figure.legend(loc="outside upper left", ncols=2)
    hidden = max(0, len(lines) - MOST_LINES)
    more = f" Not drawn: {hidden} more settings of the other parameters." if hidden else ""
    return Picture(f"sweep-{number}", f"{name} over {key}.{more}", figure)


def _spans_decades(values: Collection[float]) -> bool:
    return min(values) > 0 and max(values) >= DECADES * min(values)


def _times_s(points: Sequence[Point], workload: str) -> list[float]:
    """All times of a workload on any fabric, measured and modeled."""
    return [
        seconds
        for point in points
        for case in point["cases"]
        if without_fabric(case["case"]) == workload
        for seconds in (case["measured_s"]["min"], case["measured_s"]["max"], case["modeled_s"])
    ]


def _scale_times(axes: Axes, times_s: Collection[float]) -> None:
    """Begin at 0, or have a logarithmic axis if the times span decades."""
    if _spans_decades(times_s):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(plain)
        axes.set_ylim(min(times_s) / 1.5, max(times_s) * 1.5)
    else:
        axes.set_ylim(0, 1.05 * max(times_s))


def _places(values: Sequence[object]) -> dict[str, float]:
    """Return the position of each value on the axis: numbers by value, others side by side."""
    shown = list(dict.fromkeys(values))
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in shown):
        return {str(value): float(str(value)) for value in shown}
    return {str(value): float(place) for place, value in enumerate(shown)}


def _line(
    axes: Axes, found: Sequence[tuple[float, Mapping[str, Any]]], others: str, index: int
) -> None:
    x = [place for place, _ in found]
    cases = [case for _, case in found]
    colour, medians = SERIES[index], [case["measured_s"]["median"] for case in cases]
    below = [m - case["measured_s"]["min"] for m, case in zip(medians, cases, strict=True)]
    above = [case["measured_s"]["max"] - m for m, case in zip(medians, cases, strict=True)]
    axes.errorbar(
        x,
        medians,
        (below, above),
        color=colour,
        marker=MARKERS[index],
        linestyle=DASHES[index],
        capsize=3,
        label=others or "measured",
    )
    axes.plot(x, [case["modeled_s"] for case in cases], color=MODELED, linewidth=0.8)
