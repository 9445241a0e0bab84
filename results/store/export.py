"""A run's tables as files for other programs: CSV, Parquet or JSON, one file a table."""

import errno
from pathlib import Path
from typing import TYPE_CHECKING

from linux.files import give, make_folder, require_replaceable
from results.store.judged_tables import JUDGED_TABLES, judged_rows
from results.store.raw_tables import (
    RAW_TABLES,
    create,
    first_line,
    in_memory,
    insert,
    load,
    quoted,
    reading_sql,
)
from results.store.records import reading
from results.store.runs import read_result

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# DuckDB's names of the formats, with their options.
OPTIONS = {"csv": "csv, HEADER", "parquet": "parquet, COMPRESSION zstd", "json": "json, ARRAY"}


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
        names = (*judged, *(table.name for table in RAW_TABLES))
        return [_written(memory, name, folder / f"{name}.{form}", OPTIONS[form]) for name in names]


def _written(memory: "DuckDBPyConnection", name: str, target: Path, options: str) -> Path:
    from duckdb import Error

    require_replaceable(target)
    try:
        memory.execute(f"COPY {name} TO {quoted(target)} (FORMAT {options})")
    except Error as error:
        raise OSError(errno.EIO, first_line(error)) from None
    give(target)
    return target
