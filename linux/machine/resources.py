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

# Errors that are the machine's (errno(3)): of files (full, over quota, larger than a process may
# write, broken, read-only) and of memory.
OF_THE_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ENOMEM}
# What dlopen(3) says of a library for which the address space has no room.
NO_ROOM = "failed to map segment"
LEAST_FREE_BYTES = 64 * 1024
# Open files of a run's process and of its controller: for each GPU, and for all else.
FILES_OF_A_GPU, CONTROLLER_FILES_OF_A_GPU, FILES_BESIDE = 3, 4, 100


def provide_files(gpus: int) -> None:
    """Raise the soft limit of open files to the need of `gpus` GPUs; children inherit it.

    It stays below the hard one, as `mnexec` of Mininet closes every number up to it. Raises
    `NotReady` if the hard limit is too low for this process, or for the controller.
    """
    hard = _number(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    most = max(0, hard - FILES_BESIDE) // CONTROLLER_FILES_OF_A_GPU
    needed = gpus * CONTROLLER_FILES_OF_A_GPU + FILES_BESIDE
    own = gpus * FILES_OF_A_GPU + FILES_BESIDE
    fewer = f", or use at most {most} GPUs" if most > 1 else ""
    _raise_limit(own, needed, f"{gpus} GPUs need {needed}", fewer)


def provide_more_files(count: int) -> None:
    """Raise the soft limit so that `count` more files can be opened."""
    needed = len(os.listdir("/proc/self/fd")) + count + FILES_BESIDE
    _raise_limit(needed, needed, f"{needed} are needed")


def _raise_limit(own: int, needed: int, what: str, remedy: str = "") -> None:
    """Raise the soft limit to this process's `own` need; the hard one must allow `needed`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if needed > _number(hard):
        raise NotReady(
            f"open files: {what}, but the hard limit of a process is {hard}; "
            f"raise it with `ulimit -Hn {needed}`{remedy}"
        )
    if own > _number(soft):
        resource.setrlimit(resource.RLIMIT_NOFILE, (own, hard))


def _number(limit: int) -> int:
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


@contextmanager
def memory_limited(more_bytes: int) -> Iterator[None]:
    """Let this process take at most this many bytes more; beyond that, it gets a `MemoryError`.

    Counted as address space, for the memory of all libraries (setrlimit(2), RLIMIT_AS).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used_pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = used_pages * resource.getpagesize() + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (min(most, _number(hard)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def of_the_machine(error: BaseException) -> str:
    """An error that is the machine's, in words; empty for others."""
    if isinstance(error, MemoryError) or (isinstance(error, ImportError) and NO_ROOM in str(error)):
        return f"out of memory: {error}".removesuffix(": ")
    if not isinstance(error, OSError) or error.errno not in OF_THE_MACHINE:
        return ""
    return ": ".join(str(part) for part in (error.filename, error.strerror) if part is not None)


def full(folders: Iterable[Path]) -> str:
    """Those of the folders whose file systems have no space left, in words; empty if none."""
    filled = [one for one in folders if one.is_dir() and disk_usage(one).free < LEAST_FREE_BYTES]
    return ", ".join(f"no space left in {folder}" for folder in filled)
