"""Sections at a terminal: tables in columns, verdicts in colour."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from model.errors import visible
from results.sections.section import Cell, Marked, Row, Section
from results.verdicts.path_check import NOT_APPLICABLE

COLOURS = {"pass": "green", "warn": "yellow", "fail": "red", NOT_APPLICABLE: "dim"}


def print_sections(sections: Iterable[Section], console: Console) -> None:
    """Print sections below their titles, but for the first title: the command says what it is."""
    for number, section in enumerate(one for one in sections if one.has_content):
        if number:
            console.print(Text(f"\n{section.title}:", "bold"), soft_wrap=True)
        for table in _tables(section, console.width):
            console.print(table)
        if section.text:
            console.print(Text(section.text, "dim"))
        for remark in section.remarks:
            console.print(_text(remark), soft_wrap=True)


def print_whole(section: Section, console: Console) -> None:
    """Print rows with whole values: as a table, or a block for each row if it is too wide.

    A file or a pipe gets the table, whatever its width.
    """
    width = _total(_widths(section), gap=2)
    if width <= console.width or not console.is_terminal:
        console.width = max(width, console.width)
        console.print(_table(section, section.rows, console.width))
        return
    for row in section.rows:
        block = Table.grid(padding=(0, 2, 0, 0))
        block.add_column(no_wrap=True, style="bold")
        block.add_column(overflow="fold")
        for column, cell in zip(section.columns, row, strict=True):
            block.add_row(_text(column), _text(cell))
        console.print(block)
        console.print()


def _text(cell: Cell) -> Text:
    colour = COLOURS.get(cell.verdict, "") if isinstance(cell, Marked) else ""
    return Text(visible(str(cell)), colour)


def _tables(section: Section, width: int) -> Iterator[Table | Text]:
    """Yield the headings with the rows of no group, then the heading and the rows of each group."""
    groups = [(Text(), list[Row]())]
    for row in section.rows:
        if is_heading(row, section):
            groups.append((Text(str(row[0]), "bold"), []))
        else:
            groups[-1][1].append(row if len(groups) == 1 else (f" {row[0]}", *row[1:]))
    for number, (heading, rows) in enumerate(groups if section.rows else ()):
        if number:
            yield heading
        if rows or not number:
            yield _table(section, rows, width, show_header=not number)


def _table(section: Section, rows: Sequence[Row], width: int, *, show_header: bool = True) -> Table:
    """Some rows of a section in columns; those of all its groups have the same widths."""
    widths, broken = _widths(section), is_grouped(section) or section.names > 1
    gap = 2 if _total(widths, 2) <= width else 1
    if _total(widths, gap) > width:
        widths = _widths(section, lambda heading: max(heading.split() or [""], key=cell_len))
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold")
    table.show_header = show_header
    # The last name, of groups' rows the only one, has what the others and the figures leave, and at
    # least its part of what the figures leave to all names.
    last = max(0, section.names - 1)
    rest = width - _total(widths, gap) + widths[last]
    part = (rest + sum(widths[:last])) // (last + 1)
    left = max(1, min(widths[last], max(rest, part)))
    for number, (heading, least) in enumerate(zip(section.columns, widths, strict=True)):
        if number < section.names:
            given = left if number == last and broken else None
            table.add_column(_text(heading), overflow="fold", width=given)
        else:
            cells = (row[number] for row in section.rows if not is_heading(row, section))
            has_words = any(isinstance(cell, Marked) for cell in cells)
            justify: JustifyMethod = "left" if has_words else "right"
            table.add_column(_text(heading), justify=justify, width=least)
    for row in rows:
        whole = list(row)
        if broken and isinstance(name := whole[last], str):
            whole[last] = _in_lines(name, left)
        table.add_row(*map(_text, whole))
    return table


def _in_lines(name: str, width: int) -> str:
    """Break a name of a row behind `/`, or else behind `-`, so that it fits a width."""
    lines = [""]
    for part in re.findall(r"[^/]*/|[^/]+", name):
        fits = cell_len(part) < width
        for piece in [part] if fits else re.findall(r"[^-]*-|[^-]+", part):
            if lines[-1].strip() and cell_len(lines[-1] + piece) > width:
                lines.append(" ")
            lines[-1] += piece
    return "\n".join(lines)


def is_grouped(section: Section) -> bool:
    """Whether some rows are headings of others."""
    return any(is_heading(row, section) for row in section.rows)


def is_heading(row: Row, section: Section) -> bool:
    """Whether a row of a section is the heading of those below it."""
    return len(row) < len(section.columns)


def _widths(section: Section, heading: Callable[[str], str] = str) -> list[int]:
    """The width that each column needs; names below the heading of a group are indented.

    `heading` returns what must fit of a column's heading.
    """
    rows: list[Row] = [[heading(column) for column in section.columns]]
    rows += (row for row in section.rows if not is_heading(row, section))
    columns = zip(*rows, strict=True)
    widths = [max(cell_len(visible(str(cell))) for cell in cells) for cells in columns]
    return [widths[0] + is_grouped(section), *widths[1:]]


def _total(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * (len(widths) - 1)
