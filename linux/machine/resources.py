"""Limited resources: open files and memory of a process, space of a file system."""

import errno
import os
import resource
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import disk_usage

from model.errors import NotReady

# Errors of files that are the machine's (errno(3)): full, over quota, broken, read-only.
OF_THE_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}
LEAST_FREE_BYTES = 64 * 1024
# Open files of a run's process and of its controller: for each GPU, and for all else.
FILES_OF_A_GPU, CONTROLLER_FILES_OF_A_GPU, FILES_BESIDE = 3, 4, 100


def provide_files(gpus: int) -> None:
    """Raise the soft limit of open files to the need of `gpus` GPUs; children inherit it.

    It stays below the hard one, as `mnexec` of Mininet closes every number up to it. Raises
    `NotReady` if the hard limit is too low for this process, or for the controller.
    """
    needed, hard = gpus * CONTROLLER_FILES_OF_A_GPU + FILES_BESIDE, _hard_limit()
    if needed > hard:
        raise NotReady(
            f"open files: {gpus} GPUs need {needed}, but the hard limit of a process is {hard}; "
            f"raise it with `ulimit -Hn {needed}`, or use at most "
            f"{max(0, hard - FILES_BESIDE) // CONTROLLER_FILES_OF_A_GPU} GPUs"
        )
    _raise_limit(gpus * FILES_OF_A_GPU + FILES_BESIDE)


def provide_more_files(count: int) -> None:
    """Raise the soft limit so that `count` more files can be opened."""
    needed, hard = len(os.listdir("/proc/self/fd")) + count + FILES_BESIDE, _hard_limit()
    if needed > hard:
        raise NotReady(
            f"open files: {needed} are needed, but the hard limit of a process is {hard}; "
            f"raise it with `ulimit -Hn {needed}`"
        )
    _raise_limit(needed)


def _hard_limit() -> int:
    return _number(resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def _raise_limit(needed: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if needed > _number(soft):
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _number(limit: int) -> int:
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


@contextmanager
def memory_limited(more_bytes: int) -> Iterator[None]:
    """Let this process take at most this many bytes more; beyond that, it gets a `MemoryError`.

    Counted as address space, for the memory of all libraries (setrlimit(2), RLIMIT_AS).
    """
    before = resource.getrlimit(resource.RLIMIT_AS)
    used_pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = used_pages * resource.getpagesize() + more_bytes
    hard = before[1]
    resource.setrlimit(resource.RLIMIT_AS, (min(most, _number(hard)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def full(folders: Iterable[Path]) -> str:
    """Those of the folders whose file systems have no space left, in words; empty if none."""
    filled = [one for one in folders if one.is_dir() and disk_usage(one).free < LEAST_FREE_BYTES]
    return ", ".join(f"no space left in {folder}" for folder in filled)
