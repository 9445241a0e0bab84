"""Processor time of the whole machine: also what kernel threads and interrupts do is counted."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

STAT = Path("/proc/stat")
# proc(5): user, nice, system, idle, iowait, irq, softirq; steal and guests are not ours.
BUSY_COLUMNS = (0, 1, 2, 5, 6)


def busy_ticks(stat: str) -> int:
    """What all processors have worked since the machine started, by the text of /proc/stat."""
    columns = stat.partition("\n")[0].split()[1:]
    return sum(int(columns[column]) for column in BUSY_COLUMNS)


def busy_s() -> float:
    """The same in seconds, now."""
    return busy_ticks(STAT.read_text()) / os.sysconf("SC_CLK_TCK")


@dataclass
class CpuMeter:
    """Adds up what the machine works in some windows of time, besides what it does anyway."""

    idle_share: float
    read_s: Callable[[], float] = busy_s
    clock_s: Callable[[], float] = time.monotonic
    cpu_s: float = 0.0

    @contextmanager
    def window(self) -> Iterator[None]:
        """What happens in the context counts."""
        begun_s, busy_before_s = self.clock_s(), self.read_s()
        yield
        elapsed_s = self.clock_s() - begun_s
        self.cpu_s += self.read_s() - busy_before_s - self.idle_share * elapsed_s


def idle_share(duration_s: float) -> float:
    """Processors that the machine keeps busy without us, measured for so many seconds."""
    before_s = busy_s()
    time.sleep(duration_s)
    return (busy_s() - before_s) / duration_s
