"""SQL over all complete runs of a store, read-only, by DuckDB.

A query sees the tables of `TABLES` and, by DuckDB's own functions, files of the store. It cannot
write, and opens no other file, but those of runs to which the store has links.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linux.machine.resources import memory_limited
from model.errors import InputError, Problem
from results.store import tables
from results.store.records import HIDDEN, read_json, reading
from results.store.runs import (
    clock_of,
    number_of,
    read_result,
    read_state,
    require_utf8,
    scenario_of,
    stored_runs,
)

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

RUNS = tables.columns(
    (tables.TEXT, "run state scenario verdict clock railbed kernel proxies datapath folder"),
    (tables.WHOLE, "number"),
)
TABLES: Mapping[str, Mapping[str, str]] = {
    "runs": RUNS,
    **{name: {"run": tables.TEXT, **columns} for name, columns in tables.JUDGED_TABLES.items()},
    **{table.name: {"run": tables.TEXT, **table.all_columns} for table in tables.RAW_TABLES},
}
# A careless query must neither take all of the machine's memory nor fill a terminal for hours.
MOST_GB, MOST_VALUES, MOST_CHARACTERS = 2, 1_000_000, 200_000_000
FEWER = "aggregate in SQL, or add LIMIT"
HINT = "`./railbed query` without SQL lists all tables and their columns"


@dataclass(frozen=True)
class Answer:
    """The rows of a query with the names of their columns, and the issues of damaged runs."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    unread: tuple[str, ...] = field(metadata=HIDDEN)


@dataclass(frozen=True)
class _Runs:
    """Rows of `runs` and of their judged tables; the folders of complete runs."""

    rows: Mapping[str, list[dict[str, Any]]]
    complete: list[Path]
    unread: list[str]


def query(store: Path, sql: str) -> Answer:
    """Answer one SELECT statement; raise `InputError` if it is none, or fails."""
    import duckdb

    store = store.resolve()
    require_utf8(store, sql)
    try:
        kinds = [statement.type for statement in duckdb.extract_statements(sql)]
        if kinds != [duckdb.StatementType.SELECT]:
            given = ", ".join(kind.name for kind in kinds) or "none"
            raise InputError(Problem("query", f"must be one SELECT statement, got {given}", HINT))
        runs = _read(store)
        with tables.in_memory() as memory:
            for name, columns in TABLES.items():
                tables.create(memory, name, columns)
                # Only tables that the query may name are read: there may be thousands of runs.
                if name in sql.lower():
                    _fill(memory, name, runs)
            # The query may open files of the store alone, and change no setting.
            folders = ", ".join(map(tables.quoted, [store, *_elsewhere(runs, store)]))
            memory.execute(f"SET allowed_directories = [{folders}]")
            memory.execute("SET enable_external_access = false")
            memory.execute(f"SET memory_limit = '{MOST_GB}GB'")
            memory.execute("SET lock_configuration = true")
            # DuckDB counts neither the memory of a single long list, nor that of rows in Python.
            with memory_limited(MOST_GB * 10**9):
                answer = memory.execute(sql)
                names = tuple(column[0] for column in answer.description or ())
                return Answer(names, _rows(answer), tuple(runs.unread))
    except (duckdb.OutOfMemoryException, MemoryError):
        what = f"needs more than {MOST_GB} GB of memory"
        raise InputError(Problem("query", what, FEWER)) from None
    except duckdb.Error as error:
        raise InputError(Problem("query", tables.first_line(error), HINT)) from None


def _elsewhere(runs: _Runs, store: Path) -> Iterator[Path]:
    """Yield the folders of complete runs to which the store has links: DuckDB follows them."""
    places = (run.resolve() for run in runs.complete)
    yield from (place for place in places if not place.is_relative_to(store))


def _rows(answer: "DuckDBPyConnection") -> list[tuple[Any, ...]]:
    rows = answer.fetchmany(MOST_VALUES + 1)
    longest = max((len(v) for row in rows for v in row if isinstance(v, list)), default=0)
    for count, most, things in (
        (len(rows), MOST_VALUES, "rows"),
        (longest, MOST_VALUES, "values in a list"),
        (_characters(rows), MOST_CHARACTERS, "characters"),
    ):
        if count > most:
            raise InputError(Problem("query", f"result must have at most {most} {things}", FEWER))
    return rows


def _characters(value: Any) -> int:
    """Count the characters of all texts in a value, which may be a list, a struct or a map."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        return sum(map(_characters, value))
    return len(value) if isinstance(value, str | bytes) else 0


def _read(store: Path) -> _Runs:
    """Read the states of all runs, and the results of the complete ones."""
    runs = _Runs({"runs": [], **{name: [] for name in tables.JUDGED_TABLES}}, [], [])
    for run in stored_runs(store):
        row: dict[str, Any] = {"run": run.name, "scenario": scenario_of(run.name)}
        row |= {"number": number_of(run), "folder": str(run)}
        try:
            row |= read_state(run)
            if row["state"] == "complete":
                _add(runs, run, row)
            else:
                row = {**_scalars(read_json(run / "environment.json")), **row}
        except InputError as error:
            row["state"] = "damaged"
            runs.unread.append(str(error))
        runs.rows["runs"].append(row)
    return runs


def _add(runs: _Runs, run: Path, row: dict[str, Any]) -> None:
    """Add the rows of a complete run, all or none."""
    result = read_result(run)
    with reading(run):
        machine = result.get("machine", {})
        row |= {**_scalars(machine), **_scalars(result), "run": run.name}
        row["clock"] = clock_of(result)
        judged = tables.judged_rows(result)
    for name, rows in judged.items():
        runs.rows[name].extend({**row, "run": run.name} for row in rows)
    runs.complete.append(run)


def _scalars(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if not isinstance(value, dict | list)}


def _fill(memory: "DuckDBPyConnection", name: str, runs: _Runs) -> None:
    if name in runs.rows:
        tables.insert(memory, name, TABLES[name], runs.rows[name])
        return
    table = next(table for table in tables.RAW_TABLES if table.name == name)
    whole = (run for run in runs.complete if _is_whole(memory, run, table, runs))
    if files := [tables.sealed(run, table) for run in whole]:  # they are read on demand
        listed = ", ".join(map(tables.quoted, files))
        memory.execute(f"ALTER TABLE {name} RENAME TO loose_{name}")
        memory.execute(
            f"CREATE VIEW {name} AS FROM loose_{name} UNION ALL BY NAME "
            "SELECT parse_path(filename)[-2] AS run, * EXCLUDE (filename) "
            f"FROM read_parquet([{listed}], filename = true, union_by_name = true, "
            "hive_partitioning = false)"
        )


def _is_whole(memory: "DuckDBPyConnection", run: Path, table: tables.RawTable, runs: _Runs) -> bool:
    """Whether a run's table is a valid Parquet file; without a file, insert the run's raw records.

    A run with damaged or lost records is noted, and none of its rows is inserted.
    """
    from duckdb import Error

    memory.begin()
    try:
        if whole := tables.sealed(run, table).is_file():
            memory.execute("FROM parquet_schema(?)", [str(tables.sealed(run, table))])
        else:
            named = tables.quoted(run.name)
            memory.execute(f"ALTER TABLE {table.name} ALTER run SET DEFAULT {named}")
            tables.load_loose(memory, run, table)
        memory.commit()
        return whole
    except InputError as error:
        damage = str(error)
    except Error as error:
        damage = f"{run}: {tables.first_line(error)}"
    memory.rollback()
    runs.unread.append(damage)
    return False
