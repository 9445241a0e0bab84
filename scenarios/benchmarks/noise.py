"""Benchmark the quickstart under noise that takes cores away in bursts of 1 to 10 ms."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from linux.cpu_time import stolen_s
from scenarios.benchmarks.common.rows import Row, part
from scenarios.benchmarks.common.seen import judged
from scenarios.execution.progress import Silent
from scenarios.execution.run import run
from scenarios.library import LIBRARY
from scenarios.loader import load
from scenarios.planning.machine_profile import known_machine
from testbed.nodes.gpu_proxies import ProxyKind
from testbed.noise.noise import Noise, noise

SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4)


@dataclass(frozen=True)
class Taken:
    """Seconds of all cores together that noise and the hypervisor have taken until `at_s`."""

    at_s: float
    noise_s: float
    steal_s: float

    @classmethod
    def until_now(cls, made: Noise) -> "Taken":
        """Read the present values."""
        return cls(time.monotonic(), made.taken_s(), stolen_s())

    def shares_since(self, before: "Taken") -> Row:
        """Return the shares of all cores' time that were taken since `before`."""
        cores_s = (self.at_s - before.at_s) * (os.cpu_count() or 1)
        return {
            "noise": (self.noise_s - before.noise_s) / cores_s,
            "steal": (self.steal_s - before.steal_s) / cores_s,
        }


def noisy(store: Path) -> Iterator[Row]:
    """Run the quickstart with GPU proxies as processes, at rising noise."""
    for share in SHARES:
        yield from part(_quickstart(share, store), proxies=ProxyKind.PROCESS.value, asked=share)


def _quickstart(share: float, store: Path) -> Iterator[Row]:
    scenario = load(LIBRARY / "quickstart.yaml", machine=known_machine())
    with noise(share) as made:
        before = Taken.until_now(made)
        cases = run(scenario, ProxyKind.PROCESS, store, Silent())["cases"]
        taken = Taken.until_now(made).shares_since(before)
    yield from ({**taken, **judged(case)} for case in cases)
