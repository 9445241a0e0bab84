"""Runs at the same time are told of each other."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from execution.cases.emulation import reporting_other_runs
from linux.processes import run_lock as locks


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "RUNS", tmp_path / "runs")


def test_a_run_alone_is_told_nothing() -> None:
    told = list[str]()
    with locks.run_lock("one") as one, reporting_other_runs(one, told.append):
        pass
    assert told == []


def test_the_first_of_two_runs_hears_as_much_as_the_second() -> None:
    first, second = list[str](), list[str]()
    with ExitStack() as later, locks.run_lock("one") as one:
        with reporting_other_runs(one, first.append):
            two = later.enter_context(locks.run_lock("two"))
            with reporting_other_runs(two, second.append):
                pass
        assert first == ["other runs disturb this one, and it disturbs them: two"]
        assert second == ["other runs disturb this one, and it disturbs them: one"]


def test_a_neighbour_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    known = set[str]()
    with locks.run_lock("one") as one, locks.run_lock("two"):
        for _ in range(2):
            with reporting_other_runs(one, known=known):
                pass
    assert capsys.readouterr().err == (
        "railbed: other runs disturb this one, and it disturbs them: two\n"
    )
    assert known == {"two"}
