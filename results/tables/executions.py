"""The table of executions: how many count, and what pauses took, from a run's JSON object."""

from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

from results.tables.case_grid import Case, case_grid
from results.verdicts.summary import Interval

HEADINGS = ("counted", "disturbed", "median ±", "lost", "longest pause")
LEGEND = (
    "Disturbed: by pauses of the machine; others were executed in their place. Median ±: with 95 % "
    "confidence, from six executions on. Lost: of all cores, to pauses of 1 ms and more, in the "
    "worst execution."
)


def executions_table(cases: list[Case]) -> Table:
    """Return a row for each case; cases from older versions lack the data and are left out."""
    return case_grid(HEADINGS, [case for case in cases if "disturbed_s" in case], _cells)


def _cells(case: Case) -> Iterator[str | Text]:
    seen = case["fidelity"]
    counted, disturbed = len(case["measured_s"]["values"]), len(case["disturbed_s"])
    yield f"{counted}"
    yield f"{disturbed}, all count" if case["disturbed_counted"] else f"{disturbed}"
    yield _known_to(case["measured_s"]["interval"])
    yield f"{seen['lost']:.1%}" if "lost" in seen else "-"
    yield f"{1e3 * seen['pause_longest_s']:.1f} ms" if "lost" in seen else "-"


def _known_to(interval: dict[str, Any] | None) -> str:
    return "-" if interval is None else f"{Interval(**interval).half_width:.2%}"
