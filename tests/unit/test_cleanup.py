"""What a cleanup kills, and what it says that it has removed."""

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import pytest

from linux.processes import run_lock
from model.errors import NotReady
from testbed.host import cleanup
from testbed.host.cleanup import Removed


@pytest.mark.parametrize(
    ("removed", "said"),
    [
        (Removed(1, 0, 0, 0), "1 dead run"),
        (Removed(0, 1, 2, 0), "1 process, 2 containers"),
        (Removed(2, 3, 1, 1), "2 dead runs, 3 processes, 1 container, 1 work folder"),
        (Removed(0, 0, 0, 0), ""),
    ],
)
def test_only_what_was_there_is_said(removed: Removed, said: str) -> None:
    assert (str(removed), bool(removed)) == (said, bool(said))


@pytest.fixture
def dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that count as those of a dead run, without its mark: real cleanups kill by that."""
    monkeypatch.setattr(run_lock, "RUNS", tmp_path)
    monkeypatch.setattr(cleanup, "run_of", lambda _: "dead")
    with ExitStack() as running:
        started = [running.enter_context(subprocess.Popen(["sleep", "60"])) for _ in range(8)]
        for one in started:
            running.callback(one.kill)
        listed = [(one.pid, "dead") for one in started]
        monkeypatch.setattr(cleanup, "run_processes", lambda: iter(listed))
        yield started


def test_more_processes_than_descriptors_are_killed(dead: list[subprocess.Popen[bytes]]) -> None:
    free = os.dup(0)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 4, hard))
    try:
        assert cleanup._kill_processes() == len(dead)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert {one.wait(10) for one in dead} == {-9}


def test_a_number_that_another_process_uses_meanwhile_kills_nobody(
    dead: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process is of a run that has begun since."""
    monkeypatch.setattr(cleanup, "run_processes", lambda: iter([(dead[0].pid, "before")]))
    cleanup._kill_processes()
    assert dead[0].poll() is None


@pytest.mark.parametrize("shims", [{}, {"1f": "railbed-dead-d0g0"}])
def test_containers_that_outlive_their_engine_are_named(
    shims: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: int) -> NoReturn:
        raise NotReady("no engine") from ConnectionRefusedError()

    monkeypatch.setattr(cleanup, "docker_client", refused)
    monkeypatch.setattr(cleanup, "containers_seen", lambda but_of: shims)
    monkeypatch.setattr(cleanup, "live_run_ids", frozenset)
    removed, left = cleanup._remove_containers(1)
    said = "left of killed runs: railbed-dead-d0g0 (no engine); "
    assert (removed, left) == (0, (said + cleanup.REMEDY) * bool(shims))
