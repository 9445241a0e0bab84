"""Settings of malloc(3) and of NumPy that make large arrays fast."""

import ctypes
import os

from linux.machine.processor import first_processor

# Parameters of mallopt(3), as in malloc.h, and the largest value that one takes.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
MOST = 2**31 - 1
# Settings that NumPy reads from the environment when it is imported: it asks for no huge pages, and
# does without AVX-512.
NO_HUGE_PAGES = {"NUMPY_MADVISE_HUGEPAGE": "0"}
NO_AVX512 = {"NPY_DISABLE_CPU_FEATURES": "X86_V4"}
FLAGS_OF_AVX512 = {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}
ZEN_4 = {"vendor_id": "AuthenticAMD", "cpu family": "25"}


def speed_up_large_arrays() -> None:
    """Set all settings of this process, before NumPy is imported.

    Variables that the environment already has keep their values. Measured in "Schedules on paper"
    of measurements.md.
    """
    _keep_freed_memory()
    settings = NO_HUGE_PAGES
    if _sorts_slowly_with_avx512():
        settings = settings | NO_AVX512
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def is_set_here(name: str, value: str) -> bool:
    """Whether a variable of the environment is a setting for this program alone."""
    return (NO_HUGE_PAGES | NO_AVX512).get(name) == value


def _keep_freed_memory() -> None:
    """Let malloc(3) keep freed memory; otherwise the kernel clears pages for each large array."""
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, MOST)


def _sorts_slowly_with_avx512() -> bool:
    """Whether NumPy has a sort for this processor that is slower than the one for AVX2.

    It stores with COMPRESS instructions, which Zen 4 has in microcode for memory (Software
    Optimization Guide for the AMD Zen4 Microarchitecture, section 2.11.2).
    """
    processor = first_processor()
    flags = processor.get("flags", "").split()
    return processor.items() >= ZEN_4.items() and FLAGS_OF_AVX512.issubset(flags)
