"""The machine's processor, its time and its timers, as the kernel describes them (proc(5)).

And settings of malloc(3) and of NumPy by which large arrays are fast on it.
"""

import ctypes
import os
import platform
import time
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Columns of the line "cpu" of /proc/stat.
IDLE, IOWAIT, STEAL = 3, 4, 7
PLACE = Path("/proc/cpuinfo")
# Parameters of mallopt(3), as in malloc.h, and the largest value that one takes.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
MOST = 2**31 - 1
# Settings that NumPy reads from the environment when it is imported: it asks for no huge pages, and
# does without AVX-512.
NO_HUGE_PAGES = {"NUMPY_MADVISE_HUGEPAGE": "0"}
NO_AVX512 = {"NPY_DISABLE_CPU_FEATURES": "X86_V4"}
FLAGS_OF_AVX512 = {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}
ZEN_4 = {"vendor_id": "AuthenticAMD", "cpu family": "25"}


def first_processor() -> dict[str, str]:
    """Return the fields of the first processor; their names depend on the architecture."""
    lines = takewhile(str.strip, PLACE.read_text().splitlines())
    parts = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in parts}


def model_name() -> str:
    """Return the name of the processor; without one, that of the architecture."""
    return first_processor().get("model name") or platform.machine()


def busy_s() -> float:
    """Processor seconds of all cores together; only differences are meaningful.

    Derived from the idle time, which the kernel counts exactly; it samples all other times by
    ticks. Time that the hypervisor took does not count.
    """
    idle_s, stolen_s = idle_and_steal_s(Path("/proc/stat").read_text())
    return time.monotonic() * (os.cpu_count() or 1) - idle_s - stolen_s


def stolen_s() -> float:
    """Seconds that the hypervisor took from all cores together (steal time)."""
    return idle_and_steal_s(Path("/proc/stat").read_text())[1]


def processes_s(process_ids: Iterable[int]) -> float:
    """Seconds that all threads of processes have been on a processor (sched-stats.rst)."""
    tasks = (task for number in process_ids for task in Path(f"/proc/{number}/task").iterdir())
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def timer_lateness_s(sleeps: int, pause_s: float) -> list[float]:
    """Lateness in seconds of `sleeps` sleeps of `pause_s` each, sorted."""
    late_s = []
    for _ in range(sleeps):
        moment_s = time.monotonic() + pause_s
        time.sleep(pause_s)
        late_s.append(time.monotonic() - moment_s)
    return sorted(late_s)


def idle_and_steal_s(stat: str) -> tuple[float, float]:
    """Seconds that all cores together were idle, and that the hypervisor took, from /proc/stat."""
    ticks = [int(word) for word in stat.split("\n", 1)[0].split()[1:]]
    return (ticks[IDLE] + ticks[IOWAIT]) / TICKS_PER_S, ticks[STEAL] / TICKS_PER_S


def speed_up_large_arrays() -> None:
    """Set all settings of this process, before NumPy is imported.

    Variables that the environment already has keep their values. Measured in "Schedules on paper"
    of measurements.md.
    """
    libc = ctypes.CDLL(None)
    # Keep freed memory (malloc(3)): otherwise, the kernel clears pages for each large array.
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, MOST)
    settings = NO_HUGE_PAGES | (NO_AVX512 if _sorts_slowly_with_avx512() else {})
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def is_set_here(name: str, value: str) -> bool:
    """Whether a variable of the environment is a setting for this program alone."""
    return (NO_HUGE_PAGES | NO_AVX512).get(name) == value


def _sorts_slowly_with_avx512() -> bool:
    """Whether NumPy has a sort for this processor that is slower than the one for AVX2.

    It stores with COMPRESS instructions, which Zen 4 has in microcode for memory (Software
    Optimization Guide for the AMD Zen4 Microarchitecture, section 2.11.2).
    """
    processor = first_processor()
    flags = processor.get("flags", "").split()
    return processor.items() >= ZEN_4.items() and FLAGS_OF_AVX512.issubset(flags)
