"""Sections as Markdown."""

from collections.abc import Iterable, Iterator, Sequence

from results.sections.section import Section


def markdown(section: Section) -> Iterator[str]:
    """Yield the lines of a section."""
    if section.title:
        yield from (f"## {section.title}", "")
    if section.text:
        yield from (section.text, "")
    if section.rows:
        yield from (*table(section.columns, section.rows), "")
    for remark in section.remarks:
        yield from (str(remark), "")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table; the heading of a group of rows is in bold."""
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        cells = row if len(row) > 1 else [f"**{row[0]}**", *[""] * (len(columns) - 1)]
        yield f"| {' | '.join(map(str, cells))} |"
