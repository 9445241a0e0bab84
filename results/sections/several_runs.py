"""The sections about several runs: two side by side, and a sweep, from their JSON objects."""

import json
from collections.abc import Iterator, Sequence

from results.sections.section import (
    Columns,
    Marked,
    Result,
    Row,
    Section,
    case_section,
    number_or_dash,
    told,
    verdict,
    without_fabric,
)
from results.verdicts.several_runs import Difference, outcomes
from results.verdicts.verdict import times_count

NAMES = ("A", "B")
# A parameter that names the fabric, as names of cases do.
KINDS = "fabric.kinds"
WORDS = {
    Difference.WITHIN: "same",
    Difference.OTHER_WORK: "other work",
    Difference.BROKEN: "broke off",
    Difference.NOT_TIMED: "checked",
}
NOT_JUDGED = (
    "Ratios in brackets are not judged: what arrived was checked meanwhile, and the times mean "
    "nothing."
)


def comparison_sections(result: Result) -> list[Section]:
    """Both runs, their common cases with the reasons of verdicts, other differences if any."""
    both = zip(NAMES, result["runs"], strict=True)
    runs = [Marked(f"{n}: {run['run_id']} {run['verdict']}", run["verdict"]) for n, run in both]
    text = (
        "Medians, in emulated seconds. Slower, faster: the ranges of the executions do not "
        "overlap; same: they do; few repeats: disjoint, but too few repeats to tell; no repeats: "
        "with faults, they are not stored; other work: not compared; broke off: no time; "
        "checked: what arrived was checked meanwhile, and the times mean nothing. The spread of a "
        "run's repeats does not show the differences between two set-ups."
    )
    reasons = _reasons(result["cases"])
    cases = case_section("Both runs, case by case", COMPARED, result["cases"], text, reasons)
    warnings = [Marked(f"warning: {line}", "warn") for line in _differences(result)]
    others = Section("Differences apart from the measurements", remarks=warnings)
    return [Section("Runs", remarks=runs), cases, *([others] if warnings else [])]


COMPARED: Columns = (
    *(
        (name, lambda case, of=of: number_or_dash(case["measured_s"][of]["median"], ".3f", " s"))
        for of, name in enumerate(NAMES)
    ),
    ("B is", lambda case: Marked(in_words(case))),
    ("B/A", lambda case: number_or_dash(case["ratio"], ".4f")),
    *(
        (f"{name}/model", lambda case, of=of: number_or_dash(case["ratio_to_model"][of], ".4f"))
        for of, name in enumerate(NAMES)
    ),
    *(
        (name, lambda case, of=of: Marked(case["verdicts"][of], case["verdicts"][of]))
        for of, name in enumerate(NAMES)
    ),
)


def in_words(case: Result) -> str:
    """Say whether the second run differs by more than the spread."""
    kind = Difference(case["difference"])
    if kind is Difference.UNKNOWN:
        repeated = all(measured["repeats"] for measured in case["measured_s"])
        return "few repeats" if repeated else "no repeats"
    if kind is Difference.LARGER:
        return "slower" if case["ratio"] > 1 else "faster"
    return WORDS[kind]


def effect_in_words(case: Result) -> str:
    """Say by how much the second run differs, in percent, if by more than the spread."""
    words = in_words(case)
    larger = case["difference"] == Difference.LARGER.value
    return f"{abs(case['ratio'] - 1):.1%} {words}" if larger else words


def _differences(result: Result) -> Iterator[str]:
    yield from result["warnings"]
    for case in result["cases"]:
        if case["other_work"]:
            yield f"{case['case']} has other work, not compared: {'; '.join(case['other_work'])}"
    for name, key in zip(NAMES, ("only_in_first", "only_in_second"), strict=True):
        if cases := result[key]:
            yield f"in {name} only: {', '.join(cases)}"


def _reasons(cases: list[Result]) -> Iterator[Marked]:
    """Yield the reasons and notes of both runs."""
    for case in cases:
        for which, name in enumerate(NAMES):
            told_of = {key: case[key][which] for key in ("reasons", "notes", "doubts")}
            judged = {"verdict": case["verdicts"][which], **told_of}
            yield from told(f"{name}: {case['case']}", judged)


def sweep_section(result: Result) -> Section:
    """A row for each case of each point, then the failed points with their causes."""
    points = result["points"]
    good = sum(point["verdict"] != "fail" for point in points)
    keys = list(points[0]["parameters"])
    parameters = [short_name(key, keys) for key in keys]
    cases = (case for point in points for case in outcomes(point))
    all_count = all(times_count(case.data_is_right) for case in cases)
    remarks = [remark for point in points for remark in _remarks(point)]
    return Section(
        "Completion time by point",
        ("", *parameters, "case", "measured", "modeled", "ratio", ""),
        [row for point in points for row in _rows(point)],
        "Times are emulated seconds." + ("" if all_count else f" {NOT_JUDGED}"),
        (*remarks, f"{good} of {len(points)} points did not fail."),
        names=2 + len(parameters),
    )


def _remarks(point: Result) -> Iterator[Marked]:
    """Yield a line for each case that warns, and for the point if it fails."""
    label = ", ".join(f"{key}={one_line(value)}" for key, value in point["parameters"].items())
    lines = [("warn", case.sentence) for case in outcomes(point) if case.verdict == "warn"]
    lines += [("fail", point["cause"])] * (point["verdict"] == "fail")
    for judged, why in lines:
        yield Marked(f"{judged}: point {point['point']} ({label}): {why}", judged)


def short_name(key: str, keys: Sequence[str]) -> str:
    """Shorten a dotted key to the fewest last parts that distinguish it from the others."""
    parts = key.split(".")
    for count in range(1, len(parts)):
        name = ".".join(parts[-count:])
        if sum(other == name or other.endswith(f".{name}") for other in keys) == 1:
            return name
    return key


def _rows(point: Result) -> Iterator[Row]:
    start = (str(point["point"]), *map(one_line, point["parameters"].values()))
    # Of a list, each case says on which of its fabrics it was.
    names_fabric = isinstance(point["parameters"].get(KINDS), str)
    cases = outcomes(point)
    for case in cases:
        name = without_fabric(case.name) if names_fabric else case.name
        times = (number_or_dash(s, ".3f", " s") for s in (case.measured_s, case.modeled_s))
        ratio = number_or_dash(case.ratio, ".4f")
        if not times_count(case.data_is_right):  # not judged
            ratio = f"({ratio})"
        yield *start, name, *times, ratio, Marked(case.verdict, case.verdict)
    if not cases:
        yield *start, "no result", "-", "-", "-", verdict(point)


def one_line(value: object) -> str:
    """Format a parameter's value as one line of YAML."""
    return value if isinstance(value, str) else json.dumps(value, default=str)
