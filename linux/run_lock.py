"""Run locks: everything that a run creates carries its id, and only that is ever removed.

Each run has a folder under /run/railbed, locked (flock(2)) as long as the run lives. The lock ends
with the process, however it ends, so a folder that can be locked belongs to a dead run.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

RUNS = Path("/run/railbed")
RUN_LABEL = "org.railbed.run"
RUN_VARIABLE = "RAILBED_RUN"


@dataclass(frozen=True)
class RunLock:
    """The lock of a run: its id, and the folder of its sockets, logs and databases."""

    run_id: str

    @property
    def folder(self) -> Path:
        """The run's working folder."""
        return RUNS / self.run_id

    @property
    def environment(self) -> dict[str, str]:
        """The environment variable that identifies the run's processes."""
        return {RUN_VARIABLE: self.run_id}


@contextmanager
def run_lock(run_id: str) -> Iterator[RunLock]:
    """Hold a run lock for as long as the context lasts.

    The folder is renamed only once it is locked, or another run would take it for a dead run's.
    """
    lock = RunLock(run_id)
    unlocked = RUNS / f".{run_id}"
    try:
        unlocked.mkdir(parents=True)
        descriptor = os.open(unlocked / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        unlocked.rename(lock.folder)
    except BaseException:
        shutil.rmtree(unlocked, ignore_errors=True)
        raise
    try:
        yield lock
    finally:
        shutil.rmtree(lock.folder)
        os.close(descriptor)


def dead_runs() -> list[RunLock]:
    """Runs whose process has ended without cleaning up."""
    return [RunLock(folder.name) for folder in _folders() if not _is_alive(folder)]


def live_run_ids() -> frozenset[str]:
    """The ids of the runs that are under way."""
    return frozenset(folder.name for folder in _folders() if _is_alive(folder))


def run_processes() -> Iterator[tuple[int, str]]:
    """Yield the id of every process that belongs to a run, with the run id."""
    for entry in Path("/proc").iterdir():
        run_id = _run_of(entry) if entry.name.isdigit() else None
        if run_id is not None:
            yield int(entry.name), run_id


def _run_of(process: Path) -> str | None:
    """The run id in a process's environment; `None` without one."""
    try:
        variables = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return None  # it has ended meanwhile, or is the kernel's
    prefix = f"{RUN_VARIABLE}=".encode()
    run_ids = [
        variable.removeprefix(prefix) for variable in variables if variable.startswith(prefix)
    ]
    return run_ids[0].decode() if run_ids else None


def _folders() -> list[Path]:
    return sorted(RUNS.glob("[!.]*"))


def _is_alive(folder: Path) -> bool:
    try:
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
