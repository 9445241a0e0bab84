"""The table of a sweep, from its JSON object."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from results.store.runs import without_fabric
from results.tables.style import VERDICT_STYLES, number_or_dash, styled_verdict
from results.verdicts.case_outcome import CaseOutcome, outcomes

# A parameter that names the fabric, as names of cases do.
KINDS = "fabric.kinds"


def print_sweep(result: Mapping[str, Any], console: Console) -> None:
    """Print a row for each case of each point, then the failed points with their causes."""
    points = result["points"]
    console.print(_table(points))
    console.print(Text("Times are emulated seconds.", "dim"))
    for point in points:
        for verdict, why in _remarks(point):
            line = f"{verdict}: point {point['point']} ({_label(point)}): {why}"
            console.print(Text(line, VERDICT_STYLES[verdict]), soft_wrap=True)
    good = sum(point["verdict"] != "fail" for point in points)
    console.print(f"{good} of {len(points)} points did not fail.")


def _label(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={_shown(value)}" for key, value in point["parameters"].items())


def _remarks(point: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (verdict, reason) for each case that warns, and for the point if it fails."""
    for case in outcomes(point):
        if case.verdict == "warn":
            yield case.verdict, case.sentence
    if point["verdict"] == "fail":
        yield "fail", point["cause"]


def _table(points: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("", justify="right", no_wrap=True)
    for heading in short_names(list(points[0]["parameters"])):
        table.add_column(Text(heading), overflow="fold")
    table.add_column("case", overflow="fold")
    for heading in ("measured", "modeled", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for point in points:
        for row in _rows(point):
            table.add_row(*row)
    return table


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


def _rows(point: Mapping[str, Any]) -> Iterator[list[RenderableType]]:
    shown = map(_shown, point["parameters"].values())
    start: list[RenderableType] = [str(point["point"]), *map(Text, shown)]
    cases = outcomes(point)
    names_fabric = KINDS in point["parameters"]
    for case in cases:
        yield [*start, without_fabric(case.name) if names_fabric else case.name, *_cells(case)]
    if not cases:
        yield [*start, "no result", "-", "-", "-", styled_verdict(point["verdict"])]


def _cells(case: CaseOutcome) -> Iterator[RenderableType]:
    yield number_or_dash(case.measured_s, ".3f", " s")
    yield number_or_dash(case.modeled_s, ".3f", " s")
    yield number_or_dash(case.ratio, ".4f")
    yield styled_verdict(case.verdict)


def _shown(value: object) -> str:
    """Format a parameter's value as one line of YAML."""
    return value if isinstance(value, str) else json.dumps(value, default=str)
