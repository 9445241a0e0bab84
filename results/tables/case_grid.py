"""A table with a row for each case of a run, grouped by the kind of fabric."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.table import Table
from rich.text import Text

Case = dict[str, Any]
Cells = Callable[[Case], Iterator[str | Text]]


def case_grid(headings: Sequence[str], cases: Sequence[Case], cells: Cells) -> Table:
    """Return a table with a row for each case, name and `cells`, grouped by the kind of fabric."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    for _ in headings:
        table.add_column(justify="right", no_wrap=True)
    table.add_row("", *(Text(heading, "dim") for heading in headings))
    for kind, together in groupby(cases, lambda case: case["fabric"]["kind"]):
        table.add_row(Text(kind, "bold"))
        for case in together:
            table.add_row(f" {case['case'].removeprefix(f'{kind}/')}", *cells(case))
    return table
