"""Results under the virtual clock: found again, bounded in size, stored as runs of this machine."""

import os
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from execution.virtual_clock import command
from execution.virtual_clock.command import (
    KnownResult,
    add_result,
    find_result,
    records_digest,
    results_folder,
    stored,
)
from execution.virtual_clock.machines import available_mib, fitting, machine_mib
from linux.files.user_files import work_folder
from results.store.records import read_json
from results.store.runs import stored_runs
from testbed.virtual_machine import cache


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))


def computed(folder: Path, output: bytes = b"{}") -> KnownResult:
    """A result with one run, as it comes from the machine."""
    run = folder / "runs" / "20260101-000043-golden-run-ab12"
    run.mkdir(parents=True)
    (run / "transfers.csv").write_text("1,2\n")
    (run / "result.json").write_text('{"run_id": "inside", "folder": "inside", "cases": []}')
    result = KnownResult(folder)
    result.write(1, output)
    return result


def known(key: str, folder: Path) -> KnownResult | None:
    """The result with this key, in a folder of its own."""
    return find_result(key, Path(mkdtemp(dir=folder)))


def test_a_result_is_found_again(tmp_path: Path) -> None:
    assert known("abc", tmp_path) is None
    add_result("abc", computed(tmp_path / "new", b'{"verdict": "fail"}'))
    found = known("abc", tmp_path)
    assert found is not None
    assert (found.exit_code, found.output) == (1, b'{"verdict": "fail"}')
    assert [run.name for run in found.runs] == ["20260101-000043-golden-run-ab12"]


def test_locks_in_a_users_cache_belong_to_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_to_user: set[Path] = set()
    monkeypatch.setattr(cache, "give", given_to_user.add)
    cache.cached_part("program", "new", lambda folder: None)
    known("abc", tmp_path)
    folder = cache.cache_folder()
    assert {place / cache.LOCK for place in (folder, results_folder())} <= given_to_user


def test_another_result_with_the_same_key_replaces_the_first(tmp_path: Path) -> None:
    add_result("abc", computed(tmp_path / "one", b"first"))
    first = known("abc", tmp_path)
    add_result("abc", computed(tmp_path / "two", b"second"))
    second = known("abc", tmp_path)
    assert first is not None
    assert second is not None
    assert (first.output, second.output) == (b"first", b"second")


def test_a_result_that_is_not_copied_to_its_end_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed removes nothing: neither is its unfinished folder a result."""
    one = computed(tmp_path / "one", b"first")
    add_result("abc", one)
    monkeypatch.setattr("linux.files.user_files.shutil.rmtree", lambda *_, **__: None)
    monkeypatch.setattr("linux.files.user_files.sync", broken)
    for key in ("abc", "new"):
        with pytest.raises(ZeroDivisionError):
            add_result(key, computed(tmp_path / key, b"second"))
    monkeypatch.undo()
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    found = known("abc", tmp_path)
    assert found is not None
    assert found.output == b"first"
    assert known("new", tmp_path) is None


def test_a_run_that_is_not_copied_to_its_end_is_not_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = computed(tmp_path / "new").runs
    (run / "state.json").write_text('{"state": "complete", "number": 1}')
    monkeypatch.setattr("linux.files.user_files.shutil.rmtree", lambda *_, **__: None)
    monkeypatch.setattr("linux.files.user_files.sync", broken)
    with pytest.raises(ZeroDivisionError):
        stored(run, tmp_path / "store", {})
    assert list((tmp_path / "store").iterdir())
    assert stored_runs(tmp_path / "store") == []


def broken(_: Path) -> None:
    raise ZeroDivisionError


def test_results_used_last_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = cache.size_of(computed(tmp_path / "one").folder)
    monkeypatch.setattr(command, "MOST_BYTES", 2 * one)
    for moment, key in enumerate(("a", "b")):
        add_result(key, computed(tmp_path / key))
        os.utime(results_folder() / key, (moment, moment))
    assert known("a", tmp_path)
    with work_folder(results_folder()) as unfinished:
        add_result("c", computed(tmp_path / "c"))
        assert [key for key in "abc" if known(key, tmp_path)] == ["a", "c"]
        assert unfinished.exists()


def test_a_stored_run_has_an_id_and_a_clock_of_its_own(tmp_path: Path) -> None:
    (run,) = computed(tmp_path / "new").runs
    folders = [stored(run, tmp_path / "store", {"kind": "virtual"}) for _ in range(2)]
    results = [read_json(folder / "result.json") for folder in folders]
    assert len({result["run_id"] for result in results}) == 2
    assert all("-golden-run-" in result["run_id"] for result in results)
    assert [result["folder"] for result in results] == list(map(str, folders))
    assert [result["run_id"] for result in results] == [folder.name for folder in folders]
    assert results[0]["clock"] == {"kind": "virtual", "records": records_digest(run)}


def test_a_run_that_ended_early_is_stored_without_a_clock(tmp_path: Path) -> None:
    (run,) = computed(tmp_path / "new").runs
    (run / "result.json").unlink()
    (run / "scenario.yaml").write_text("trace: /files/inside\n")
    folder = stored(run, tmp_path / "store", {"kind": "virtual"}, "trace: here\n")
    assert {file.name for file in folder.iterdir()} == {"scenario.yaml", "transfers.csv"}
    assert (folder / "scenario.yaml").read_text() == "trace: here\n"


def test_records_are_all_files_but_those_that_name_the_run(tmp_path: Path) -> None:
    (run,) = computed(tmp_path / "new").runs
    other = stored(run, tmp_path / "store", {})
    (other / "result.json").write_text("{}")
    assert records_digest(other) == records_digest(run)
    (other / "transfers.csv").write_text("1,3\n")
    assert records_digest(other) != records_digest(run)


@given(cores=st.integers(1, 256), memory_mib=st.floats(0, 1e7), gpus=st.integers(4, 2048))
def test_machines_fit_into_cores_and_memory(cores: int, memory_mib: float, gpus: int) -> None:
    machines, each_mib = fitting(cores, memory_mib, gpus), machine_mib(gpus)
    assert 1 <= machines <= cores
    assert machines == 1 or machines * each_mib <= memory_mib
    assert machines == cores or (machines + 1) * each_mib > memory_mib


def test_this_machine_has_memory() -> None:
    assert available_mib() > 0
