"""The section of a sweep, from its JSON object."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence

from results.sections.formats import number_or_dash
from results.sections.section import Cell, Marked, Result, Row, Section, verdict
from results.store.runs import without_fabric
from results.verdicts.case_outcome import outcomes

# A parameter that names the fabric, as names of cases do.
KINDS = "fabric.kinds"
FIGURES = ("measured", "modeled", "ratio", "")


def sweep_section(result: Result) -> Section:
    """A row for each case of each point, then the failed points with their causes."""
    points = result["points"]
    good = sum(point["verdict"] != "fail" for point in points)
    parameters = short_names(list(points[0]["parameters"]))
    return Section(
        "Completion time by point",
        ("", *parameters, "case", *FIGURES),
        [row for point in points for row in _rows(point)],
        "Times are emulated seconds.",
        (
            *(remark for point in points for remark in _remarks(point)),
            f"{good} of {len(points)} points did not fail.",
        ),
        names=2 + len(parameters),
    )


def _remarks(point: Result) -> Iterator[Marked]:
    """Yield a line for each case that warns, and for the point if it fails."""
    label = ", ".join(f"{key}={_shown(value)}" for key, value in point["parameters"].items())
    lines = [("warn", case.sentence) for case in outcomes(point) if case.verdict == "warn"]
    lines += [("fail", point["cause"])] * (point["verdict"] == "fail")
    for judged, why in lines:
        yield Marked(f"{judged}: point {point['point']} ({label}): {why}", judged)


def short_names(keys: Sequence[str]) -> list[str]:
    """Shorten each dotted key to the fewest last parts that distinguish it from the others."""
    return [_short(key, keys) for key in keys]


def _short(key: str, keys: Sequence[str]) -> str:
    parts = key.split(".")
    for count in range(1, len(parts)):
        name = ".".join(parts[-count:])
        if Counter(other == name or other.endswith(f".{name}") for other in keys)[True] == 1:
            return name
    return key


def _rows(point: Result) -> Iterator[Row]:
    start = (str(point["point"]), *map(_shown, point["parameters"].values()))
    names_fabric = KINDS in point["parameters"]
    cases = outcomes(point)
    for case in cases:
        figures: list[Cell] = [
            number_or_dash(case.measured_s, ".3f", " s"),
            number_or_dash(case.modeled_s, ".3f", " s"),
            number_or_dash(case.ratio, ".4f"),
            Marked(case.verdict, case.verdict),
        ]
        yield [*start, without_fabric(case.name) if names_fabric else case.name, *figures]
    if not cases:
        yield [*start, "no result", "-", "-", "-", verdict(point)]


def _shown(value: object) -> str:
    """Format a parameter's value as one line of YAML."""
    return value if isinstance(value, str) else json.dumps(value, default=str)
