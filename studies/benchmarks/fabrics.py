"""The fabrics of benchmarks, and their kind of GPU proxies."""

import os
from contextlib import AbstractContextManager

from execution.cases.emulation import Experiment, experiment
from model.fabric.spec import FabricSpec
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
