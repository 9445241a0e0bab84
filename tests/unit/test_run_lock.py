"""Run locks: folders of live runs are told from those of dead runs."""

import errno
import fcntl
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from linux.processes import run_lock as locks
from model.errors import EmulationError
from tests.machine import wait_until


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(locks, "RUNS", tmp_path / "runs")
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def test_a_live_run_is_not_taken_for_a_dead_one(runs: Path) -> None:
    with locks.run_lock("one") as lock:
        assert locks.live_run_ids() == {"one"}
        assert locks.remove_dead() == 0
        assert lock.folder.exists()
    assert list(runs.iterdir()) == []


def test_a_run_that_is_just_beginning_is_not_taken_for_a_dead_one(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks while a run begins waits until its folder is locked."""
    looked: list[frozenset[str]] = []
    looking = threading.Thread(target=lambda: looked.append(locks.live_run_ids()))
    real = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        if (runs / "one").exists() and not looking.ident:
            looking.start()
        real(descriptor, operation)

    monkeypatch.setattr("fcntl.flock", flock)
    with locks.run_lock("one"):
        looking.join()
    assert looked == [frozenset({"one"})]


def test_an_id_that_is_used_again_is_not_taken_for_the_dead_one_before(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever removes what is dead holds the guard until it is gone."""
    (runs / "one").mkdir()
    used: list[bool] = []
    again = threading.Thread(target=lambda: used.append(holds("one")))
    real = shutil.rmtree

    def rmtree(place: Path, *, ignore_errors: bool) -> None:
        if not again.ident:
            again.start()
        real(place, ignore_errors=ignore_errors)

    monkeypatch.setattr("shutil.rmtree", rmtree)
    assert locks.remove_dead() == 1
    again.join()
    assert used == [True]


def holds(run_id: str) -> bool:
    with locks.run_lock(run_id) as lock:
        return (lock.folder / "lock").exists()


def test_whatever_nobody_has_locked_is_removed_and_nothing_behind_a_link(runs: Path) -> None:
    kept = runs.parent / "kept"
    kept.mkdir()
    (kept / "file").touch()
    for name in ("killed", ".hidden", "with-a-folder-as-lock"):
        (runs / name).mkdir()
    (runs / "killed" / "lock").touch()
    (runs / "with-a-folder-as-lock" / "lock").mkdir()
    (runs / "file").touch()
    (runs / "link").symlink_to(kept)
    os.mkfifo(runs / "fifo")
    assert locks.live_run_ids() == frozenset()
    assert locks.remove_dead() == 6
    assert list(runs.iterdir()) == []
    assert (kept / "file").exists()


def test_what_cannot_be_removed_is_not_counted(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a mount point below /run/railbed."""

    def busy(*_: object, **__: object) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    (runs / "killed").mkdir()
    (runs / "file").touch()
    with monkeypatch.context() as while_busy:
        while_busy.setattr("os.rmdir", busy)
        while_busy.setattr("os.unlink", busy)
        assert locks.remove_dead() == 0
    assert locks.remove_dead() == 2


def test_a_guard_that_nobody_gives_back_is_an_error(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "GUARD_DEADLINE_S", 0.05)
    holder = os.open(runs, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    try:
        with pytest.raises(EmulationError, match="another process"):
            locks.live_run_ids()
    finally:
        os.close(holder)


def test_an_interruption_while_a_run_lock_is_taken_leaves_nothing(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fcntl.flock", interrupted)
    with pytest.raises(KeyboardInterrupt), locks.run_lock("one"):
        pytest.fail("it must not begin")
    assert list(runs.iterdir()) == []


def test_a_process_with_another_file_system_is_no_run_of_ours() -> None:
    """Its run may be alive in a /run/railbed that is not visible here."""
    environment = {**os.environ, locks.RUN_VARIABLE: "elsewhere"}
    with subprocess.Popen(["sleep", "60"], env=environment) as ours:
        wait_until(lambda: locks.run_of(ours.pid) == "elsewhere", "it has its environment")
        ours.kill()
    command = ["unshare", "--mount", "sh", "-c", "echo there; exec sleep 60"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "there\n"
        assert locks.run_of(other.pid) is None
        other.kill()
