"""Formats that tables share: columns, verdicts in colour, numbers that may be missing."""

from rich.table import Table
from rich.text import Text

VERDICT_STYLES = {"pass": "green", "warn": "yellow", "fail": "red"}


def styled_verdict(verdict: str) -> Text:
    """Format a verdict in its colour."""
    return Text(verdict, VERDICT_STYLES[verdict])


def number_or_dash(value: float | None, form: str, unit: str = "") -> str:
    """Format a number with its unit, or a dash if there is none."""
    return "-" if value is None else f"{value:{form}}{unit}"


def figures_table(first: str, *headings: str) -> Table:
    """A table with a column of names, and columns of figures with these headings."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column(first, overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
