"""The tables of a run: its raw records; and the cases, failures and jobs of its JSON object.

Raw records are files of each case first, then one Parquet file a table. A run under way appends to
CSV files and writes JSON files, so a killed run keeps its records so far. `seal` turns those of a
complete run into `RUN/TABLE.parquet`, with the case as the first column. Runs that could not be
sealed are read from the files of their cases. `export_tables` writes all tables for other programs.
"""

import csv
import errno
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from linux.files import user_files
from model.errors import InputError, Problem
from model.measurement.cpu_windows import Window
from model.measurement.pauses import Pause
from model.measurement.records import LinkSample, QueuePairSample, QueueSample, TransferRecord
from results.store.records import HINT, read_json, read_record, reading
from results.store.runs import PHASES, folder_name, read_result, require_utf8

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

WHOLE, REAL, TEXT, FLAG = "BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN"
# `case` alone is a word of SQL.
CASE = "case_name"
QUERY_INTERRUPTED = "Query interrupted"
# Characters of a CSV file's first line, of which a damaged one may have gigabytes; a field of more
# than half of them is refused by `csv`.
MOST_HEADER = 2**18


@dataclass(frozen=True)
class RawTable:
    """A table, the file of each case that it is made of, and its columns behind the case's name."""

    name: str
    file: str
    columns: Mapping[str, str]

    @property
    def all_columns(self) -> dict[str, str]:
        """All columns with their SQL types."""
        return {CASE: TEXT, **self.columns}


# The SQL type of a field of a record, by its annotation.
TYPES = {int: WHOLE, float: REAL, float | None: REAL, str: TEXT}


def columns_of(record: type) -> dict[str, str]:
    """The columns of a record: its fields, with their SQL types."""
    return {name: TYPES[hint] for name, hint in get_type_hints(record).items()}


def columns(*kinds: tuple[str, str]) -> dict[str, str]:
    """Columns with their SQL types, from each type and the names that have it."""
    return {name: kind for kind, names in kinds for name in names.split()}


EXECUTION = {"execution": WHOLE}
TRANSFERS = RawTable("transfers", "transfers.csv", columns_of(TransferRecord))
EXECUTIONS = RawTable(
    "executions",
    "repeats.json",
    columns(
        (WHOLE, "number"),
        (FLAG, "warmup disturbed complete"),
        (WHOLE, "start_ns"),
        (REAL, "completion_s start_skew_s agents_cpu_s"),
        (WHOLE, "retransmits"),
        (f"{TEXT}[]", "errors"),
        (f"{WHOLE}[]", "sent_bytes received_bytes"),
    ),
)
COUNTED = "sent_bytes sent_packets received_bytes received_packets dropped_packets"
COUNTERS = RawTable("counters", "counters.json", columns((TEXT, "link moment"), (WHOLE, COUNTED)))
LINK_SAMPLES = RawTable("link_samples", "links.csv", columns_of(LinkSample))
QUEUE_PAIRS = RawTable("queue_pairs", "queue-pairs.csv", columns_of(QueuePairSample))
QUEUES = RawTable("queues", "queues.csv", columns_of(QueueSample))
CPU = RawTable("cpu", "vitals.csv", EXECUTION | columns_of(Window))
WAITS = RawTable("waits", "waits.csv", {**EXECUTION, "agent": WHOLE, "waited_s": REAL})
PAUSES = RawTable("pauses", "pauses.csv", EXECUTION | columns_of(Pause))
RAW_TABLES = (
    *(TRANSFERS, EXECUTIONS, COUNTERS, LINK_SAMPLES, QUEUE_PAIRS),
    *(QUEUES, CPU, WAITS, PAUSES),
)
# Tables to which every case adds its file, even without rows.
ALWAYS = (TRANSFERS, EXECUTIONS, COUNTERS, QUEUE_PAIRS)
CASES = columns(
    (TEXT, f"{CASE} fabric collective algorithm generator verdict"),
    (WHOLE, "domains domain_size gpus bytes retransmits"),
    (REAL, "bandwidth_scale size_scale time_dilation median_s modeled_s lower_bound_s real_s"),
    (REAL, "on_paper_s ratio algbw_gbyte_per_s busbw_gbyte_per_s"),
    (FLAG, "data_is_right incomplete"),
    (f"{REAL}[]", "values_s"),
    (f"{TEXT}[]", "reasons notes"),
)
FAILURES = columns(
    (TEXT, f"{CASE} scenario fault component fabric strategy verdict replay_verdict"),
    (WHOLE, "gpus bytes probed_pairs unaffected_pairs probes_unaffected lost_probes_unaffected"),
    (REAL, "bandwidth_scale size_scale blackout_ms skipped baseline_s modeled_baseline_s"),
    (REAL, "during_fault_s aborted_s back_s modeled_during_fault_s degraded_s modeled_degraded_s"),
    (REAL, "ratio recovered_s modeled_replay_s replay_ratio"),
    (FLAG, "data_is_right incomplete"),
    (f"{TEXT}[]", "reasons notes"),
)
INTERFERENCE = columns(
    (TEXT, f"{CASE} alone job verdict"),
    (REAL, "alone_s modeled_alone_s together_s modeled_together_s"),
    (REAL, "interference modeled_interference"),
)
JUDGED_TABLES = {"cases": CASES, "failures": FAILURES, "interference": INTERFERENCE}
TABLES = {**JUDGED_TABLES, **{table.name: table.all_columns for table in RAW_TABLES}}
# Formats of exported files, with DuckDB's names and options.
OPTIONS = {"csv": "csv, HEADER", "parquet": "parquet, COMPRESSION zstd", "json": "json, ARRAY"}


def seal(run: Path) -> None:
    """Turn the records of a complete run into Parquet files, and remove the files of its cases.

    Without DuckDB, as in the virtual machine, without room on the disk, or with damaged records,
    the files of the cases stay.
    """
    if find_spec("duckdb") is None:
        return
    from duckdb import Error

    with suppress(OSError, Error, InputError), in_memory() as memory:
        for table in RAW_TABLES:
            sources = [folder / table.file for folder in case_folders(run).values()]
            if any(source.exists() for source in sources):
                create(memory, table.name, table.all_columns)
                load_loose(memory, run, table)
                # Work folders are in the store: the next run removes those of killed processes.
                _written(memory, table.name, sealed(run, table), "parquet", run.parent)
                for source in sources:
                    source.unlink(missing_ok=True)


def case_names(result: Mapping[str, Any]) -> list[str]:
    """The names of a result's cases, and of the phases of those with faults, in its order."""
    failed = [failure["case"] for failure in result["failures"]]
    phases = [f"{case}/{phase}" for case in failed for phase in PHASES]
    return [*(str(case["case"]) for case in result["cases"]), *phases]


def case_folders(run: Path) -> dict[str, Path]:
    """Return the folders of a run's cases and phases by their names, in the order of names.

    The names are those of the result; a case that it does not name has the name of its folder.
    """
    names, result = list[str](), run / "result.json"
    if result.is_file():
        content = read_json(result)
        with reading(result):
            names = case_names(content)
    by_folder = {folder_name(name): name for name in names}
    folders = sorted(place.parent for place in run.glob("*/topology.json"))
    return {by_folder.get(folder.name, folder.name): folder for folder in folders}


def sealed(run: Path, table: RawTable) -> Path:
    """The Parquet file of a table, absolute: DuckDB expands a `~` at the beginning of a path."""
    return run.absolute() / f"{table.name}.parquet"


@contextmanager
def in_memory() -> Iterator["DuckDBPyConnection"]:
    """Open an empty data base in memory; the same records make the same files.

    A signal during a query raises `KeyboardInterrupt`, as it does everywhere else: DuckDB would
    raise an error of its own instead of the handler's exception.
    """
    import duckdb

    with duckdb.connect() as memory:
        try:
            memory.execute("SET threads = 1")
            yield memory
        except RuntimeError as error:
            if str(error) == QUERY_INTERRUPTED:
                raise KeyboardInterrupt from None
            raise


def quoted(text: object) -> str:
    """Quote a text for SQL (ISO 9075, character string literal)."""
    return "'" + str(text).replace("'", "''") + "'"


def create(memory: "DuckDBPyConnection", name: str, columns: Mapping[str, str]) -> None:
    """Create an empty table."""
    listed = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
    memory.execute(f"CREATE TABLE {name} ({listed})")


def insert(
    memory: "DuckDBPyConnection", name: str, columns: Mapping[str, str], rows: list[dict[str, Any]]
) -> None:
    """Insert rows of plain values; columns that a row lacks are NULL."""
    # `from_json` wants the type of a list as a list.
    forms = {c: [k.removesuffix("[]")] if k.endswith("[]") else k for c, k in columns.items()}
    memory.execute(
        f"INSERT INTO {name} BY NAME SELECT unnest(from_json(?, ?), recursive := true)",
        [json.dumps(rows, default=str), json.dumps([forms])],
    )


def load_loose(memory: "DuckDBPyConnection", run: Path, table: RawTable) -> None:
    """Insert the rows of an unsealed run from the files of its cases.

    Raises `InputError` if the file of a case is lost. One that the result does not name, but by its
    folder, ended early.
    """
    for case, folder in case_folders(run).items():
        source = folder / table.file
        if source.exists():
            load = _load_csv if source.suffix == ".csv" else _load_json
            load(memory, case, source, table)
        elif table in ALWAYS and case != folder.name:
            raise InputError(Problem(str(run), f"no rows of {case} in table {table.name}", HINT))


def _load_json(memory: "DuckDBPyConnection", case: str, source: Path, table: RawTable) -> None:
    with reading(source):
        content = json.loads(read_record(source))
        if table is COUNTERS:
            content = [
                {"link": link, "moment": moment, **moments[moment]}
                for link, moments in content.items()
                for moment in ("before", "after")
            ]
        rows = [{CASE: case, **row} for row in content]
    insert(memory, table.name, table.all_columns, rows)


def _load_csv(memory: "DuckDBPyConnection", case: str, source: Path, table: RawTable) -> None:
    """Insert the rows of a CSV file, which may still be empty."""
    try:
        user_files.require_regular(source)
    except user_files.Unreadable as error:
        raise InputError(Problem(str(source), str(error))) from None
    with reading(source), source.open(newline="", encoding="utf-8") as file:
        header = next(csv.reader([file.readline(MOST_HEADER)]), [])
    if header:
        columns = ", ".join(f"{quoted(name)}: {quoted(TEXT)}" for name in header)
        wanted = ", ".join(f'"{name}"' for name in table.columns)
        memory.execute(
            f"INSERT INTO {table.name} BY NAME SELECT ? AS {CASE}, {wanted} "
            "FROM read_csv(?, header = true, auto_detect = false, hive_partitioning = false, "
            f"columns = {{{columns}}})",
            [case, str(source.absolute())],
        )


def read_table(run: Path, table: RawTable) -> dict[str, Any]:
    """Return the columns of a run's table as NumPy arrays, masked where values are missing."""
    with reading_sql(run), in_memory() as memory:
        load(memory, run, table)
        return memory.execute(f"FROM {table.name}").fetchnumpy()


def load(memory: "DuckDBPyConnection", run: Path, table: RawTable) -> None:
    """Create a table with all rows of a run."""
    create(memory, table.name, table.all_columns)
    if sealed(run, table).is_file():
        # A part of the path such as `bytes=8` is no column.
        whole = "SELECT * FROM read_parquet(?, hive_partitioning = false)"
        memory.execute(f"INSERT INTO {table.name} BY NAME {whole}", [str(sealed(run, table))])
    else:
        load_loose(memory, run, table)


@contextmanager
def reading_sql(run: Path) -> Iterator[None]:
    """Turn DuckDB's errors about damaged records into an `InputError` that names the run.

    Raises `MemoryError` if there is not enough memory.
    """
    from duckdb import Error, OutOfMemoryException

    try:
        yield
    except OutOfMemoryException as error:
        raise MemoryError(first_line(error)) from None
    except (Error, OSError) as error:
        what = f"records cannot be read: {first_line(error)}"
        raise InputError(Problem(str(run), what, HINT)) from None


def first_line(error: Exception) -> str:
    """Return the first line of DuckDB's message: the error; an excerpt of the query may follow."""
    return str(error).partition("\n")[0]


# Values of keys that results may lack.
DEFAULTS: Mapping[str, Any] = {"notes": (), "incomplete": False}


def judged_rows(result: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each table."""
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in JUDGED_TABLES}
    for case in result["cases"]:
        measured, fabric = case["measured_s"], case["fabric"]
        named = {CASE: case["case"], "fabric": fabric["kind"]}
        values = {"median_s": measured["median"], "values_s": measured["values"]}
        tables["cases"].append({**DEFAULTS, **case, **fabric, **named, **values})
    for failure in result["failures"]:
        # `where` is a word of SQL, too.
        named = {CASE: failure["case"], "component": failure["where"]}
        tables["failures"].append({**DEFAULTS, **(failure["work"] or {}), **failure, **named})
    for job in result.get("interference", ()):
        row = {**job, CASE: job["case"]}
        for key in ("alone_s", "together_s", "interference"):
            row |= {key: job[key]["measured"], f"modeled_{key}": job[key]["modeled"]}
        tables["interference"].append(row)
    return {
        name: [{column: row[column] for column in JUDGED_TABLES[name]} for row in rows]
        for name, rows in tables.items()
    }


def export_tables(run: Path, folder: Path, form: str) -> list[Path]:
    """Write all tables of a complete run as `folder/TABLE.form`; return the files.

    Raises `InputError` if the run is not complete, or damaged, and `OSError` if a file cannot be
    written.
    """
    require_utf8(run, folder.absolute())
    with reading(run):
        judged = judged_rows(read_result(run))
    with in_memory() as memory:
        with reading_sql(run):
            for name, rows in judged.items():
                create(memory, name, JUDGED_TABLES[name])
                insert(memory, name, JUDGED_TABLES[name], rows)
            for table in RAW_TABLES:
                load(memory, run, table)
        user_files.make_folder(folder)
        return [_written(memory, name, folder / f"{name}.{form}", form, folder) for name in TABLES]


def _written(memory: "DuckDBPyConnection", name: str, target: Path, form: str, above: Path) -> Path:
    """Let the database write a table, first below `above`; raise `OSError` if it cannot."""
    from duckdb import Error

    user_files.require_replaceable(target)
    columns = "*"
    if form == "csv":
        # DuckDB's own text of a list cannot be parsed.
        lists = [column for column, kind in TABLES[name].items() if kind.endswith("[]")]
        as_json = ", ".join(f'to_json("{column}") AS "{column}"' for column in lists)
        columns = f"* REPLACE ({as_json})" if lists else "*"
    # A link in the target's place is replaced, not followed.
    with user_files.work_folder(above) as own:
        draft = own.absolute() / target.name
        try:
            memory.execute(
                f"COPY (SELECT {columns} FROM {name}) TO {quoted(draft)} (FORMAT {OPTIONS[form]})"
            )
        except Error as error:
            raise OSError(errno.EIO, first_line(error)) from None
        user_files.sync_file(draft)
        user_files.give(draft)
        draft.rename(target)
    return target
