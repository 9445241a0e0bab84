"""The articles about several runs: two compared, significance before ratio; a sweep's curves."""

from collections.abc import Collection, Iterator, Sequence

from matplotlib.axes import Axes

from model.sentences import counted
from results.figures import kit
from results.render.page import Article, Part
from results.report.charts import LEGEND_ROW, bus_bandwidth, case_rows, draw_measured, write_beside
from results.sections.run import timed
from results.sections.section import Result, Section, range_of, without_fabric
from results.sections.several_runs import (
    NAMES,
    comparison_sections,
    effect_in_words,
    in_words,
    one_line,
    sweep_section,
)
from results.verdicts.run import SAME_SIZE
from results.verdicts.several_runs import Difference

ROW = 0.5
# A picture with more lines than this is illegible.
MOST_LINES, HEIGHT = 6, 2.8
# Values whose extremes differ by this factor have a logarithmic axis.
DECADES = 20
COMPARABLE = Difference.LARGER, Difference.WITHIN


def comparison_article(result: Result) -> Article:
    """Return the article of a comparison, from its JSON object."""
    cases, (runs, both, *others) = result["cases"], comparison_sections(result)
    parts = [Part(runs), Part(both, [_compared(cases)]), *map(Part, others)]
    names = " and ".join(run["run_id"] for run in result["runs"])
    return Article("Comparison", names, _compared_answer(cases), parts)


def _compared_answer(cases: Sequence[Result]) -> str:
    different = [case for case in cases if case["difference"] == Difference.LARGER.value]
    effects = "; ".join(f"{case['case']}: B is {effect_in_words(case)}" for case in different)
    others = [case for case in cases if case["difference"] not in COMPARABLE]
    comparable, why = len(cases) - len(others), ", ".join(dict.fromkeys(map(in_words, others)))
    if not comparable:
        return f"0 of {len(others)} cases can be compared ({why})."
    counted = f"{len(different)} of {comparable} cases differ by more than their executions do"
    not_compared = f"; {len(others)} cannot be compared ({why})" if others else ""
    return f"{counted}{': ' if effects else ''}{effects}{not_compared}."


def _compared(cases: Sequence[Result]) -> kit.Picture:
    with case_rows(cases, 1.1, ROW) as (figure, axes):
        for row, case in enumerate(cases):
            for which, measured in enumerate(case["measured_s"]):
                height = row + 0.24 * which - 0.12
                draw_measured(axes, measured, height, kit.MARKERS[which], kit.SERIES[which])
            write_beside(axes, row, effect_in_words(case))
        for which, name in enumerate(NAMES):
            axes.plot([], [], kit.MARKERS[which], color=kit.SERIES[which], label=name)
        axes.set_xlim(0, axes.get_xlim()[1] * 1.03)
        axes.set_xlabel("completion time (emulated s); B against A", color=kit.MODELED)
        figure.legend(loc="outside upper left", ncols=2)
    return kit.Picture(
        "comparison", f"Completion times of both runs in {len(cases)} cases.", figure
    )


def sweep_article(result: Result) -> Article:
    """Return the article of a sweep, from its JSON object."""
    points = result["points"]
    drawn = [_swept(points, name, number) for number, name in enumerate(_names(points))]
    parts = [Part(sweep_section(result), drawn)]
    if sizes := _over_sizes(points):
        text = "As nccl-tests print it, in figures of the real platform."
        section = Section("Bus bandwidth against size", text=text)
        parts.append(Part(section, [bus_bandwidth(sizes)]))
    return Article(f"Sweep of {result['scenario']}", result["sweep"], _swept_answer(result), parts)


def _names(points: Sequence[Result]) -> list[str]:
    """The names of all cases; those of one workload on several fabrics are neighbours."""
    names = dict.fromkeys(case["case"] for point in points for case in point["cases"])
    workloads = list(dict.fromkeys(map(without_fabric, names)))
    return sorted(names, key=lambda name: workloads.index(without_fabric(name)))


def _over_sizes(points: Sequence[Result]) -> list[Result]:
    """The collectives over the parameter that changes their sizes most, named by the others."""
    by_key = (_series(points, key) for key in points[0]["parameters"])
    chosen = max(by_key, key=lambda series: max(map(_growth, series), default=0.0))
    return [case for same in chosen if _growth(same) > 1 + SAME_SIZE for case in same]


def _series(points: Sequence[Result], key: str) -> list[list[Result]]:
    """The results of each collective over a parameter, for each setting of the others."""
    series: dict[str, list[Result]] = {}
    for point in points:
        for case in timed(one for one in point["cases"] if one["busbw_gbyte_per_s"] is not None):
            name = ", ".join(filter(None, (case["case"], _others(point, key))))
            series.setdefault(name, []).append({**case, "case": name})
    return list(series.values())


def _growth(cases: Sequence[Result]) -> float:
    """The largest size of some cases over the smallest."""
    sizes = [case["bytes"] * case["size_scale"] for case in cases]
    return float(max(sizes) / min(sizes))


def _others(point: Result, key: str) -> str:
    """The parameters of a point but one."""
    others = ((one, value) for one, value in point["parameters"].items() if one != key)
    return ", ".join(f"{one} = {one_line(value)}" for one, value in others)


def _swept_answer(result: Result) -> str:
    points = result["points"]
    ratios = [case["ratio"] for point in points for case in timed(point["cases"])]
    ended = sum(point["run_id"] is not None for point in points)
    told = f"{ended} of {len(points)} points have a result."
    if ratios:
        told += f" Measured over modeled is {range_of(ratios)}."
    return f"{told} The verdict is {result['verdict']}."


def _swept(points: Sequence[Result], name: str, number: int) -> kit.Picture:
    """Draw a case over the first parameter, with a line for each setting of the others."""
    key = next(iter(points[0]["parameters"]))
    places = _places([point["parameters"][key] for point in points])
    lines: dict[str, list[tuple[float, Result]]] = {}
    for point in points:
        place = places[one_line(point["parameters"][key])]
        mine = [(place, case) for case in point["cases"] if case["case"] == name]
        if mine:
            lines.setdefault(_others(point, key), []).extend(mine)
    with kit.drawing(HEIGHT) as figure:
        axes = figure.add_subplot()
        shown = list(lines.items())[:MOST_LINES]
        for index, (others, cases) in enumerate(shown):
            _line(axes, sorted(cases, key=lambda pair: pair[0]), others, index)
        axes.plot([], [], color=kit.MODELED, linewidth=0.8, label="modeled")
        if _spans_decades(places.values()):
            axes.set_xscale("log")
            axes.minorticks_off()
        kit.label_values(axes, places)
        axes.set_xlabel(key)
        axes.set_ylabel("completion time (s)")
        times_s = list(_times_s(points, without_fabric(name)))
        if _spans_decades(times_s):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(kit.PLAIN)
            axes.set_ylim(min(times_s) / 1.5, max(times_s) * 1.5)
        else:
            axes.set_ylim(0, 1.05 * max(times_s))
        legend = figure.legend(loc="outside upper left", ncols=2)
        # Letters are some percent wider at other resolutions.
        if legend.get_window_extent().width > 0.95 * figure.bbox.width:
            legend.remove()
            figure.legend(loc="outside upper left")
            figure.set_figheight(HEIGHT + LEGEND_ROW * len(shown) / 2)
    hidden = counted(len(lines) - len(shown), "more setting", "of the other parameters")
    more = f" Not drawn: {hidden}." if len(lines) > len(shown) else ""
    return kit.Picture(f"sweep-{number}", f"{name} over {key}.{more}", figure)


def _spans_decades(values: Collection[float]) -> bool:
    return min(values) > 0 and max(values) >= DECADES * min(values)


def _times_s(points: Sequence[Result], workload: str) -> Iterator[float]:
    """All times of a workload on any fabric: modeled, and measured unless it broke off."""
    for case in (case for point in points for case in point["cases"]):
        if without_fabric(case["case"]) == workload:
            yield case["modeled_s"]
            if not case.get("incomplete"):
                yield from (case["measured_s"]["min"], case["measured_s"]["max"])


def _places(values: Sequence[object]) -> dict[str, float]:
    """Return the position of each value on the axis: numbers by value, others side by side."""
    shown = list(dict.fromkeys(map(one_line, values)))
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return {value: float(value) for value in shown}
    return {value: float(place) for place, value in enumerate(shown)}


def _line(axes: Axes, placed: Sequence[tuple[float, Result]], others: str, index: int) -> None:
    whole = [(x, case["measured_s"]) for x, case in placed if not case.get("incomplete")]
    medians = [measured["median"] for _, measured in whole]
    below = [measured["median"] - measured["min"] for _, measured in whole]
    above = [measured["max"] - measured["median"] for _, measured in whole]
    style = kit.look(index, label=kit.shortened(others) or "measured")
    axes.errorbar([x for x, _ in whole], medians, (below, above), capsize=3, **style)
    modeled = [case["modeled_s"] for _, case in placed]
    axes.plot([x for x, _ in placed], modeled, color=kit.MODELED, linewidth=0.8)
