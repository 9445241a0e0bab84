"""Benchmark how costs grow with the number of GPUs, at the same total rate of all links."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from execution.cases.emulation import Experiment
from linux.machine.cpu_time import busy_s
from model.fabric.shaping import wire_bytes
from model.fabric.spec import FabricSpec
from model.workload.schedule import Schedule
from model.workload.transfers.collective import Collective
from studies.benchmarks.common.fabrics import bench_fabric
from studies.benchmarks.common.memory import MIB, kernel_bytes, run_bytes
from studies.benchmarks.common.rows import Row, sized
from studies.benchmarks.costs.startup import up_and_down
from testbed.nodes.gpu_proxies import ProxyKind
from traffic_gen.workloads.sized_collective import SizedCollective

SIZES = ((2, 2), (4, 4), (8, 4), (8, 8), (16, 8), (32, 8))
TRIALS = 3
NIC_BUSY_S = 10


def growth(_store: Path) -> Iterator[Row]:
    """Measure start-up, memory, and processor time of a two-step all-to-all, for 4 to 256 GPUs."""
    for domains, size in SIZES:
        spec = sized(domains, size)
        ups_s = [up_and_down(spec, ProxyKind.PROCESS)[0] for _ in range(TRIALS - 1)]
        before = kernel_bytes()
        with bench_fabric("growth", spec) as fabric:
            hosts = fabric.bed.proxies.values()
            spent = run_bytes(fabric.lock, hosts, ProxyKind.PROCESS) + kernel_bytes() - before
            cpu_s, gbytes = exchange_cost(fabric)
            up_s = median([*ups_s, fabric.up_s])
            yield {
                "gpus": spec.gpus,
                "proxies": ProxyKind.PROCESS.value,
                "up_s": up_s,
                "up_s_per_gpu": up_s / spec.gpus,
                "machine_mib_per_gpu": spent / spec.gpus / MIB,
                "cpu_s_per_gbyte": cpu_s / gbytes,
                "cpu_s_per_gbyte_and_gpu": cpu_s / gbytes / spec.gpus,
            }


def exchange_cost(fabric: Experiment) -> tuple[float, float]:
    """Return the machine's processor seconds, and payload in 10^9 bytes, on warm connections."""
    schedule = exchange(fabric.topology.spec, NIC_BUSY_S)
    executions = fabric.repeats(schedule, fabric.predict(schedule), 2, check_data=False)
    next(executions)
    begun_s = busy_s()
    next(executions)
    sent = sum(transfer.size_bytes for transfer in schedule.transfers)
    return busy_s() - begun_s, sent / 1e9


def exchange(spec: FabricSpec, busy_s: float) -> Schedule:
    """Return a two-step all-to-all that keeps every NIC busy for `busy_s` seconds."""
    size_bytes = exchange_size(spec, busy_s)
    return SizedCollective(Collective.ALL_TO_ALL, "two-step", spec.job_shape, size_bytes).steps()


def exchange_size(spec: FabricSpec, busy_s: float = NIC_BUSY_S) -> int:
    """Return the bytes that every GPU holds, so that its NIC is busy for `busy_s` seconds."""
    across = (spec.domains - 1) / spec.domains
    return round(spec.emulated_nic_bps / 8 * busy_s / wire_bytes(1) / across)
