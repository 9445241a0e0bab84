"""Run locks: folders of live runs are told from those of dead runs."""

from pathlib import Path

import pytest

from linux import run_lock as locks


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(locks, "RUNS", tmp_path)
    return tmp_path


def test_a_live_run_is_not_taken_for_a_dead_one(runs: Path) -> None:
    with locks.run_lock("one") as lock:
        assert locks.live_run_ids() == {"one"}
        assert locks.dead_runs() == []
        assert lock.folder.exists()
    assert list(runs.iterdir()) == []


def test_a_folder_that_nobody_has_locked_is_a_dead_runs(runs: Path) -> None:
    (runs / "killed").mkdir()
    (runs / "killed" / "lock").touch()
    assert locks.dead_runs() == [locks.RunLock("killed")]
    assert locks.live_run_ids() == frozenset()


def test_an_interruption_while_a_run_lock_is_taken_leaves_nothing(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fcntl.flock", interrupted)
    with pytest.raises(KeyboardInterrupt), locks.run_lock("one"):
        pytest.fail("it must not begin")
    assert list(runs.iterdir()) == []
