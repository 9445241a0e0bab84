"""Parsers of the kernel's statistics of processors and processes (proc(5))."""

import os

from model.measurement.cpu_windows import ThreadTime

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Columns of the line "cpu" of /proc/stat.
IDLE, IOWAIT, STEAL = 3, 4, 7


def idle_and_steal_s(stat: str) -> tuple[float, float]:
    """Seconds that all cores together were idle, and that the hypervisor took, from /proc/stat."""
    ticks = [int(word) for word in stat.split("\n", 1)[0].split()[1:]]
    return (ticks[IDLE] + ticks[IOWAIT]) / TICKS_PER_S, ticks[STEAL] / TICKS_PER_S


def thread_time(schedstat: str, status: str) -> ThreadTime:
    """The thread's times, from schedstat (sched-stats.rst) and status of /proc/PID/task/TID."""
    busy_ns, delay_ns, _slices = schedstat.split()
    lines = status.splitlines()
    rests = next(line for line in lines if line.startswith("voluntary_ctxt_switches:"))
    return ThreadTime(int(busy_ns), int(delay_ns), int(rests.split()[1]))


def stalled_s(pressure: str) -> float:
    """Seconds in which some process waited for a core, from /proc/pressure/cpu (psi.rst)."""
    some = next(line for line in pressure.splitlines() if line.startswith("some "))
    total_us = next(word for word in some.split() if word.startswith("total="))
    return int(total_us.removeprefix("total=")) / 1e6
