"""The answer to a query, and the tables that queries know, at a terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

# More columns than any answer has.
WIDEST = 10**6


def print_answer(answer: Mapping[str, Any], console: Console) -> None:
    """Print the rows with whole values: as a table, or a block for each row if it is too wide.

    A file or a pipe gets the table, whatever its width.
    """
    table = _table(answer)
    unlimited = console.options.update(max_width=WIDEST)
    width = Measurement.get(console, unlimited, table).maximum
    if width <= console.width:
        console.print(table)
    elif console.is_terminal:
        _print_blocks(answer, console)
    else:
        console.width = width
        console.print(table)


def _table(answer: Mapping[str, Any]) -> Table:
    """The rows under the names of their columns, numbers to the right."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for index, column in enumerate(answer["columns"]):
        numbers = all(_is_number(row[index]) for row in answer["rows"])
        table.add_column(column, justify="right" if numbers else "left", no_wrap=True)
    for row in answer["rows"]:
        table.add_row(*(Text(_plain(value)) for value in row))
    return table


def _print_blocks(answer: Mapping[str, Any], console: Console) -> None:
    """Print a block for each row, with a line for each column."""
    for row in answer["rows"]:
        block = Table.grid(padding=(0, 2, 0, 0))
        block.add_column(no_wrap=True, style="bold")
        block.add_column(overflow="fold")
        for column, value in zip(answer["columns"], row, strict=True):
            block.add_row(Text(column), Text(_plain(value)))
        console.print(block)
        console.print()


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
