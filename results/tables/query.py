"""The answer to a query, and the tables that queries know, at a terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_answer(answer: Mapping[str, Any], console: Console) -> None:
    """Print the rows under the names of their columns, numbers to the right."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for index, column in enumerate(answer["columns"]):
        numbers = all(_is_number(row[index]) for row in answer["rows"])
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in answer["rows"]:
        table.add_row(*(Text(_plain(value)) for value in row))
    console.print(table)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value)


def print_tables(found: Mapping[str, Any], console: Console) -> None:
    """Print each table with its columns."""
    for name, columns in found["tables"].items():
        console.print(Text(name, "bold").append(f"  {', '.join(columns)}", "not bold"))
