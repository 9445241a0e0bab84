"""The comparison of two runs as a table, from its JSON object."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from results.tables.style import (
    VERDICT_STYLES,
    Case,
    add_cases,
    figures_table,
    number_or_dash,
    styled_verdict,
)
from results.verdicts.run_diff import Difference

NAMES = ("A", "B")
LEGEND = (
    "Medians, in emulated seconds. Slower, faster: the ranges of the repeats do not overlap; same: "
    "they do; few repeats: they do not, and there are too few to tell; other work: not compared. "
    "The spread of a run's repeats does not show the differences between two set-ups."
)


def print_comparison(result: Mapping[str, Any], console: Console) -> None:
    """Print both runs, their common cases, warnings about comparability, and reasons."""
    for name, run in zip(NAMES, result["runs"], strict=True):
        verdict = styled_verdict(run["verdict"])
        console.print(Text(f"{name}  {run['run_id']}  ").append(verdict), soft_wrap=True)
    console.print(_table(result["cases"]))
    console.print(Text(LEGEND, "dim"))
    for line in _warnings(result):
        console.print(Text(f"warning: {line}", "yellow"), soft_wrap=True)
    for line, judged in _reasons(result["cases"]):
        console.print(Text(line, VERDICT_STYLES[judged]), soft_wrap=True)


def _table(cases: list[dict[str, Any]]) -> Table:
    table = figures_table("case", *NAMES)
    table.add_column("B is", no_wrap=True)
    for heading in ("B/A", "A/model", "B/model"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in NAMES:
        table.add_column(heading, no_wrap=True)
    add_cases(table, cases, _cells)
    return table


def _cells(case: Case) -> Iterator[RenderableType]:
    for measured in case["measured_s"]:
        yield number_or_dash(measured["median"], ".3f", " s")
    yield in_words(case)
    yield number_or_dash(case["ratio"], ".4f")
    for ratio in case["ratio_to_model"]:
        yield number_or_dash(ratio, ".4f")
    for verdict in case["verdicts"]:
        yield styled_verdict(verdict)


def in_words(case: Mapping[str, Any]) -> str:
    """Say whether the second run differs by more than the spread."""
    match Difference(case["difference"]):
        case Difference.WITHIN:
            return "same"
        case Difference.UNKNOWN:
            return "few repeats"
        case Difference.OTHER_WORK:
            return "other work"
        case Difference.LARGER:
            return "slower" if case["ratio"] > 1 else "faster"


def _warnings(result: Mapping[str, Any]) -> Iterator[str]:
    yield from result["warnings"]
    for case in result["cases"]:
        if case["other_work"]:
            differences = "; ".join(case["other_work"])
            yield f"{case['case']} is not the same work, and is not compared: {differences}"
    for name, key in zip(NAMES, ("only_in_first", "only_in_second"), strict=True):
        for case in result[key]:
            yield f"{case} is in {name} only"


def _reasons(cases: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield a line for every reason, with its verdict."""
    for case in cases:
        pairs = zip(NAMES, case["verdicts"], case["reasons"], strict=True)
        for name, verdict, reasons in pairs:
            for reason in reasons:
                yield f"{verdict}: {name}: {case['case']}: {reason}", verdict
