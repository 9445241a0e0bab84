"""Measure processor time of the whole machine, kernel threads and interrupts included."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from linux.cpu_time import busy_s


@dataclass
class CpuMeter:
    """Adds up the machine's processor time in windows, less its background load in cores."""

    idle_share: float
    read_s: Callable[[], float] = busy_s
    clock_s: Callable[[], float] = time.monotonic
    cpu_s: float = 0.0

    @contextmanager
    def window(self) -> Iterator[None]:
        """Count the processor time that is spent within the context."""
        begun_s, busy_before_s = self.clock_s(), self.read_s()
        yield
        elapsed_s = self.clock_s() - begun_s
        self.cpu_s += self.read_s() - busy_before_s - self.idle_share * elapsed_s


def idle_share(duration_s: float) -> float:
    """Measure the machine's background load in cores, for `duration_s` seconds."""
    before_s = busy_s()
    time.sleep(duration_s)
    return (busy_s() - before_s) / duration_s
