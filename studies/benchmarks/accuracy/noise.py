"""Benchmark the quickstart under noise that takes cores away in bursts of 1 to 10 ms."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from execution.cases.progress import SILENT
from execution.run import run
from linux.machine.cpu_time import stolen_s
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.planning.machine_profile import known_machine
from studies.benchmarks.common.rows import Row, part
from studies.benchmarks.common.seen import judged
from studies.benchmarks.noise.noise import Noise, noise
from testbed.nodes.gpu_proxies import ProxyKind

SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4)


def noisy(store: Path) -> Iterator[Row]:
    """Run the quickstart with GPU proxies as processes, at rising noise."""
    for share in SHARES:
        yield from part(_quickstart(share, store), proxies=ProxyKind.PROCESS.value, asked=share)


def _quickstart(share: float, store: Path) -> Iterator[Row]:
    scenario = load(LIBRARY / "quickstart.yaml", machine=known_machine())
    with noise(share) as made:
        before_s = _taken_s(made)
        cases = run(scenario, ProxyKind.PROCESS, store, SILENT)["cases"]
        both = zip(_taken_s(made), before_s, strict=True)
        cores_s, noise_s, steal_s = (after_s - earlier_s for after_s, earlier_s in both)
    taken = {"noise": noise_s / cores_s, "steal": steal_s / cores_s}
    yield from ({**taken, **judged(case)} for case in cases)


def _taken_s(made: Noise) -> tuple[float, float, float]:
    """Seconds of all cores together until now: in all, taken by noise, and by the hypervisor."""
    return time.monotonic() * (os.cpu_count() or 1), made.taken_s(), stolen_s()
