"""The article that compares two runs: significance before ratio."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from results.report.article import Article, Section
from results.report.drawings.pictures import MODELED, SERIES, WIDE, Picture, drawing
from results.tables.measured.run_diff import NAMES, in_words
from results.tables.style import number_or_dash
from results.verdicts.run_diff import Difference

ROW = 0.5
MARKERS = ("o", "s")
LARGER = Difference.LARGER.value


def comparison_article(result: Mapping[str, Any]) -> Article:
    """Return the article of a comparison, from its JSON object."""
    cases, runs = result["cases"], result["runs"]
    named = [f"{name}: {run['run_id']}" for name, run in zip(NAMES, runs, strict=True)]
    differences = [[line] for line in _differences(result)]
    sections = [
        Section(
            "Both runs, case by case",
            f"{', '.join(named)}. A bar is the range of all executions. Two cases differ where "
            "their ranges do not overlap, and chance makes such a gap in at most 5 % of cases.",
            [_picture(cases)],
            ("case", "A s", "B s", "B is", "B/A", "A/model", "B/model", "A", "B"),
            [_row(case) for case in cases],
        )
    ]
    if differences:
        text = "Differences between the runs, apart from the measurements."
        sections.append(Section("Other differences", text, (), ("difference",), differences))
    return Article(
        "Comparison", " and ".join(run["run_id"] for run in runs), _answer(cases), sections
    )


def _answer(cases: Sequence[Mapping[str, Any]]) -> str:
    different = [case for case in cases if case["difference"] == LARGER]
    effects = "; ".join(
        f"{case['case']}: B is {abs(case['ratio'] - 1):.1%} {in_words(case)}" for case in different
    )
    counted = f"{len(different)} of {len(cases)} cases differ by more than their executions do"
    return f"{counted}: {effects}." if effects else f"{counted}."


def _picture(cases: Sequence[Mapping[str, Any]]) -> Picture:
    with drawing(1.1 + ROW * len(cases), WIDE + 0.4) as figure:
        axes = figure.add_subplot()
        for row, case in enumerate(cases):
            for which in (0, 1):
                _draw(axes, case["measured_s"][which], row + 0.24 * which - 0.12, which)
            axes.annotate(
                _at_the_right(case),
                (1.01, row),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=8,
            )
        for which, name in enumerate(NAMES):
            axes.plot([], [], MARKERS[which], color=SERIES[which], label=name)
        axes.set_yticks(range(len(cases)), [case["case"] for case in cases])
        axes.set_ylim(len(cases) - 0.5, -0.5)
        axes.set_xlim(left=0)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("completion time (emulated s)", color=MODELED)
        figure.legend(loc="outside upper left", ncols=2)
    return Picture("comparison", f"Completion times of both runs in {len(cases)} cases.", figure)


def _draw(axes: Axes, measured: Mapping[str, Any], height: float, which: int) -> None:
    """Draw the median and the range of one run's executions, if they are known."""
    colour, ends = SERIES[which], [measured["min"], measured["max"]]
    if measured["min"] is not None:
        axes.plot(ends, [height] * 2, color=colour, linewidth=4, alpha=0.5)
    if measured["median"] is not None:
        axes.plot(measured["median"], height, MARKERS[which], color=colour)


def _at_the_right(case: Mapping[str, Any]) -> str:
    ratio = "" if case["ratio"] is None else f"{case['ratio']:.3f} "
    return f"{ratio}{in_words(case)}"


def _row(case: Mapping[str, Any]) -> list[object]:
    medians = [number_or_dash(measured["median"], ".3f") for measured in case["measured_s"]]
    ratios = [number_or_dash(value, ".4f") for value in (case["ratio"], *case["ratio_to_model"])]
    return [case["case"], *medians, in_words(case), *ratios, *case["verdicts"]]


def _differences(result: Mapping[str, Any]) -> Iterator[str]:
    yield from result["warnings"]
    for case in result["cases"]:
        if case["other_work"]:
            yield f"{case['case']}: {'; '.join(case['other_work'])}"
    for name, key in zip(NAMES, ("only_in_first", "only_in_second"), strict=True):
        yield from (f"{case} is in {name} only" for case in result[key])
