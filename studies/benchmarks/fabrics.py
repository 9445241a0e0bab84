"""Shared by benchmarks with a fabric: bring one up, or run a scenario of the library."""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from execution.cases.emulation import Experiment, experiment
from execution.cases.progress import SILENT
from execution.run import run
from model.fabric.spec import FabricSpec
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.planning.machine_profile import in_virtual_clock
from testbed.nodes.gpu_proxies import ProxyKind


def containers() -> ProxyKind:
    """Return containers; processes in the virtual machine, which has no Docker Engine."""
    return ProxyKind.PROCESS if in_virtual_clock() else ProxyKind.CONTAINER


def bench_fabric(
    name: str, spec: FabricSpec, proxies: ProxyKind = ProxyKind.PROCESS
) -> AbstractContextManager[Experiment]:
    """Bring a fabric up in a run that has the benchmark's name."""
    return experiment(spec, proxies, f"bench-{os.getpid()}-{name}")


def library_cases(name: str, store: Path, overrides: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the cases of a run of a scenario of the library, with GPU proxies as processes."""
    scenario = load(LIBRARY / f"{name}.yaml", overrides)
    yield from run(scenario, ProxyKind.PROCESS, store, SILENT)["cases"]
