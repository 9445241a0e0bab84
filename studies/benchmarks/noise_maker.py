"""Occupies one core for a given share of the time, in bursts of 1 to 10 ms.

    python noise_maker.py CORE SHARE SECONDS

Imitates a hypervisor that gives the core to another guest: it runs ahead of all other processes
(SCHED_FIFO), our pause watchers included. It ends after SECONDS. Uses only the standard library.
"""

import os
import random
import sys
import time

# Above the pause watchers, below the kernel's own threads (sched(7)).
PRIORITY = 50
SHORTEST_S, LONGEST_S = 0.001, 0.010
# Largest random deviation of a gap between bursts, as a part of the gap that the share requires.
UNEVEN = 0.5


def take(share: float, end_s: float, chance: random.Random) -> None:
    """Burn the core in bursts, and sleep between them, until `end_s` of CLOCK_MONOTONIC."""
    while time.monotonic() < end_s:
        burst_s = chance.uniform(SHORTEST_S, LONGEST_S)
        begun_s = time.monotonic()
        while time.monotonic() < begun_s + burst_s:
            pass
        gap_s = burst_s * (1 - share) / share
        time.sleep(gap_s * chance.uniform(1 - UNEVEN, 1 + UNEVEN))


if __name__ == "__main__":
    core, share, seconds = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    print("ready", flush=True)
    take(share, time.monotonic() + seconds, random.Random(core))
