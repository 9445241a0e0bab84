"""Processor time and timers of this machine, as the kernel counts them (proc(5))."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
IDLE, IO_WAIT = 3, 4


def busy_s() -> float:
    """Processor time that this machine has spent, all cores together, since some moment.

    From the idle time, which the kernel counts exactly; all other times it samples by ticks.
    """
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    idle_s = (int(words[IDLE]) + int(words[IO_WAIT])) * TICK_S
    return time.monotonic() * (os.cpu_count() or 1) - idle_s


def processes_s(process_ids: Iterable[int]) -> float:
    """Seconds that all threads of processes have been on a processor (sched-stats.rst)."""
    tasks = (task for number in process_ids for task in Path(f"/proc/{number}/task").iterdir())
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def timer_lateness_s(sleeps: int, pause_s: float) -> list[float]:
    """How late sleeps to moments of CLOCK_MONOTONIC return, sorted."""
    late_s = []
    for _ in range(sleeps):
        moment_s = time.monotonic() + pause_s
        time.sleep(pause_s)
        late_s.append(time.monotonic() - moment_s)
    return sorted(late_s)
