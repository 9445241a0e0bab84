"""The same fabric and load side by side: Railbed, and plain Mininet."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from model.errors import EmulationError
from model.fabric import FabricSpec
from model.schedule import Collective, Schedule
from model.topology import build_topology
from scenarios.benchmarks.rows import SIXTEEN, Row
from scenarios.experiment import experiment
from scenarios.iperf_comparison import Hosts, bytes_by_pair, carry, rounds
from scenarios.layout import job_layout
from scenarios.processor_time import CpuMeter, idle_share
from scenarios.side_by_side import Execution, medians, ratios, rounds_execution
from testbed.marks import marked_run
from testbed.plain_mininet import plain_mininet
from testbed.proxies import ProxyKind
from traffic_gen.collectives import build_schedule

RAILBED, MININET, RATIO = "railbed", "mininet", "railbed / mininet"
LOADS = (
    (Collective.ALL_GATHER, "hierarchical", 48_000_000),
    (Collective.ALL_TO_ALL, "two-step", 24_000_000),
)
REPEATS = 5
WARMUP = 1
IDLE_S = 3
# Domains of eight are the paper's; plain Mininet is given so many seconds to come up.
SIZES = {
    16: (SIXTEEN, 3, 120),
    64: (replace(SIXTEEN, domains=8, domain_size=8, spines=8), 3, 300),
    256: (replace(SIXTEEN, domains=32, domain_size=8, spines=32), 1, 900),
}


def mininet(_store: Path) -> Iterator[Row]:
    """Error, processor time and start-up of both, and the ratios."""
    for collective, algorithm, size_bytes in LOADS:
        yield from compared_loads(collective, algorithm, size_bytes)
    for gpus in SIZES:
        yield from compared_startups(gpus)


def compared_loads(collective: Collective, algorithm: str, size_bytes: int) -> Iterator[Row]:
    """A load on sixteen GPUs by both testbeds, each alone on the machine."""
    spec = SIXTEEN
    schedule = build_schedule(collective, algorithm, spec.domains, spec.domain_size, size_bytes)
    share = idle_share(IDLE_S)
    figures = {
        MININET: medians(_by_mininet(spec, schedule, share)),
        RAILBED: medians(_by_railbed(spec, schedule, share)),
    }
    names = {"collective": collective.value, "algorithm": algorithm}
    for fabric, found in figures.items():
        yield {**_row(spec, fabric), **names, **found}
    yield {**_row(spec, RATIO), **names, **ratios(figures[RAILBED], figures[MININET])}


def compared_startups(gpus: int) -> Iterator[Row]:
    """How long both take until ready; if plain Mininet fails, its row has the reason."""
    spec, trials, deadline_s = SIZES[gpus]
    ours = median(_railbed_up_s(spec) for _ in range(trials))
    yield {**_row(spec, RAILBED), "up_s": ours}
    try:
        theirs = median(_mininet_up_s(spec, deadline_s) for _ in range(trials))
    except EmulationError as error:
        yield {**_row(spec, MININET), "failed": str(error)}
        return
    yield {**_row(spec, MININET), "up_s": theirs}
    yield {**_row(spec, RATIO), **ratios({"up_s": ours}, {"up_s": theirs})}


def _row(spec: FabricSpec, fabric: str) -> Row:
    return {"gpus": spec.gpus, "proxies": ProxyKind.PROCESS.value, "fabric": fabric}


def _run_id(fabric: str) -> str:
    return f"bench-{os.getpid()}-{fabric}"


def _railbed_up_s(spec: FabricSpec) -> float:
    with (
        marked_run(_run_id(RAILBED)) as mark,
        experiment(spec, ProxyKind.PROCESS, mark) as fabric,
    ):
        return fabric.up_s


def _mininet_up_s(spec: FabricSpec, deadline_s: float) -> float:
    topology = build_topology(spec)
    with marked_run(_run_id(MININET)) as mark, plain_mininet(topology, mark, deadline_s) as fabric:
        return fabric.up_s


def _by_railbed(spec: FabricSpec, schedule: Schedule, share: float) -> list[Execution]:
    payload_bytes = sum(transfer.size_bytes for transfer in schedule.transfers)
    executions = []
    with (
        marked_run(_run_id(RAILBED)) as mark,
        experiment(spec, ProxyKind.PROCESS, mark) as fabric,
    ):
        prediction = fabric.predict(schedule)
        repeats = fabric.repeats(schedule, prediction, WARMUP + REPEATS, verify=False)
        for _ in range(WARMUP + REPEATS):
            meter = CpuMeter(share)
            with meter.window():
                repeat = next(repeats)
            executions.append(
                Execution(repeat.completion_s, prediction.completion_s, payload_bytes, meter.cpu_s)
            )
    return executions[WARMUP:]


def _by_mininet(spec: FabricSpec, schedule: Schedule, share: float) -> list[Execution]:
    topology = build_topology(spec)
    addresses = job_layout(spec).addresses()
    deadline_s = SIZES[spec.gpus][2]
    with marked_run(_run_id(MININET)) as mark, plain_mininet(topology, mark, deadline_s) as fabric:
        hosts = Hosts(fabric.process_ids, addresses)
        return [_plain_execution(hosts, spec, schedule, share) for _ in range(WARMUP + REPEATS)][
            WARMUP:
        ]


def _plain_execution(hosts: Hosts, spec: FabricSpec, schedule: Schedule, share: float) -> Execution:
    """The same bytes between the same pairs, round by round, as a script around iperf3 does it."""
    sizes, meter = bytes_by_pair(schedule), CpuMeter(share)
    flows = [
        carry(hosts, {pair: sizes[pair] for pair in pairs}, meter.window)
        for pairs in rounds(sizes, spec.domains, spec.domain_size)
    ]
    return rounds_execution(flows, spec, meter.cpu_s)
