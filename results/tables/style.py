"""Formats that tables share: columns, rows of cases, verdicts in colour, the virtual clock."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from results.store.runs import without_fabric
from results.verdicts.path_check import NOT_APPLICABLE

Case = dict[str, Any]
Cells = Callable[[Case], Iterator[RenderableType]]

VERDICT_STYLES = {"pass": "green", "warn": "yellow", "fail": "red", NOT_APPLICABLE: "dim"}


def styled_verdict(verdict: str) -> Text:
    """Format a verdict in its colour."""
    return Text(verdict, VERDICT_STYLES[verdict])


def number_or_dash(value: float | None, form: str, unit: str = "") -> str:
    """Format a number with its unit, or a dash if there is none."""
    return "-" if value is None else f"{value:{form}}{unit}"


def three_digits(number: float) -> str:
    """Format a number with its first three digits, and at most one behind the point if more."""
    return f"{number:.1f}" if abs(number) >= 100 else f"{number:.3g}"


def range_of(values: Collection[float]) -> str:
    """Format the least and the largest of some ratios, or one number if they look the same."""
    return " to ".join(dict.fromkeys((f"{min(values):.3f}", f"{max(values):.3f}")))


def human_seconds(seconds: float) -> str:
    """Format seconds in a suitable unit (s, ms, µs or ns)."""
    for factor, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def figures_table(first: str, *headings: str) -> Table:
    """A table with a column of names, and columns of figures with these headings."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column(first, overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def add_cases(table: Table, cases: Iterable[Case], cells: Cells) -> None:
    """Add a row for each case, name and `cells`, grouped by the kind of fabric.

    Names begin with that kind, and would not fit with it.
    """
    for kind, together in groupby(cases, lambda case: case["case"].partition("/")[0]):
        table.add_row(Text(kind, "bold"))
        for case in together:
            table.add_row(Text(f" {without_fabric(case['case'])}"), *cells(case))


def case_grid(headings: Sequence[str], cases: Iterable[Case], cells: Cells) -> Table:
    """Return a table with a row for each case, and with headings unless all are empty."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    for _ in headings:
        table.add_column(justify="right", no_wrap=True)
    if any(headings):
        table.add_row("", *(Text(heading, "dim") for heading in headings))
    add_cases(table, cases, cells)
    return table


def print_clock(result: Mapping[str, Any], console: Console) -> None:
    """Print the clock of a result; nothing for this machine's own clock."""
    if "clock" in result:
        console.print(Text(clock_line(result["clock"]), "dim"), soft_wrap=True)


def clock_line(clock: Mapping[str, Any]) -> str:
    """Describe the virtual clock."""
    return (
        f"\nVirtual clock, {clock['instruction_ns']} ns an instruction: image {clock['image']}, "
        f"{clock['qemu']}, seed {clock['seed']}; records {clock['records']}"
    )
