"""Run locks: folders of live runs are told from those of dead runs."""

from pathlib import Path

import pytest

from linux import run_lock as marks


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(marks, "RUNS", tmp_path)
    return tmp_path


def test_a_live_run_is_not_taken_for_a_dead_one(runs: Path) -> None:
    with marks.marked_run("one") as mark:
        assert marks.live_run_ids() == {"one"}
        assert marks.dead_runs() == []
        assert mark.folder.exists()
    assert list(runs.iterdir()) == []


def test_a_folder_that_nobody_has_locked_is_a_dead_runs(runs: Path) -> None:
    (runs / "killed").mkdir()
    (runs / "killed" / "lock").touch()
    assert marks.dead_runs() == [marks.Mark("killed")]
    assert marks.live_run_ids() == frozenset()


def test_an_interruption_while_a_mark_is_made_leaves_nothing(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fcntl.flock", interrupted)
    with pytest.raises(KeyboardInterrupt), marks.marked_run("one"):
        pytest.fail("it must not begin")
    assert list(runs.iterdir()) == []
