"""Run locks: everything that a run creates carries its id, and only that is ever removed.

Each run has a folder under /run/railbed, locked (flock(2)) as long as the run lives. The lock ends
with the process, however it ends, so a folder that can be locked belongs to a dead run. Folders
appear with their locks, and go, under the guard, the lock of /run/railbed itself: no one else sees
one between, and an id can be used again.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from linux.files.user_files import is_locked, take_lock
from linux.processes.lifetime import wait_for

RUNS = Path("/run/railbed")
RUN_LABEL = "org.railbed.run"
RUN_VARIABLE = "RAILBED_RUN"
GUARD_DEADLINE_S = 10


class RunLock:
    """The lock of a run: its id, and the folder of its sockets, logs and databases.

    `environment` has the variable that identifies the run's processes.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.folder = RUNS / run_id
        self.environment = {RUN_VARIABLE: run_id}


@contextmanager
def run_lock(run_id: str) -> Iterator[RunLock]:
    """Hold a run lock for as long as the context lasts."""
    lock = RunLock(run_id)
    with _guarded():
        lock.folder.mkdir()
        try:
            descriptor = os.open(lock.folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            shutil.rmtree(lock.folder, ignore_errors=True)
            raise
    try:
        yield lock
    finally:
        with _guarded():
            shutil.rmtree(lock.folder, ignore_errors=True)
            os.close(descriptor)


@contextmanager
def _guarded() -> Iterator[None]:
    """Hold the guard: meanwhile, nobody else begins a run or looks for dead ones."""
    RUNS.mkdir(parents=True, exist_ok=True)
    guard = os.open(RUNS, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        what = f"release of the lock of {RUNS} by another process (is it stopped?)"
        wait_for(lambda: take_lock(guard), what, GUARD_DEADLINE_S)
        yield
    finally:
        os.close(guard)


def live_run_ids() -> frozenset[str]:
    """The ids of the runs that are under way."""
    with _guarded():
        return frozenset(entry.name for entry in RUNS.iterdir() if _is_alive(entry))


def remove_dead() -> int:
    """Remove all of /run/railbed except the folders of live runs; return the number of removals.

    What cannot be removed, such as a mount point, stays.
    """
    with _guarded():
        dead = [entry for entry in RUNS.iterdir() if not _is_alive(entry)]
        for entry in dead:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                with suppress(OSError):
                    entry.unlink()  # of a link, only the link
        return sum(not os.path.lexists(entry) for entry in dead)


def run_processes() -> Iterator[tuple[int, str]]:
    """Yield the id of every process that belongs to a run, with the run id."""
    for entry in Path("/proc").iterdir():
        run_id = run_of(int(entry.name)) if entry.name.isdigit() else None
        if run_id is not None:
            yield int(entry.name), run_id


def run_of(process_id: int) -> str | None:
    """The run id in a process's environment; `None` without one.

    A process with another view of the file system has another /run/railbed, and does not count.
    """
    process = Path(f"/proc/{process_id}")
    try:
        if os.readlink(process / "ns/mnt") != os.readlink("/proc/self/ns/mnt"):
            return None
        variables = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return None  # it has ended meanwhile, or is the kernel's
    prefix = f"{RUN_VARIABLE}=".encode()
    run_ids = (one.removeprefix(prefix) for one in variables if one.startswith(prefix))
    return next((run_id.decode(errors="replace") for run_id in run_ids), None)


def _is_alive(entry: Path) -> bool:
    """Whether this is a run's folder, and the run holds its lock."""
    return is_locked(entry / "lock", os.O_NONBLOCK, unknown=False)
