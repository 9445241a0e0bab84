"""Tables with a row for each case of a run, grouped by the kind of fabric."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

Case = dict[str, Any]
Cells = Callable[[Case], Iterator[RenderableType]]


def add_cases(table: Table, cases: Iterable[Case], cells: Cells) -> None:
    """Add a row for each case, name and `cells`, grouped by the kind of fabric.

    Names begin with that kind, and would not fit with it.
    """
    for kind, together in groupby(cases, lambda case: case["case"].partition("/")[0]):
        table.add_row(Text(kind, "bold"))
        for case in together:
            table.add_row(Text(f" {case['case'].removeprefix(f'{kind}/')}"), *cells(case))


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
