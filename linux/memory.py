"""Memory of this process: what a large array frees is kept for the next one."""

import ctypes
import os

# Parameters of mallopt(3), as in malloc.h, and the largest value that one takes.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
MOST = 2**31 - 1
# NumPy asks for huge pages unless this variable says no when it is imported.
HUGE_PAGES = "NUMPY_MADVISE_HUGEPAGE"


def keep_freed_memory() -> None:
    """Let malloc(3) keep freed memory, and NumPy ask for no huge pages once it is imported.

    Otherwise each large array gets fresh pages, which the kernel finds and clears: a third of the
    processor time of schedules of 1024 GPUs ("Schedules on paper" in measurements.md).
    """
    os.environ.setdefault(HUGE_PAGES, "0")
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, MOST)
