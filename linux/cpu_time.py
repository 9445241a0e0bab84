"""Processor time and timers of this machine, as the kernel counts them (proc(5))."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

from linux.procfs import idle_and_steal_s


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
