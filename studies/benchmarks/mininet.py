"""Benchmark Railbed and plain Mininet on the same fabric and load: figures and their ratios.

Processor time is that of the whole machine, kernel threads and interrupts included.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from execution.cases.emulation import PlacedJob
from linux.machine.processor import busy_s
from linux.processes.run_lock import run_lock
from model.errors import EmulationError
from model.fabric.build import build_topology
from model.fabric.shaping import wire_bytes
from model.fabric.spec import FabricSpec
from model.job.placement import job_placement
from model.workload.schedule import Schedule
from model.workload.transfers.collective import Collective
from studies.benchmarks.costs import up_and_down
from studies.benchmarks.fabrics import bench_fabric
from studies.benchmarks.plain_mininet import PlainFabric, plain_job, plain_mininet
from studies.benchmarks.rows import SIXTEEN, Row, resized
from testbed.nodes.gpu_proxies import ProxyKind
from traffic_gen.iperf3 import Flow, Hosts, bytes_by_pair, carry, rounds
from traffic_gen.workloads.sized_collective import SizedCollective

# At the quickstart's rates, plain Mininet carries 0.4 of the HB domains' 2.9 Gbit/s on two cores
# (docs/reference/measurements.md); a tenth of these rates is below 0.4 Gbit/s.
SLOW = replace(SIXTEEN, bandwidth_scale=10 * SIXTEEN.bandwidth_scale)
# Rail-only fabrics, and a collective on each with its bytes as nccl-tests count them.
LOADS = (
    (SIXTEEN, Collective.ALL_GATHER, "hierarchical", 48_000_000),
    (SIXTEEN, Collective.ALL_TO_ALL, "two-step", 24_000_000),
    (SLOW, Collective.ALL_TO_ALL, "two-step", 2_400_000),
)
AGENTS, IPERF3 = "agents", "iperf3"
REPEATS = 5
WARMUP = 1
IDLE_S = 3
UP_DEADLINE_S = 900
# 16, 64 and 256 GPUs, and how often each fabric is brought up.
SIZES = ((SIXTEEN, 3), (resized(8, 8), 3), (resized(32, 8), 1))
GIGABYTE = 1_000_000_000
RAILBED, MININET, RATIO = "railbed", "mininet", "railbed / mininet"
Figures = dict[str, float]


@dataclass
class CpuMeter:
    """Adds up the machine's processor time in windows, less its background load in cores."""

    background_cores: float
    read_s: Callable[[], float] = busy_s
    clock_s: Callable[[], float] = time.monotonic
    cpu_s: float = 0.0

    @contextmanager
    def window(self) -> Iterator[None]:
        """Count the processor time that is spent within the context."""
        begun_s, busy_before_s = self.clock_s(), self.read_s()
        yield
        elapsed_s = self.clock_s() - begun_s
        self.cpu_s += self.read_s() - busy_before_s - self.background_cores * elapsed_s


def measured_background_cores(duration_s: float) -> float:
    """Measure the machine's background load in cores, for `duration_s` seconds."""
    before_s = busy_s()
    time.sleep(duration_s)
    return (busy_s() - before_s) / duration_s


@dataclass(frozen=True)
class Execution:
    """One execution of a load: measured and modeled seconds, payload, processor seconds."""

    measured_s: float
    modeled_s: float
    payload_bytes: int
    cpu_s: float

    @property
    def error(self) -> float:
        """Relative error of the measured time against the modeled time."""
        return abs(self.measured_s / self.modeled_s - 1)

    @property
    def cpu_s_per_gigabyte(self) -> float:
        """Processor time of the machine for 10^9 bytes of payload."""
        return self.cpu_s / (self.payload_bytes / GIGABYTE)


def _modeled_s(flow: Flow, spec: FabricSpec) -> float:
    """Return the received bytes, headers included, over the rate of the links on the path.

    Raises `ValueError` for a pair that shares neither HB domain nor rail.
    """
    (from_domain, from_rail), (to_domain, to_rail) = (
        divmod(rank, spec.domain_size) for rank in flow.pair
    )
    if from_domain != to_domain and from_rail != to_rail:
        raise ValueError(f"{flow.pair}: must share an HB domain or a rail")
    rate_bps = spec.emulated_hb_bps if from_domain == to_domain else spec.emulated_nic_bps
    return wire_bytes(flow.received_bytes) * 8 / rate_bps


def rounds_execution(rounds: Iterable[Sequence[Flow]], spec: FabricSpec, cpu_s: float) -> Execution:
    """Return the execution of a load that is sent in rounds, one after the other.

    A round lasts as long as its longest transfer. In a round, each host sends to one host and
    receives from one host: no two transfers share a link. Only the transfers' own time counts, not
    the start of processes; and all sent bytes count as payload, though the servers report fewer
    received bytes.
    """
    rounds = list(rounds)
    return Execution(
        measured_s=sum(max(flow.duration_s for flow in flows) for flows in rounds),
        modeled_s=sum(max(_modeled_s(flow, spec) for flow in flows) for flows in rounds),
        payload_bytes=sum(flow.sent_bytes for flows in rounds for flow in flows),
        cpu_s=cpu_s,
    )


def medians(executions: Sequence[Execution]) -> Figures:
    """Return a row's figures: medians of all executions, and the largest error."""
    return {
        "measured_s": median(execution.measured_s for execution in executions),
        "modeled_s": median(execution.modeled_s for execution in executions),
        "error": median(execution.error for execution in executions),
        "error_max": max(execution.error for execution in executions),
        "cpu_s_per_gigabyte": median(execution.cpu_s_per_gigabyte for execution in executions),
    }


def ratios(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Figures:
    """Divide Railbed's figures by plain Mininet's, where less is better.

    Railbed is up when all is ready, so `up_s` is also divided by `connected_s`, the earlier time
    at which plain Mininet's switches are connected.
    """
    compared = {name: (name, name) for name in ("error", "cpu_s_per_gigabyte", "up_s")}
    compared["up_s_to_connected_s"] = ("up_s", "connected_s")
    return {
        f"{name}_ratio": ours[our] / theirs[their]
        for name, (our, their) in compared.items()
        if our in ours and their in theirs
    }


def side_by_side(
    row: Mapping[str, Any], railbed: Callable[[], Figures], mininet: Callable[[], Figures]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each, and one of ratios; if plain Mininet fails, its row has the reason."""
    ours = railbed()
    yield {**row, "fabric": RAILBED, **ours}
    try:
        theirs = mininet()
    except EmulationError as error:
        yield {**row, "fabric": MININET, "failed": str(error)}
        return
    yield {**row, "fabric": MININET, **theirs}
    yield {**row, "fabric": RATIO, **ratios(ours, theirs)}


def mininet(_store: Path) -> Iterator[Row]:
    """Measure error, processor time and start-up of both, and their ratios."""
    for load in LOADS:
        yield from compared_load(*load)
    for spec, trials in SIZES:
        both = partial(_railbed_up, spec, trials), partial(_mininet_up, spec, trials)
        yield from side_by_side(_row(spec), *both)


def compared_load(
    spec: FabricSpec, collective: Collective, algorithm: str, size_bytes: int
) -> Iterator[Row]:
    """Run a load on both testbeds, one after the other: errors and processor time.

    Each testbed carries it twice: by the agents, with the fluid model's prediction, and by iperf3
    in rounds, with the model of the rounds.
    """
    schedule = SizedCollective(collective, algorithm, spec.job_shape, size_bytes).steps()
    background_cores = measured_background_cores(IDLE_S)
    names = {
        "collective": collective.value,
        "algorithm": algorithm,
        "nic_mbit_per_s": spec.emulated_nic_bps / 1e6,
    }
    for traffic in (AGENTS, IPERF3):
        load = Load(spec, schedule, traffic, background_cores)
        row = {**_row(spec), **names, "traffic": traffic}
        yield from side_by_side(row, load.by_railbed, load.by_mininet)


def _row(spec: FabricSpec) -> Row:
    return {"gpus": spec.gpus, "proxies": ProxyKind.PROCESS.value}


@contextmanager
def _plain(spec: FabricSpec) -> Iterator[PlainFabric]:
    topology, run_id = build_topology(spec), f"bench-{os.getpid()}-{MININET}"
    with run_lock(run_id) as lock, plain_mininet(topology, lock, UP_DEADLINE_S) as fabric:
        yield fabric


def _railbed_up(spec: FabricSpec, trials: int) -> Figures:
    return {"up_s": median(up_and_down(spec, ProxyKind.PROCESS)[0] for _ in range(trials))}


def _mininet_up(spec: FabricSpec, trials: int) -> Figures:
    fabrics = []
    for _ in range(trials):
        with _plain(spec) as fabric:
            fabrics.append(fabric)
    return {
        "up_s": median(fabric.up_s for fabric in fabrics),
        "connected_s": median(fabric.connected_s for fabric in fabrics),
    }


@dataclass(frozen=True)
class Load:
    """A schedule that the agents or iperf3 send over a fabric, beside the machine's background."""

    spec: FabricSpec
    schedule: Schedule
    traffic: str
    background_cores: float

    def by_railbed(self) -> Figures:
        """The figures on Railbed's fabric."""
        with bench_fabric(RAILBED, self.spec) as fabric:
            if self.traffic == AGENTS:
                return self._by_agents(fabric)
            return self._by_iperf3([fabric.bed.process_ids[g.name] for g in fabric.topology.gpus])

    def by_mininet(self) -> Figures:
        """The figures on plain Mininet's fabric, on which agents run only if they send."""
        with _plain(self.spec) as fabric:
            if self.traffic == IPERF3:
                return self._by_iperf3(fabric.process_ids)
            with plain_job(fabric, self.spec) as job:
                return self._by_agents(job)

    def _by_agents(self, job: PlacedJob) -> Figures:
        prediction = job.predict(self.schedule)
        repeats = job.repeats(self.schedule, prediction, WARMUP + REPEATS, check_data=False)

        def execution() -> Execution:
            meter = CpuMeter(self.background_cores)
            with meter.window():
                repeat = next(repeats)
            sent = sum(record.size_bytes for record in repeat.records)
            return Execution(repeat.completion_s, prediction.completion_s, sent, meter.cpu_s)

        return _medians_after_warmup(execution)

    def _by_iperf3(self, process_ids: Sequence[int]) -> Figures:
        """Send each pair's bytes of the schedule in rounds, as a script around iperf3 does."""
        hosts = Hosts(process_ids, job_placement(self.spec).addresses())
        sizes = bytes_by_pair(self.schedule)

        def execution() -> Execution:
            meter = CpuMeter(self.background_cores)
            flows = [
                carry(hosts, {pair: sizes[pair] for pair in pairs}, meter.window)
                for pairs in rounds(sizes, self.spec.domains, self.spec.domain_size)
            ]
            return rounds_execution(flows, self.spec, meter.cpu_s)

        return _medians_after_warmup(execution)


def _medians_after_warmup(execution: Callable[[], Execution]) -> Figures:
    return medians([execution() for _ in range(WARMUP + REPEATS)][WARMUP:])
