"""Benchmark the time to bring a fabric up and down, and the memory it takes while up."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from model.fabric.spec import FabricKind, FabricSpec
from scenarios.planning.machine_profile import in_virtual_clock
from studies.benchmarks.common.fabrics import bench_fabric
from studies.benchmarks.common.memory import MIB, kernel_bytes, proxy_bytes, run_bytes
from studies.benchmarks.common.rows import Row, sized
from testbed.nodes.gpu_proxies import ProxyKind

# (domains, domain size), trials
Sizes = tuple[tuple[tuple[int, int], int], ...]
PROCESSES: Sizes = (((4, 4), 5), ((8, 8), 3), ((32, 8), 2))
CONTAINERS: Sizes = (((4, 4), 5), ((8, 8), 3))


def startup(_store: Path) -> Iterator[Row]:
    """Measure seconds from the first command to all rules confirmed, and of taking all down."""
    kinds = [(ProxyKind.PROCESS, PROCESSES)]
    if not in_virtual_clock():
        kinds.append((ProxyKind.CONTAINER, CONTAINERS))
    for proxies, sizes in kinds:
        for kind in FabricKind:
            for (domains, size), trials in sizes:
                yield _row(replace(sized(domains, size), kind=kind), proxies, trials)


def _row(spec: FabricSpec, proxies: ProxyKind, trials: int) -> Row:
    measured = [up_and_down(spec, proxies) for _ in range(trials)]
    up, down, proxy, machine = zip(*measured, strict=True)
    return {
        "gpus": spec.gpus,
        "proxies": proxies.value,
        "fabric": spec.kind.value,
        "trials": trials,
        "up_s": median(up),
        "up_max_s": max(up),
        "down_s": median(down),
        "down_max_s": max(down),
        "proxy_mib": median(proxy) / MIB,
        "machine_mib_per_gpu": median(machine) / spec.gpus / MIB,
    }


def up_and_down(spec: FabricSpec, proxies: ProxyKind) -> tuple[float, float, float, float]:
    """Return seconds up and down; bytes of the largest proxy, and of the run and the kernel."""
    before = kernel_bytes()
    with bench_fabric(spec.kind, spec, proxies) as fabric:
        up_s = fabric.up_s
        hosts = fabric.bed.proxies.values()
        spent = run_bytes(fabric.lock, hosts, proxies) + kernel_bytes() - before
        ids = [proxy.process_id for proxy in hosts]
        largest = max(proxy_bytes(process_id, proxies) for process_id in ids)
        leaving_s = time.monotonic()
    return up_s, time.monotonic() - leaving_s, largest, spent
