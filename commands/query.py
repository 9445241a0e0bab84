"""The command `query`: SQL over all stored runs."""

from typing import Annotated, Any

import typer

from commands.options import AsJson, Store
from commands.output import err, print_result
from results.store.query import TABLES, query
from results.store.runs import DEFAULT_STORE
from results.tables.query import print_answer, print_tables

SCHEMA = "railbed.query/1"


def query_runs(
    sql: Annotated[str | None, typer.Argument(metavar="SQL", help="one SELECT statement")] = None,
    as_json: AsJson = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Answer a question in SQL about all stored runs; without SQL, list the tables."""
    if sql is None:
        tables = {name: list(columns) for name, columns in TABLES.items()}
        print_result({"schema": SCHEMA, "tables": tables}, as_json, print_tables)
        return
    answer = query(store, sql)
    for line in answer.unread:
        err.print(f"not read: {line}", soft_wrap=True)
    found: dict[str, Any] = {"schema": SCHEMA, "columns": answer.columns, "rows": answer.rows}
    print_result(found, as_json, print_answer)
