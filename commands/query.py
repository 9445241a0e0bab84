"""The command `query`: SQL over all stored runs."""

import json
from collections.abc import Sequence
from numbers import Number
from typing import Annotated, Any

import typer

from commands.options import AsJson, SomeStore, refuse_idle
from commands.output import err, out, print_result
from results.render.terminal import print_whole
from results.sections.section import Cell, Marked, Section
from results.store.query import TABLES, Answer
from results.store.query import query as answered
from results.store.records import plain
from results.store.runs import DEFAULT_STORE, require_store

SCHEMA = "railbed.query/1"


def query(
    sql: Annotated[str | None, typer.Argument(metavar="SQL", help="one SELECT statement")] = None,
    as_json: AsJson = False,
    store: SomeStore = None,
) -> None:
    """Print the rows that a statement selects, or the tables and their columns."""
    if sql is None:
        refuse_idle("needs a statement in SQL", store=store)
        tables = {name: list(columns) for name, columns in TABLES.items()}
        print_result({"schema": SCHEMA, "tables": tables}, as_json, _tables)
        return
    folder = store or DEFAULT_STORE
    require_store(folder)
    answer = answered(folder, sql)
    for line in answer.unread:
        err.print(f"not read: {line}", soft_wrap=True)
    if as_json:
        print(json.dumps({"schema": SCHEMA, **plain(answer)}, default=str))
    else:
        print_whole(answer_section(answer), out)


def _tables(result: dict[str, Any]) -> list[Section]:
    rows = [(name, ", ".join(columns)) for name, columns in result["tables"].items()]
    return [Section("Tables", ("table", "columns"), rows, names=2)]


def answer_section(answer: Answer) -> Section:
    """The rows under the names of their columns; a column of numbers alone is at the right."""
    columns = map(_cells, zip(*answer.rows, strict=True))
    return Section("Answer", answer.columns, list(zip(*columns, strict=True)), names=0)


def _cells(values: Sequence[object]) -> Sequence[Cell]:
    texts = [
        f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)
        for value in values
    ]
    numbers = (isinstance(one, Number | None) and not isinstance(one, bool) for one in values)
    return texts if all(numbers) else [Marked(text) for text in texts]
