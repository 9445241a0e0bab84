"""How many executions count, and what the machine took meanwhile, from the JSON object of a run."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from rich.table import Table
from rich.text import Text

from results.statistics import Interval

HEADINGS = ("", "counted", "disturbed", "median ±", "lost", "longest pause")
LEGEND = (
    "Disturbed: by pauses of the machine; others were executed in their place. Median ±: with 95 % "
    "confidence, from six executions on. Lost: of all cores, to pauses of 1 ms and more, in the "
    "worst execution."
)


def executions_table(cases: list[dict[str, Any]]) -> Table:
    """A line for each case; runs of old do not know."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    for _ in HEADINGS[1:]:
        table.add_column(justify="right", no_wrap=True)
    table.add_row(*(Text(heading, "dim") for heading in HEADINGS))
    for kind, together in groupby(cases, lambda case: case["fabric"]["kind"]):
        table.add_row(Text(kind, "bold"))
        for case in together:
            if "disturbed_s" in case:
                table.add_row(*_cells(case["case"].removeprefix(f"{kind}/"), case))
    return table


def _cells(name: str, case: dict[str, Any]) -> Iterator[str]:
    seen = case["fidelity"]
    counted, disturbed = len(case["measured_s"]["values"]), len(case["disturbed_s"])
    yield " " + name
    yield f"{counted}"
    yield f"{disturbed}, all count" if case["disturbed_count"] else f"{disturbed}"
    yield _known_to(case["measured_s"]["interval"])
    yield f"{seen['lost']:.1%}" if "lost" in seen else "-"
    yield f"{1e3 * seen['pause_longest_s']:.1f} ms" if "lost" in seen else "-"


def _known_to(interval: dict[str, Any] | None) -> str:
    return "-" if interval is None else f"{Interval(**interval).half_width:.2%}"
