"""The article about a sweep: curves with spread over the first parameter, a picture a case."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from results.report.article import Article, Section
from results.report.pictures import DASHES, MARKERS, MODELED, SERIES, Picture, drawing
from results.tables.run import is_checked

Point = Mapping[str, Any]
# More lines than this are not told apart.
MOST_LINES = 6


def sweep_article(result: Mapping[str, Any]) -> Article:
    """Return the article of a sweep, from its JSON object."""
    points = result["points"]
    names = dict.fromkeys(case["case"] for point in points for case in point["cases"])
    lost = [point for point in points if point["run_id"] is None]
    sections = [
        Section(
            "Completion times",
            "A dot is the median of a point's executions, its bar their range; thin lines are the "
            "model. Points without a result are missing.",
            [_picture(points, name, number) for number, name in enumerate(names)],
            ("parameters", "case", "measured s", "least", "most", "modeled s", "ratio", "verdict"),
            [row for point in points for row in _rows(point)],
        )
    ]
    if lost:
        causes = [[_parameters(point), point["cause"]] for point in lost]
        text = "These points ended without a result."
        sections.append(Section("Without a result", text, (), ("parameters", "cause"), causes))
    return Article(f"Sweep of {result['scenario']}", result["sweep"], _answer(result), sections)


def _answer(result: Mapping[str, Any]) -> str:
    points = result["points"]
    cases = [case for point in points for case in point["cases"]]
    ratios = [case["ratio"] for case in cases if not is_checked(case)]
    ended = sum(point["run_id"] is not None for point in points)
    told = f"{ended} of {len(points)} points have a result."
    if ratios:
        told += f" Measured over modeled is {min(ratios):.3f} to {max(ratios):.3f}."
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
        others = ", ".join(f"{k} = {v}" for k, v in point["parameters"].items() if k != key)
        for case in (case for case in point["cases"] if case["case"] == name):
            place = places[str(point["parameters"][key])]
            lines.setdefault(others, []).append((place, case))
    with drawing(2.8) as figure:
        axes = figure.add_subplot()
        for index, (others, found) in enumerate(list(lines.items())[:MOST_LINES]):
            _line(axes, sorted(found, key=lambda pair: pair[0]), others, index)
        axes.plot([], [], color=MODELED, linewidth=0.8, label="modeled")
        axes.set_xticks(list(places.values()), list(places))
        axes.set_xlabel(key)
        axes.set_ylabel("completion time (s)")
        axes.set_ylim(bottom=0)
        figure.legend(loc="outside upper left", ncols=2)
    hidden = max(0, len(lines) - MOST_LINES)
    more = f" Not drawn: {hidden} more settings of the other parameters." if hidden else ""
    return Picture(f"sweep-{number}", f"{name} over {key}.{more}", figure)


def _places(values: Sequence[object]) -> dict[str, float]:
    """Where each value stands on the axis: numbers at themselves, others side by side."""
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
