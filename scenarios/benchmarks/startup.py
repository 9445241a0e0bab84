"""How long a fabric takes to come up and to go."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from model.fabric import FabricKind, FabricSpec
from scenarios.benchmarks.rows import SIXTEEN, Row
from scenarios.experiment import experiment
from testbed.marks import marked_run
from testbed.proxies import ProxyKind

STARTUP_TRIALS = 5


def startup(_store: Path) -> Iterator[Row]:
    """Seconds from the first command to all rules confirmed, and until all is down again."""
    for proxies in ProxyKind:
        for kind in FabricKind:
            spec = replace(SIXTEEN, kind=kind)
            trials = [_up_and_down(spec, proxies) for _ in range(STARTUP_TRIALS)]
            up, down = zip(*trials, strict=True)
            yield {
                "gpus": spec.gpus,
                "proxies": proxies.value,
                "fabric": kind.value,
                "up_s": median(up),
                "up_max_s": max(up),
                "down_s": median(down),
            }


def _up_and_down(spec: FabricSpec, proxies: ProxyKind) -> tuple[float, float]:
    mark_id = f"bench-{os.getpid()}-{spec.kind}"
    with marked_run(mark_id) as mark, experiment(spec, proxies, mark) as fabric:
        up_s, leaving_s = fabric.up_s, time.monotonic()
    return up_s, time.monotonic() - leaving_s
