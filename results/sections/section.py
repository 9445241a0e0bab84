"""A section of results: a title, a table, remarks. Text is made here, and rendered elsewhere."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from results.store.runs import without_fabric

Case = dict[str, Any]
Result = Mapping[str, Any]


@dataclass(frozen=True)
class Marked:
    """Words in the colour of a verdict, or in none. A column of them is at the left."""

    text: str
    verdict: str = ""

    def __str__(self) -> str:
        return self.text


Cell = str | Marked
Row = Sequence[Cell]
Columns = Sequence[tuple[str, Callable[[Case], Cell]]]
"""Headings, each with the cell of a case."""


@dataclass(frozen=True)
class Section:
    """A table below its title, `text` on how to read it, and remarks about what it shows.

    The first `names` columns are words, the others figures. A row of one cell is the heading of the
    rows below it.
    """

    title: str
    columns: Sequence[str] = ()
    rows: Sequence[Row] = ()
    text: str = ""
    remarks: Sequence[Cell] = ()
    names: int = 1

    @property
    def has_content(self) -> bool:
        """Whether it says anything."""
        return bool(self.rows or self.remarks)

    @property
    def is_grouped(self) -> bool:
        """Whether some rows are headings of others."""
        return any(map(is_heading, self.rows))


def is_heading(row: Row) -> bool:
    """Whether a row is the heading of those below it."""
    return len(row) == 1


def verdict(of: Result) -> Marked:
    """The verdict of a case, or of anything else that has one."""
    return Marked(of["verdict"], of["verdict"])


def case_section(
    title: str,
    columns: Columns,
    cases: Iterable[Case],
    text: str = "",
    remarks: Iterable[Cell] = (),
) -> Section:
    """A row for each case, grouped by the kind of its fabric, with which its name begins."""
    rows = list[Row]()
    for kind, together in groupby(cases, lambda case: str(case["case"]).partition("/")[0]):
        rows.append((kind,))
        rows += (
            (without_fabric(case["case"]), *(cell(case) for _, cell in columns))
            for case in together
        )
    return Section(title, ("case", *(name for name, _ in columns)), rows, text, tuple(remarks))


def reasons(of: Iterable[Result], name: Callable[[Any], str]) -> Iterator[Marked]:
    """Yield a line for each reason of a verdict."""
    for one in of:
        for reason in one["reasons"]:
            yield Marked(f"{one['verdict']}: {name(one)}: {reason}", one["verdict"])


def clock_section(result: Result) -> Section:
    """The virtual clock of a result; without content for this machine's own clock."""
    if "clock" not in result:
        return Section("Clock")
    clock = result["clock"]
    line = (
        f"Virtual clock, {clock['instruction_ns']} ns an instruction: image {clock['image']}, "
        f"{clock['qemu']}, seed {clock['seed']}; records {clock['records']}"
    )
    return Section("Clock", remarks=(line,))
