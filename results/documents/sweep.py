"""The results of a sweep: as a JSON object of the schema `railbed.sweep/1`, and as a table."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from model.sweep import Point
from results.documents.case_outcome import CaseOutcome, outcomes
from results.store.sweeps import SweepFolder
from results.tables.style import VERDICT_STYLES
from results.verdicts.verdict import Verdict, worst

SCHEMA = "railbed.sweep/1"
# A point without a result.
LOST: dict[str, Any] = {
    "exit_code": None,
    "took_s": None,
    "run_id": None,
    "verdict": "fail",
    "cases": [],
    "failures": [],
    "folder": None,
}


def sweep_object(folder: SweepFolder) -> dict[str, Any]:
    """What `sweep --json` prints, from what the points' folders hold."""
    points = [_point_object(folder, point) for point in folder.sweep.points]
    return {
        "schema": SCHEMA,
        "sweep": folder.name,
        "scenario": folder.sweep.scenario,
        "proxies": folder.sweep.proxies,
        "verdict": worst(Verdict(point["verdict"]) for point in points).value,
        "folder": str(folder.path),
        "points": points,
    }


def _point_object(folder: SweepFolder, point: Point) -> dict[str, Any]:
    """A point; without a result, it fails with a cause."""
    outcome = folder.outcome(point)
    facts: dict[str, Any] = {
        "point": point.number,
        "parameters": {setting.key: setting.value for setting in point.settings},
        "scenario_file": str(folder.scenario(point)),
    }
    if outcome is None:
        return {**LOST, **facts, "cause": "it was not run"}
    facts |= {"exit_code": outcome.exit_code, "took_s": outcome.took_s}
    folder_name = None if outcome.run is None else str(outcome.run)
    if outcome.result is None:
        return {**LOST, **facts, "cause": outcome.cause, "folder": folder_name}
    result = json.loads(outcome.result.read_text())
    kept = {key: result[key] for key in ("run_id", "verdict", "cases", "failures")}
    return {**facts, **kept, "cause": _reasons(result), "folder": folder_name}


def _reasons(result: Mapping[str, Any]) -> str:
    """Why a result fails, one line for each case; nothing if it does not."""
    failed = [case for case in outcomes(result) if case.verdict == "fail"]
    lines = [_reason(case) for case in failed]
    if result.get("paths", {}).get("verdict") == "fail":
        lines.append("packets do not take the intended paths (paths.json)")
    return "\n".join(lines)


def _reason(case: CaseOutcome) -> str:
    return f"{case.name}: {'; '.join(case.reasons)}"


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
    console.print(f"{good} of {len(points)} points did not fail.", highlight=False)


def _label(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={_shown(value)}" for key, value in point["parameters"].items())


def _remarks(point: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is to be known of a point: why it fails, and what is doubtful about its cases."""
    for case in outcomes(point):
        if case.verdict == "warn":
            yield case.verdict, _reason(case)
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
    """The last parts of each key that tell it from the others."""
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
    for case in cases:
        yield [*start, *_cells(case)]
    if not cases:
        yield [*start, "no result", "-", "-", "-", _verdict(point["verdict"])]


def _cells(case: CaseOutcome) -> Iterator[RenderableType]:
    yield case.name
    yield _number(case.measured_s, ".3f", " s")
    yield _number(case.modeled_s, ".3f", " s")
    yield _number(case.ratio, ".4f")
    yield _verdict(case.verdict)


def _verdict(verdict: str) -> Text:
    return Text(verdict, VERDICT_STYLES[verdict])


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"


def _shown(value: object) -> str:
    """A parameter's value, as YAML would have it on one line."""
    return value if isinstance(value, str) else json.dumps(value, default=str)
