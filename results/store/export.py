"""A run's tables as files for other programs: CSV, Parquet or JSON, one file a table."""

import errno
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from linux.files.user_files import give, make_folder, require_replaceable
from results.store.records import reading
from results.store.runs import read_result
from results.store.tables import (
    JUDGED_TABLES,
    RAW_TABLES,
    create,
    first_line,
    in_memory,
    insert,
    judged_rows,
    load,
    quoted,
    reading_sql,
)

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# DuckDB's names of the formats, with their options.
OPTIONS = {"csv": "csv, HEADER", "parquet": "parquet, COMPRESSION zstd", "json": "json, ARRAY"}
TABLES = {**JUDGED_TABLES, **{table.name: table.all_columns for table in RAW_TABLES}}


def export_tables(run: Path, folder: Path, form: str) -> list[Path]:
    """Write all tables of a complete run as `folder/TABLE.form`; return the files.

    Raises `InputError` if the run is not complete, or damaged, and `OSError` if a file cannot be
    written.
    """
    with reading(run):
        judged = judged_rows(read_result(run))
    with in_memory() as memory:
        with reading_sql(run):
            for name, rows in judged.items():
                create(memory, name, JUDGED_TABLES[name])
                insert(memory, name, JUDGED_TABLES[name], rows)
            for table in RAW_TABLES:
                load(memory, run, table)
        make_folder(folder)
        return [_written(memory, name, folder / f"{name}.{form}", form) for name in TABLES]


def _written(memory: "DuckDBPyConnection", name: str, target: Path, form: str) -> Path:
    """Let the database write a table; raise `OSError` if it cannot."""
    from duckdb import Error

    require_replaceable(target)
    columns = _with_json_lists(TABLES[name]) if form == "csv" else "*"
    # A link in the target's place is replaced, not followed.
    with TemporaryDirectory(prefix=".railbed-", dir=target.parent) as own:
        draft = Path(own, target.name)
        try:
            memory.execute(
                f"COPY (SELECT {columns} FROM {name}) TO {quoted(draft)} (FORMAT {OPTIONS[form]})"
            )
        except Error as error:
            raise OSError(errno.EIO, first_line(error)) from None
        give(draft)
        draft.rename(target)
    return target


def _with_json_lists(columns: Mapping[str, str]) -> str:
    """Select columns with lists as JSON: DuckDB's own text of a list cannot be parsed."""
    return ", ".join(
        f'to_json("{name}") AS "{name}"' if kind.endswith("[]") else f'"{name}"'
        for name, kind in columns.items()
    )
