"""How long a failure cuts pairs off."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from linux.run_lock import marked_run
from model.fabric.spec import FabricKind
from scenarios.benchmarks.blackout_trials import trials
from scenarios.benchmarks.rows import SIXTEEN, Row
from scenarios.execution.emulation import experiment
from testbed.nodes.gpu_proxies import ProxyKind


def blackout(_store: Path) -> Iterator[Row]:
    """How long pairs are cut off, by failures that switches see and by silent ones, under load."""
    for kind in FabricKind:
        spec, mark_id = replace(SIXTEEN, kind=kind), f"bench-{os.getpid()}-blackout-{kind}"
        with marked_run(mark_id) as mark, experiment(spec, ProxyKind.PROCESS, mark) as fabric:
            for row in trials(fabric):
                proxies = ProxyKind.PROCESS.value
                yield {"gpus": spec.gpus, "proxies": proxies, "fabric": kind.value, **row}
