"""Benchmark Railbed and plain Mininet on the same fabric and load."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from execution.cases.emulation import AGENT, PlacedJob
from linux.processes.run_lock import RunLock, run_lock
from model.fabric.spec import FabricSpec
from model.fabric.topology import build_topology
from model.job.placement import job_placement
from model.measurement.records import Repeat
from model.workload.schedule import Schedule
from model.workload.transfers.collective import Collective
from studies.benchmarks.fabrics import bench_fabric
from studies.benchmarks.plain_mininet import PlainFabric, plain_mininet
from studies.benchmarks.plain_services import plain_agents
from studies.benchmarks.rows import SIXTEEN, Row, resized
from studies.benchmarks.side_by_side import (
    MININET,
    RAILBED,
    CpuMeter,
    Execution,
    Figures,
    measured_background_cores,
    medians,
    rounds_execution,
    side_by_side,
)
from testbed.nodes.gpu_proxies import SYSCTLS, ProxyKind
from traffic_gen.agents.client import agent_client
from traffic_gen.iperf3 import Hosts, bytes_by_pair, carry, rounds
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
# TCP has the same settings on both testbeds.
TCP = {name: value for name, value in SYSCTLS.items() if name.startswith("net.ipv4.tcp_")}
REPEATS = 5
WARMUP = 1
IDLE_S = 3
UP_DEADLINE_S = 900
# 16, 64 and 256 GPUs, and how often each fabric is brought up.
SIZES = (
    (SIXTEEN, 3),
    (resized(8, 8), 3),
    (resized(32, 8), 1),
)


def mininet(_store: Path) -> Iterator[Row]:
    """Measure error, processor time and start-up of both, and their ratios."""
    for load in LOADS:
        yield from compared_load(*load)
    for spec, trials in SIZES:
        yield from compared_startups(spec, trials)


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
        "bandwidth_scale": spec.bandwidth_scale,
    }
    for traffic in (AGENTS, IPERF3):
        load = spec, schedule, background_cores, traffic
        yield from side_by_side(
            {**_row(spec), **names, "traffic": traffic},
            lambda load=load: medians(_by_railbed(*load)),  # type: ignore[misc]
            lambda load=load: medians(_by_mininet(*load)),  # type: ignore[misc]
        )


def compared_startups(spec: FabricSpec, trials: int) -> Iterator[Row]:
    """Measure the start-up times of both testbeds."""
    yield from side_by_side(
        _row(spec),
        lambda: {"up_s": median(_railbed_up_s(spec) for _ in range(trials))},
        lambda: _mininet_up(spec, trials),
    )


def _row(spec: FabricSpec) -> Row:
    return {"gpus": spec.gpus, "proxies": ProxyKind.PROCESS.value}


@contextmanager
def _plain(spec: FabricSpec) -> Iterator[tuple[PlainFabric, RunLock]]:
    topology, run_id = build_topology(spec), f"bench-{os.getpid()}-{MININET}"
    with run_lock(run_id) as lock, plain_mininet(topology, lock, UP_DEADLINE_S, TCP) as fabric:
        yield fabric, lock


def _railbed_up_s(spec: FabricSpec) -> float:
    with bench_fabric(RAILBED, spec) as fabric:
        return fabric.up_s


def _mininet_up(spec: FabricSpec, trials: int) -> Figures:
    fabrics = [_mininet_trial(spec) for _ in range(trials)]
    return {
        "up_s": median(fabric.up_s for fabric in fabrics),
        "connected_s": median(fabric.connected_s for fabric in fabrics),
    }


def _mininet_trial(spec: FabricSpec) -> PlainFabric:
    with _plain(spec) as (fabric, _):
        return fabric


def _by_railbed(
    spec: FabricSpec, schedule: Schedule, background_cores: float, traffic: str
) -> list[Execution]:
    with bench_fabric(RAILBED, spec) as fabric:
        if traffic == AGENTS:
            return _by_agents(fabric, schedule, background_cores)
        process_ids = [fabric.bed.process_ids[gpu.name] for gpu in fabric.topology.gpus]
        return _by_iperf3(process_ids, spec, schedule, background_cores)


def _by_mininet(
    spec: FabricSpec, schedule: Schedule, background_cores: float, traffic: str
) -> list[Execution]:
    with _plain(spec) as (fabric, lock):
        if traffic == IPERF3:
            return _by_iperf3(fabric.process_ids, spec, schedule, background_cores)
        with (
            plain_agents(fabric.process_ids, AGENT, lock) as sockets,
            agent_client(sockets, lambda: None) as agents,
        ):
            return _by_agents(PlacedJob(agents, job_placement(spec)), schedule, background_cores)


def _by_agents(job: PlacedJob, schedule: Schedule, background_cores: float) -> list[Execution]:
    prediction = job.predict(schedule)
    repeats = job.repeats(schedule, prediction, WARMUP + REPEATS, check_data=False)
    executions = [
        _execution(repeats, prediction.completion_s, background_cores)
        for _ in range(WARMUP + REPEATS)
    ]
    return executions[WARMUP:]


def _execution(repeats: Iterator[Repeat], modeled_s: float, background_cores: float) -> Execution:
    meter = CpuMeter(background_cores)
    with meter.window():
        repeat = next(repeats)
    payload_bytes = sum(record.size_bytes for record in repeat.records)
    return Execution(repeat.completion_s, modeled_s, payload_bytes, meter.cpu_s)


def _by_iperf3(
    process_ids: Sequence[int], spec: FabricSpec, schedule: Schedule, background_cores: float
) -> list[Execution]:
    hosts = Hosts(process_ids, job_placement(spec).addresses())
    executions = [_rounds(hosts, spec, schedule, background_cores) for _ in range(WARMUP + REPEATS)]
    return executions[WARMUP:]


def _rounds(
    hosts: Hosts, spec: FabricSpec, schedule: Schedule, background_cores: float
) -> Execution:
    """Send the schedule's bytes of each pair, round by round, as a script around iperf3 does."""
    sizes, meter = bytes_by_pair(schedule), CpuMeter(background_cores)
    flows = [
        carry(hosts, {pair: sizes[pair] for pair in pairs}, meter.window)
        for pairs in rounds(sizes, spec.domains, spec.domain_size)
    ]
    return rounds_execution(flows, spec, meter.cpu_s)
