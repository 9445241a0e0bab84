"""Queries over all runs of a store: right, read-only, and undisturbed by damaged runs."""

import io
import json
import resource
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from commands.query import answer_section
from commands.query import query as query_command
from model.errors import InputError
from results.render import terminal
from results.render.terminal import print_whole
from results.store.query import TABLES, Answer, query
from results.store.tables import TRANSFERS, export_tables, quoted, seal, sealed
from tests.unit.run_folders import begun_run
from tests.unit.test_raw_tables import CASES, run_folder


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a sealed run, one that is not, one that ended early, and two damaged ones."""
    folder = tmp_path_factory.mktemp("runs") / "it's a store"
    seal(run_folder(folder, "sealed"))
    run_folder(folder, "loose")
    seal(run_folder(folder, "broken"))
    sealed(folder / "broken", TRANSFERS).write_bytes(b"PAR1")
    lost = run_folder(folder, "lost")
    (lost / "result.json").write_text("{")
    begun_run(folder, "early", "", {}).incomplete("a part died")
    return folder


def answered(store: Path, sql: str) -> list[tuple[object, ...]]:
    return sorted(query(store, sql).rows)


def test_sealed_and_loose_runs_have_the_same_rows(store: Path) -> None:
    columns = ", ".join(TRANSFERS.all_columns)
    of = [
        answered(store, f"SELECT {columns} FROM transfers WHERE run = '{run}'")
        for run in ("sealed", "loose")
    ]
    assert of[0] == of[1]
    assert len(of[0]) == 4


@pytest.mark.parametrize("name", ["destination=7", "~runs"])
def test_a_path_is_neither_a_column_nor_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    store = Path(name)
    sql = "SELECT DISTINCT destination FROM transfers ORDER BY destination"
    run_folder(store, "loose")
    assert query(store, sql).rows == [(1,), (2,)]
    seal(run_folder(store, "sealed"))
    assert query(store, sql).rows == [(1,), (2,)]
    for run in ("loose", "sealed"):
        export_tables(store / run, store / f"of {run}", "csv")
        assert ",0,0,1,2,3,4,5,6,7,0\n" in Path(name, f"of {run}/transfers.csv").read_text()


def test_all_runs_are_there_with_their_states(store: Path) -> None:
    assert answered(store, "SELECT run, state FROM runs") == [
        ("broken", "complete"),
        ("early", "incomplete"),
        ("loose", "complete"),
        ("lost", "damaged"),
        ("sealed", "complete"),
    ]


def test_a_run_may_be_a_link_to_a_folder_elsewhere(tmp_path: Path) -> None:
    store, elsewhere = tmp_path / "runs", tmp_path / "disk"
    seal(run_folder(store, "here"))
    seal(run_folder(elsewhere, "there"))
    seal(run_folder(elsewhere, "another"))
    (store / "linked").symlink_to(elsewhere / "there")
    rows = answered(store, "SELECT DISTINCT run FROM transfers ORDER BY run")
    assert rows == [("here",), ("linked",)]
    with pytest.raises(InputError, match="Cannot access file"):
        query(store, f"FROM {quoted(sealed(elsewhere / 'another', TRANSFERS))}")


def test_what_cannot_be_read_is_said(store: Path) -> None:
    unread = query(store, "SELECT DISTINCT run FROM transfers").unread
    assert len(unread) == 2
    assert "lost" in unread[0]
    assert "too small to be a Parquet file" in unread[1]


def test_a_run_that_ended_early_has_its_scenario_and_machine(tmp_path: Path) -> None:
    machine = {"kernel": "6.1", "proxies": "process", "cores": 2, "state": "of the machine"}
    run_id = "20260101-000000-two-words-ab12"
    begun_run(tmp_path, run_id, "", machine).incomplete("a part died")
    columns = "run, state, scenario, kernel, proxies, verdict, clock"
    assert query(tmp_path, f"SELECT {columns} FROM runs").rows == [
        (run_id, "incomplete", "two-words", "6.1", "process", None, None)
    ]


def test_a_run_with_a_line_of_endless_length_is_left_out(tmp_path: Path) -> None:
    run_folder(tmp_path, "good")
    for place in run_folder(tmp_path, "long").glob("*/transfers.csv"):
        place.write_text("x" * 200_000)
    found = query(tmp_path, "SELECT DISTINCT run FROM transfers")
    assert found.rows == [("good",)]
    (unread,) = found.unread
    assert "long" in unread
    assert "cannot be parsed: Error: field larger than field limit" in unread


@pytest.mark.parametrize("as_files", [False, True])
def test_a_run_whose_table_is_lost_is_named(tmp_path: Path, as_files: bool) -> None:
    run = run_folder(tmp_path, "lost")
    if as_files:
        next(run.glob("*/transfers.csv")).unlink()
    else:
        seal(run)
        sealed(run, TRANSFERS).unlink()
    found = query(tmp_path, "FROM transfers")
    assert found.rows == []
    (unread,) = found.unread
    assert unread.startswith(f"{run}: no rows of rail-")
    with pytest.raises(InputError, match=r"in table transfers \(damaged"):
        export_tables(run, tmp_path / "files", "csv")
    assert query(tmp_path, "FROM runs").unread == ()


def test_cases_have_their_figures(store: Path) -> None:
    sql = "SELECT median_s, modeled_s, fabric, verdict FROM cases WHERE run = 'sealed'"
    known = [(c.measured_s.median, c.modeled_s, c.work.fabric.kind, c.verdict) for c in CASES]
    assert answered(store, sql) == sorted(known)


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_its_columns_even_without_runs(tmp_path: Path, table: str) -> None:
    assert set(query(tmp_path, f"FROM {table}").columns) == set(TABLES[table])


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO '{store}/written'",
        "COPY (SELECT 1) TO '/tmp/written'",
        "ATTACH '{store}/written'",
        "CREATE TABLE a AS SELECT 1",
        "INSERT INTO runs (run) VALUES ('made up')",
        "SELECT 1; DROP TABLE runs",
        "SET enable_external_access = true",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{store}/written'",
        "EXPORT DATABASE '{store}/written'",
        "INSTALL httpfs",
        "",
        "SELEC",
    ],
)
def test_a_query_is_one_select_statement(store: Path, sql: str) -> None:
    before = sorted(store.rglob("*"))
    with pytest.raises(InputError, match="query: "):
        query(store, sql.format(store=quoted(store)[1:-1]))
    assert sorted(store.rglob("*")) == before


@pytest.mark.parametrize(
    "source",
    [
        "read_text('/etc/hostname')",
        "read_csv('{store}/../../../../../../etc/passwd')",
        "read_blob('/proc/self/environ')",
        "'/etc/passwd.csv'",
        "read_csv('https://example.org/a.csv')",
    ],
)
def test_a_query_opens_files_of_the_store_alone(store: Path, source: str) -> None:
    inside = query(
        store, f"SELECT content FROM read_text({quoted(store / 'early' / 'state.json')})"
    ).rows
    assert json.loads(str(inside[0][0]))["state"] == "incomplete"
    with pytest.raises(InputError):
        query(
            store, f"SELECT * FROM {source.format(store=str(store).replace(chr(39), chr(39) * 2))}"
        )


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT * FROM range(1000001)", "at most 1000000 rows"),
        ("SELECT range(1000001)", "at most 1000000 values in a list"),
        ("SELECT range(1000000000)", "needs more than 2 GB of memory"),
        ("SELECT repeat('a', 3000000000)", "needs more than 2 GB of memory"),
    ],
)
def test_a_careless_query_has_no_endless_answer(store: Path, sql: str, said: str) -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(InputError, match=said):
        query(store, sql)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


@pytest.mark.parametrize(
    "chosen",
    [
        "repeat('a', 11)",
        "encode(repeat('a', 11))",
        "['aaaaa', 'aaaaaa']",
        "{a: ['aaaaa', 'aaaaa']}",
        "MAP {'aaaaaa': 'aaaaa'}",
        "'a' FROM range(11)",
    ],
)
def test_characters_of_all_texts_of_an_answer_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    """A text of a gigabyte takes minutes to print."""
    monkeypatch.setattr("results.store.query.MOST_CHARACTERS", 11)
    assert query(tmp_path, f"SELECT 1, {chosen}").rows
    monkeypatch.setattr("results.store.query.MOST_CHARACTERS", 10)
    with pytest.raises(InputError, match="at most 10 characters"):
        query(tmp_path, f"SELECT 1, {chosen}")


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8")))
def test_no_text_ends_a_quoted_one(text: str) -> None:
    import duckdb

    assert duckdb.execute(f"SELECT {quoted(text)}").fetchall() == [(text,)]


ROW = ("20261125-212153-quickstart-2569", "rail-only/all-reduce/hierarchical", 1.5)
ANSWER = Answer(("run", "case_name", "ratio"), [ROW, ROW], ())


@pytest.mark.parametrize(
    ("width", "is_terminal", "lines"),
    [(120, True, 3), (50, True, 7), (50, False, 3)],
    ids=["wide enough", "narrow", "a pipe"],
)
def test_an_answer_has_whole_values(width: int, is_terminal: bool, lines: int) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=is_terminal)
    print_whole(answer_section(ANSWER), console)
    told = Text.from_ansi(out.getvalue()).plain
    assert told.count(ROW[0]) == told.count(ROW[1]) == 2
    assert len(told.strip().splitlines()) == lines


def test_an_answer_of_one_column_has_whole_values() -> None:
    out = io.StringIO()
    print_whole(answer_section(Answer(("run",), [ROW[:1]], ())), Console(file=out, width=80))
    assert out.getvalue().split() == ["run", ROW[0]]


def test_each_row_is_printed_after_a_few_looks_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Mock(wraps=terminal.is_heading)
    monkeypatch.setattr(terminal, "is_heading", looks)
    answer = Answer(("a", "b"), [(n, n) for n in range(100)], ())
    print_whole(answer_section(answer), Console(file=io.StringIO(), width=80))
    assert looks.call_count <= 10 * len(answer.rows)


def test_an_answer_is_json_with_numbers_as_numbers(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = "SELECT 1.5 AS a, [0.5, 'inf'::DOUBLE] AS b, MAP {DATE '2026-01-01': 'nan'::DOUBLE} AS c"
    query_command(sql, as_json=True, store=store)
    printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert printed == {
        "schema": "railbed.query/1",
        "columns": ["a", "b", "c"],
        "rows": [[1.5, [0.5, None], {"2026-01-01": None}]],
    }


def test_a_store_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder of runs"):
        query_command("SELECT 1", store=tmp_path / "missing")


def test_names_that_duckdb_cannot_take_are_refused(store: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be UTF-8"):
        query(store, "SELECT \udcff")
    with pytest.raises(InputError, match="must be UTF-8"):
        export_tables(store / "sealed", tmp_path / "\udcff", "csv")
    with pytest.raises(InputError, match="must be UTF-8"):
        begun_run(tmp_path / "\udcff", "20260101-000000-a-0000", "", {})
