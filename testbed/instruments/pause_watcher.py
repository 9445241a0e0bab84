"""Watches one core: notes when it should have woken this process up, and did not.

    python pause_watcher.py CORE PERIOD_NS SHORTEST_NS

A program of its own, with the standard library alone, as threads of one process would wait for
each other. It runs before everything of normal priority, so what makes it late is what no process
of ours can do anything about. Standard output gets records of two numbers, when it was to wake up
and when it did; of those that were no pause, one in a while, which says: seen until then.
"""

import os
import struct
import sys
import time
from contextlib import suppress

RECORD = struct.Struct("=qq")
SIGN_OF_LIFE_NS = 50_000_000
# Before all of normal priority, behind everything else that is in a hurry.
PRIORITY = 1


def run_first(core: int) -> None:
    """Stay on one core, before all of normal priority; else as nice as can be."""
    os.sched_setaffinity(0, {core})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    except PermissionError:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, -20)


def watch(period_ns: int, shortest_ns: int) -> None:
    """Note pauses until killed."""
    due_ns = said_ns = time.monotonic_ns()
    os.write(1, RECORD.pack(due_ns, due_ns))
    while True:
        due_ns += period_ns
        time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
        now_ns = time.monotonic_ns()
        if now_ns - due_ns >= shortest_ns:
            os.write(1, RECORD.pack(due_ns, now_ns))
            due_ns = said_ns = now_ns
        elif now_ns - said_ns > SIGN_OF_LIFE_NS:
            os.write(1, RECORD.pack(now_ns, now_ns))
            said_ns = now_ns


if __name__ == "__main__":
    run_first(int(sys.argv[1]))
    watch(int(sys.argv[2]), int(sys.argv[3]))
