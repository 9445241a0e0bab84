"""Raw records of runs: sealed as Parquet files with all their values."""

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from linux.files.program_files import ROOT
from linux.files.user_files import WORK_PREFIX
from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.spec import FabricKind
from model.measurement.records import CaseExecutions, Repeat, TransferRecord
from model.prediction.fluid import Prediction
from results.report.run_data import read_run
from results.store import tables
from results.store.records import plain as record
from results.store.runs import read_result
from results.store.tables import (
    COUNTERS,
    EXECUTIONS,
    PAUSES,
    RAW_TABLES,
    TRANSFERS,
    export_tables,
    in_memory,
    judged_rows,
    load,
    read_table,
    reading_sql,
    seal,
    sealed,
)
from results.verdicts.run import RunResult
from tests.unit.fabrics import spec
from tests.unit.run_folders import begun_run
from tests.unit.test_results import both_fabrics, repeat
from tests.unit.test_results_failures import fault_down
from tests.unit.traces import peak_below

CASES = both_fabrics()
BEFORE = {"a--b": dict.fromkeys(list(COUNTERS.columns)[2:], 1)}
AFTER = {"a--b": dict.fromkeys(list(COUNTERS.columns)[2:], 2**62)}
TOPOLOGY = build_topology(spec(FabricKind.RAIL_ONLY, 2, 2))
RECORDS = (TransferRecord(0, 0, 1, 2, 3, 4, 5, 6, 7), TransferRecord(0, 1, 2, 1, 2**40, 0, 0, 0, 0))


def complete(store: Path, executions: tuple[Repeat, ...], run_id: str = "run-a") -> Path:
    """A complete run of two cases that is not sealed."""
    folder = begun_run(store, run_id, "", {})
    for case in CASES:
        folder.begin_case(case.case, TOPOLOGY, Prediction("", "", 1.0, 1.0, ()))
        for execution in executions:
            folder.add_repeat(case.case, execution)
        done = CaseExecutions(executions[1:], executions[:1], executions[1:2])
        folder.end_case(case.case, done, BEFORE, AFTER)
    folder.complete(record(RunResult(run_id, "quick", folder.path, CASES)))
    return folder.path


def run_folder(store: Path, run_id: str = "run-a") -> Path:
    return complete(store, (repeat(0, 1.0, records=RECORDS),), run_id)


def plain(run: Path) -> dict[str, Any]:
    """All tables of a run; NumPy's masks and values as text."""
    return {
        table.name: {name: str(column.tolist()) for name, column in read_table(run, table).items()}
        for table in RAW_TABLES
    }


NUMBERS = st.integers(0, 2**62)
TRANSFER = st.builds(TransferRecord, *[NUMBERS] * 9)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=3)
@given(st.lists(TRANSFER, max_size=4))
def test_sealing_keeps_every_value(
    tmp_path_factory: pytest.TempPathFactory, records: list[TransferRecord]
) -> None:
    run = complete(tmp_path_factory.mktemp("store"), (repeat(0, 1.0, records=tuple(records)),))
    before = plain(run)
    assert len(read_table(run, TRANSFERS)["size_bytes"]) == 2 * len(records)
    seal(run)
    assert plain(run) == before
    assert [place.name for place in run.glob("*/*.csv")] == []
    assert not list(run.glob("*/counters.json"))
    assert not list(run.parent.glob(f"{WORK_PREFIX}*"))


def test_tables_name_the_case_and_have_all_columns(tmp_path: Path) -> None:
    run = run_folder(tmp_path)
    seal(run)
    transfers = read_table(run, TRANSFERS)
    assert sorted(set(transfers["case_name"])) == sorted(case.case for case in CASES)
    assert list(transfers) == list(TRANSFERS.all_columns)
    executions = read_table(run, EXECUTIONS)
    assert executions["warmup"].tolist() == [True, True]
    assert read_table(run, COUNTERS)["sent_bytes"].tolist() == [1, 2**62] * 2
    assert len(read_table(run, PAUSES)["core"]) == 0


def test_the_same_records_make_the_same_files(tmp_path: Path) -> None:
    runs = [run_folder(tmp_path / name) for name in ("one", "other")]
    for run in runs:
        seal(run)
    files = [sealed(run, TRANSFERS).read_bytes() for run in runs]
    assert files[0] == files[1]


def test_without_duckdb_a_run_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_folder(tmp_path)
    monkeypatch.setattr(tables, "find_spec", lambda _: None)
    seal(run)
    assert len(list(run.glob("*/transfers.csv"))) == 2


KILLED_WHILE_SEALING = """
import os, sys
from pathlib import Path
from linux.files import user_files
from results.store.tables import seal
user_files.sync_file = lambda _: os.kill(os.getpid(), 9)
seal(Path(sys.argv[1]))
"""


def test_a_killed_seal_leaves_the_run_as_it_was_and_the_next_one_removes_the_rest(
    tmp_path: Path,
) -> None:
    run, other = run_folder(tmp_path), run_folder(tmp_path, "run-b")
    before = set(run.rglob("*"))
    command = [sys.executable, "-c", KILLED_WHILE_SEALING, str(run)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert set(run.rglob("*")) == before
    assert len(list(tmp_path.glob(f"{WORK_PREFIX}*/transfers.parquet"))) == 1
    seal(other)
    assert not list(tmp_path.glob(f"{WORK_PREFIX}*"))


def test_where_no_parquet_file_can_be_written_the_records_stay(tmp_path: Path) -> None:
    run = run_folder(tmp_path)
    before = plain(run)
    sealed(run, TRANSFERS).mkdir()
    seal(run)
    assert plain(run) == before
    assert len(list(run.glob("*/transfers.csv"))) == 2


def test_a_file_without_some_columns_is_damaged(tmp_path: Path) -> None:
    run = run_folder(tmp_path)
    for place in run.glob("*/transfers.csv"):
        place.write_text("repeat,transfer,of_old\n7,8,9\n")
    with pytest.raises(InputError, match=r"records cannot be read: .*source"):
        read_table(run, TRANSFERS)


def test_too_little_memory_is_no_damage(tmp_path: Path) -> None:
    run = run_folder(tmp_path)
    with in_memory() as memory:
        memory.execute("SET memory_limit = '1MB'")
        with pytest.raises(MemoryError, match="Out of Memory"), reading_sql(run):
            load(memory, run, TRANSFERS)


def test_a_report_needs_all_values(tmp_path: Path) -> None:
    run = run_folder(tmp_path)
    for place in run.glob("*/repeats.json"):
        place.write_text('[{"number": 0}]')
    with pytest.raises(InputError, match="table executions needs values of warmup, disturbed"):
        read_run(run)


@pytest.mark.parametrize("schema", ["railbed.run/1", "railbed.run/9"])
def test_a_run_of_another_schema_is_refused_in_a_sentence(tmp_path: Path, schema: str) -> None:
    run = run_folder(tmp_path)
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "schema": schema}))
    what = f"run-a: schema {schema}; this version reads railbed.run/2: run it again$"
    with pytest.raises(InputError, match=what):
        read_result(run)


@pytest.mark.parametrize("content", [b"", b"PA", b"PAR1", b"PAR1xxPAR1", b"x" * 100])
def test_a_damaged_parquet_file_is_a_sentence(tmp_path: Path, content: bytes) -> None:
    run = run_folder(tmp_path)
    seal(run)
    sealed(run, TRANSFERS).write_bytes(content)
    with pytest.raises(InputError, match=r"run-a.*records cannot be read"):
        read_table(run, TRANSFERS)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("transfers.csv", "repeat,transfer\nmany,1\n"),
        ("transfers.csv", "repeat,transfer\n1\n"),
        ("transfers.csv", "repeat,\udcea\n1,2\n"),
        ("transfers.csv", "x" * 200_000),
        ("counters.json", "[]"),
        ("counters.json", '{"a--b": {}}'),
        ("repeats.json", '{"number"'),
    ],
)
def test_damaged_records_are_a_sentence(tmp_path: Path, name: str, content: str) -> None:
    run = run_folder(tmp_path)
    for place in run.glob(f"*/{name}"):
        place.write_text(content, errors="surrogateescape")
    with pytest.raises(InputError, match="cannot be"):
        plain(run)


@pytest.mark.parametrize("form", ["csv", "parquet", "json"])
def test_an_export_has_all_tables(tmp_path: Path, form: str) -> None:
    run = run_folder(tmp_path)
    seal(run)
    folder, other = tmp_path / "it's here", tmp_path / "other"
    folder.mkdir()
    other.write_text("of somebody else")
    (folder / f"cases.{form}").symlink_to(other)
    files = export_tables(run, folder, form)
    names = ["cases", "failures", "interference", *(table.name for table in RAW_TABLES)]
    assert [file.name for file in files] == [f"{name}.{form}" for name in names]
    assert all(file.stat().st_size for file in files)
    assert sorted(folder.iterdir()) == sorted(files)
    assert other.read_text() == "of somebody else"


def test_an_exported_table_has_the_measured_values(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    export_tables(run_folder(tmp_path), folder, "csv")
    with (folder / "transfers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    known = [{name: str(value) for name, value in vars(record).items()} for record in RECORDS]
    of_one = [_without_case(row) for row in rows if row["case_name"] == CASES[0].case]
    assert of_one == known
    (case, _) = json.loads((_exported(folder, tmp_path) / "cases.json").read_text())
    assert case["median_s"] == CASES[0].measured_s.median


def test_tables_tell_whether_data_was_checked_and_all_values_of_a_failure(tmp_path: Path) -> None:
    found = read_result(run_folder(tmp_path))
    failure = record(fault_down("down"))
    (case, *_) = judged_rows(found)["cases"]
    assert (case["generator"], case["data_is_right"]) == ("agent", None)
    (row,) = judged_rows({**found, "failures": [failure]})["failures"]
    named = {"case": "case_name", "where": "component"}
    values = {
        named.get(key, key): value
        for key, value in failure.items()
        if key not in {"work", "times", "fidelity", "notes", "doubts"}
    }
    assert values == {key: row[key] for key in values}
    assert row["bytes"] == failure["work"]["bytes"]


def test_tables_tell_which_times_are_of_executions_that_broke_off(tmp_path: Path) -> None:
    found = read_result(run_folder(tmp_path))
    failure = record(fault_down("down"))
    for name in ("cases", "failures"):
        whole, *_ = {**found, "failures": [failure]}[name]
        judged = judged_rows({**found, name: [whole, {**whole, "incomplete": True}]})[name]
        assert [row["incomplete"] for row in judged] == [False, True]


def test_lists_in_csv_are_json(tmp_path: Path) -> None:
    run = run_folder(tmp_path)
    result = json.loads((run / "result.json").read_text())
    result["cases"][0]["reasons"] = reasons = ['a, "b"', "[c]; 'd'"]
    (run / "result.json").write_text(json.dumps(result))
    export_tables(run, tmp_path / "out", "csv")
    with (tmp_path / "out" / "cases.csv").open(newline="") as file:
        case, *_ = csv.DictReader(file)
    assert json.loads(case["reasons"]) == reasons
    assert json.loads(case["notes"]) == []
    assert json.loads(case["values_s"]) == result["cases"][0]["measured_s"]["values"]


def _without_case(row: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in row.items() if name != "case_name"}


def _exported(folder: Path, store: Path) -> Path:
    export_tables(store / "run-a", folder, "json")
    return folder


def test_a_signal_during_a_query_interrupts_the_program() -> None:
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            _query_until_a_signal()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _query_until_a_signal() -> None:
    many = "range(1000000000)"
    with in_memory() as memory:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        memory.execute(f"SELECT count(sqrt(a.range * b.range)) FROM {many} a, {many} b")


@pytest.mark.parametrize("kind", ["a FIFO", "a device", "a folder"])
def test_records_that_are_no_files_are_named(tmp_path: Path, kind: str) -> None:
    run = run_folder(tmp_path)
    place = next(run.glob("*/transfers.csv"))
    place.unlink()
    if kind == "a FIFO":
        os.mkfifo(place)
    elif kind == "a device":
        place.symlink_to("/dev/zero")
    else:
        place.mkdir()
    with pytest.raises(InputError, match=r"transfers\.csv: is (not a regular file|a folder)"):
        read_table(run, TRANSFERS)


@pytest.mark.parametrize("begin", ["", "repeat,transfer\n"])
def test_a_table_of_one_long_line_takes_little_memory(tmp_path: Path, begin: str) -> None:
    run = run_folder(tmp_path)
    place = next(run.glob("*/transfers.csv"))
    place.write_text(begin)
    os.truncate(place, 2**26)
    with peak_below(2**22), pytest.raises(InputError, match=r"cannot be (read|parsed)"):
        read_table(run, TRANSFERS)


@pytest.mark.parametrize("rows", ["[1]", "[null]", "3"])
def test_executions_that_are_none_are_named(tmp_path: Path, rows: str) -> None:
    run = run_folder(tmp_path)
    next(run.glob("*/repeats.json")).write_text(rows)
    with pytest.raises(InputError, match=r"repeats\.json: cannot be parsed"):
        read_table(run, EXECUTIONS)
