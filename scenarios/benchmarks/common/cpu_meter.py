"""Processor time of the whole machine: also what kernel threads and interrupts do is counted."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from linux.cpu_time import busy_s


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
