"""Watches one core: records late wake-ups of this process as pauses of the machine.

    python pause_watcher.py CORE PERIOD_NS SHORTEST_NS

A separate program, as threads of one process would wait for each other; standard library only. It
runs ahead of all our other processes (the prober, as urgent, is brief), so none of them delays it.
It writes records of two numbers, due and actual wake-up in nanoseconds, to standard output. Without
a pause, an occasional record with two equal numbers confirms that it has watched until then.
"""

import os
import struct
import sys
import time
from contextlib import suppress

RECORD = struct.Struct("=qq")
SIGN_OF_LIFE_NS = 50_000_000
# Above all of normal priority, the controller and faults; below all others in real time.
PRIORITY = 2


def run_first(core: int) -> None:
    """Pin to one core at real-time priority; if not permitted, at the highest normal priority."""
    os.sched_setaffinity(0, {core})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    except PermissionError:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, -20)


def watch(period_ns: int, shortest_ns: int) -> None:
    """Record pauses until killed."""
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
