"""The meter of the machine's processor time."""

from itertools import count

import pytest

from studies.benchmarks.mininet import CpuMeter


def test_a_meter_adds_windows_and_takes_off_what_the_machine_does_anyway() -> None:
    busy, clock = count(10, 3), count(0, 2)
    meter = CpuMeter(0.25, lambda: next(busy), lambda: next(clock))
    for _ in range(2):
        with meter.window():
            pass
    assert meter.cpu_s == pytest.approx(2 * (3 - 0.25 * 2))
