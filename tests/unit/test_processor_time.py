"""Processor time of the machine, by the kernel's text."""

from itertools import count

import pytest

from scenarios.processor_time import CpuMeter, busy_ticks

STAT = """cpu  100 20 30 4000 500 6 7 80 9 10
cpu0 50 10 15 2000 250 3 3 40 4 5
intr 12345
"""


def test_idle_waiting_and_stolen_time_is_no_work() -> None:
    assert busy_ticks(STAT) == 100 + 20 + 30 + 6 + 7


def test_a_meter_adds_windows_and_takes_off_what_the_machine_does_anyway() -> None:
    busy, clock = count(10, 3), count(0, 2)
    meter = CpuMeter(0.25, lambda: next(busy), lambda: next(clock))
    for _ in range(2):
        with meter.window():
            pass
    assert meter.cpu_s == pytest.approx(2 * (3 - 0.25 * 2))
