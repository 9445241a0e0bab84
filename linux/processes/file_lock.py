"""Locks between processes, in files (flock(2))."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path
from typing import IO

from linux.files.user_files import unfollowed
from linux.processes.lifetime import wait_for

# A process holds a lock for minutes at most; several may wait before this one.
DEADLINE_S = 1800.0


@contextmanager
def locked(place: Path, deadline_s: float = DEADLINE_S) -> Iterator[None]:
    """Hold the lock for as long as the context lasts.

    Prints a message while another process holds it; raises `EmulationError` at the deadline.
    """
    with open(place, "a", opener=unfollowed) as lock:
        if not _take(lock):
            print(f"railbed: waiting for another Railbed, which holds {place}", file=sys.stderr)
            what = f"release of the lock {place} by another Railbed"
            wait_for(lambda: _take(lock), what, deadline_s)
        yield


def hold(place: Path) -> None:
    """Share the lock with others until this process ends, however it ends."""
    flock(unfollowed(str(place), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC), LOCK_SH)


def is_held(place: Path) -> bool:
    """Whether a process holds the lock, alone or with others."""
    if not place.exists():
        return False
    with place.open("r+") as lock:
        return not _take(lock)


def _take(lock: IO[str]) -> bool:
    """Take the lock and return true, unless another process holds it."""
    try:
        flock(lock, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True
