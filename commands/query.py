"""The command `query`: SQL over all stored runs."""

from typing import Annotated, Any

import typer

from commands.options import AsJson, Store
from commands.output import err, print_result
from results.store.query import TABLES
from results.store.query import query as answered
from results.store.runs import DEFAULT_STORE
from results.tables.query import print_answer, print_tables

SCHEMA = "railbed.query/1"


def query(
    sql: Annotated[str | None, typer.Argument(metavar="SQL", help="one SELECT statement")] = None,
    as_json: AsJson = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Print the rows that a statement selects, or the tables and their columns."""
    if sql is None:
        tables = {name: list(columns) for name, columns in TABLES.items()}
        print_result({"schema": SCHEMA, "tables": tables}, as_json, print_tables)
        return
    answer = answered(store, sql)
    for line in answer.unread:
        err.print(f"not read: {line}", soft_wrap=True)
    result: dict[str, Any] = {"schema": SCHEMA, "columns": answer.columns, "rows": answer.rows}
    print_result(result, as_json, print_answer)
