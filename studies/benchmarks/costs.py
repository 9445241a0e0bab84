"""Benchmark what a fabric costs its machine: start-up, memory, processor time, the live view."""

import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from execution.cases.emulation import Experiment
from execution.live.feed import LiveFeed, live_feed
from linux.machine.processor import busy_s, processes_s
from linux.network.namespaces import namespace_of
from linux.processes.run_lock import run_processes
from model.fabric.shaping import wire_bytes
from model.fabric.spec import COMPARED, FabricSpec
from model.workload.schedule import Schedule
from model.workload.transfers.collective import Collective
from scenarios.planning.machine_profile import in_virtual_clock
from studies.benchmarks.fabrics import bench_fabric
from studies.benchmarks.rows import SIXTEEN, Row, sized
from testbed.nodes.gpu_proxies import ProxyKind
from traffic_gen.iperf3 import Hosts, Pair, bytes_by_pair, carry, rounds
from traffic_gen.workloads.sized_collective import SizedCollective

MIB = 2**20
# (domains, domain size), trials
Sizes = tuple[tuple[tuple[int, int], int], ...]
PROCESSES: Sizes = (((4, 4), 5), ((8, 8), 3), ((32, 8), 2))
CONTAINERS: Sizes = (((4, 4), 5), ((8, 8), 3))
GROWTH_SIZES = ((2, 2), (4, 4), (8, 4), (8, 8), (16, 8), (32, 8))
GROWTH_TRIALS, IPERF3_TRIALS, NIC_BUSY_S = 3, 3, 10
# Executions with and without a follower of the page, and seconds for which their NICs are busy.
FOLLOWED, EXECUTION_S, TIMEOUT_S = 6, 3, 20


def startup(_store: Path) -> Iterator[Row]:
    """Measure seconds from the first command to all rules confirmed, and of taking all down."""
    kinds = [(ProxyKind.PROCESS, PROCESSES)]
    if not in_virtual_clock():
        kinds.append((ProxyKind.CONTAINER, CONTAINERS))
    for proxies, sizes in kinds:
        for kind in COMPARED:
            for (domains, size), trials in sizes:
                yield _startup_row(replace(sized(domains, size), kind=kind), proxies, trials)


def _startup_row(spec: FabricSpec, proxies: ProxyKind, trials: int) -> Row:
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
    """Return seconds up and down; bytes of the largest proxy, and of the run and the kernel.

    This process does not count.
    """
    before = kernel_bytes()
    with bench_fabric(spec.kind, spec, proxies) as fabric:
        ids = {proxy.process_id for proxy in fabric.bed.proxies.values()}
        of_proxies = [proxy_bytes(process_id, proxies) for process_id in ids]
        of_run = {one for one, run_id in run_processes() if run_id == fabric.lock.run_id}
        of_others = map(_proportional_bytes, of_run - ids)
        spent = sum(of_proxies) + sum(of_others) + kernel_bytes() - before
        leaving_s = time.monotonic()
    return fabric.up_s, time.monotonic() - leaving_s, max(of_proxies), spent


def kernel_bytes() -> int:
    """Memory of the kernel itself: slab, kernel stacks, page tables and per-CPU data."""
    table = Path("/proc/meminfo").read_text()
    return sum(_field(table, name) for name in ("Slab", "KernelStack", "PageTables", "Percpu"))


def proxy_bytes(process_id: int, kind: ProxyKind) -> int:
    """Memory of a GPU proxy; a container's includes its parent process, which is the engine's."""
    if kind is ProxyKind.PROCESS:
        return _proportional_bytes(process_id)
    status = Path(f"/proc/{process_id}/status").read_text()
    parent = re.search(r"^PPid:\s+(\d+)$", status, re.MULTILINE)
    return _proportional_bytes(process_id) + (_proportional_bytes(int(parent[1])) if parent else 0)


def _proportional_bytes(process_id: int) -> int:
    """Memory of a process; shared pages count proportionally (proc(5), Pss)."""
    return _field(Path(f"/proc/{process_id}/smaps_rollup").read_text(), "Pss")


def _field(text: str, name: str) -> int:
    """Value of one field of a proc(5) table in bytes; 0 if it is absent."""
    value = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    return 1024 * int(value[1]) if value else 0


def growth(_store: Path) -> Iterator[Row]:
    """Measure start-up, memory, and processor time of a two-step all-to-all, for 4 to 256 GPUs."""
    for domains, size in GROWTH_SIZES:
        spec = sized(domains, size)
        measured = [up_and_down(spec, ProxyKind.PROCESS) for _ in range(GROWTH_TRIALS)]
        ups_s, _, _, spent = zip(*measured, strict=True)
        with bench_fabric("growth", spec) as fabric:
            cpu_s, gbytes = exchange_cost(fabric)
        yield {
            "gpus": spec.gpus,
            "proxies": ProxyKind.PROCESS.value,
            "up_s": median(ups_s),
            "up_s_per_gpu": median(ups_s) / spec.gpus,
            "machine_mib_per_gpu": median(spent) / spec.gpus / MIB,
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


def agents(_store: Path) -> Iterator[Row]:
    """Processor time of the agents and of iperf3, for the same bytes on the same links.

    The agents run already. So the start of iperf3's processes, measured with one byte for each
    pair, is shown apart, and the ratio leaves it out.
    """
    with bench_fabric("agents", SIXTEEN) as fabric:
        for collective, algorithm, size in (
            (Collective.ALL_GATHER, "hierarchical", 24_000_000),
            (Collective.ALL_TO_ALL, "two-step", 12_000_000),
        ):
            schedule = SizedCollective(collective, algorithm, (4, 4), size).steps()
            prediction = fabric.predict(schedule)
            repeats = list(fabric.repeats(schedule, prediction, 6, check_data=False))[1:]
            ours = median(repeat.agents_cpu_s for repeat in repeats)
            sizes = bytes_by_pair(schedule)
            theirs = median(iperf3_cpu_s(fabric, sizes) for _ in range(IPERF3_TRIALS))
            start = median(
                iperf3_cpu_s(fabric, dict.fromkeys(sizes, 1)) for _ in range(IPERF3_TRIALS)
            )
            yield {
                "gpus": SIXTEEN.gpus,
                "proxies": ProxyKind.PROCESS.value,
                "collective": collective.value,
                "algorithm": algorithm,
                "bytes": sum(transfer.size_bytes for transfer in schedule.transfers),
                "agents_cpu_s": ours,
                "iperf3_cpu_s": theirs,
                "iperf3_start_cpu_s": start,
                "agents_over_iperf3": ours / (theirs - start),
            }


def iperf3_cpu_s(fabric: Experiment, sizes: Mapping[Pair, int]) -> float:
    """Processor time of iperf3 clients and servers that carry these bytes, their start included."""
    spec = fabric.topology.spec
    process_ids = [fabric.bed.proxies[gpu.name].process_id for gpu in fabric.topology.gpus]
    hosts = Hosts(process_ids, fabric.placement.addresses())
    return sum(
        flow.cpu_s
        for pairs in rounds(sizes, spec.domains, spec.domain_size)
        for flow in carry(hosts, {pair: sizes[pair] for pair in pairs})
    )


def live(_store: Path) -> Iterator[Row]:
    """Updates a second and processor time of the page's server, and its effect on executions."""
    for spec in (SIXTEEN, sized(8, 8)):
        with live_feed() as feed, bench_fabric("live", spec) as fabric:
            feed.show(fabric)
            yield _live_row(spec, feed, fabric)
            feed.show(None)


def _live_row(spec: FabricSpec, feed: LiveFeed, fabric: Experiment) -> Row:
    """Execute in turn with and without a follower."""
    size = round(EXECUTION_S * spec.emulated_nic_bps / 8)
    schedule = SizedCollective(Collective.ALL_TO_ALL, "two-step", spec.job_shape, size).steps()
    prediction = fabric.predict(schedule)
    repeats = fabric.repeats(schedule, prediction, 2 * FOLLOWED + 1, check_data=False)
    next(repeats)  # a warm-up
    alone_s, followed_s, shares, rates = [], [], [], []
    for _ in range(FOLLOWED):
        alone_s.append(next(repeats).completion_s)
        begun_s, before_s = time.monotonic(), processes_s([feed.process_id])
        with _following(feed) as frames:
            followed_s.append(next(repeats).completion_s)
            elapsed_s = time.monotonic() - begun_s
            rates.append(len(frames) / elapsed_s)
            shares.append((processes_s([feed.process_id]) - before_s) / elapsed_s)
    return {
        "gpus": spec.gpus,
        "links": len(fabric.topology.links),
        "updates_per_s": median(rates),
        "server_share_of_a_core": median(shares),
        "alone_s": median(alone_s),
        "followed_s": median(followed_s),
        "followed_over_alone": median(followed_s) / median(alone_s),
    }


@contextmanager
def _following(feed: LiveFeed) -> Iterator[list[bytes]]:
    """Read the page's events as a browser does, in a thread; the yielded list gets its frames."""
    frames, has_ended = list[bytes](), threading.Event()
    thread = threading.Thread(target=_follow, args=(feed, frames, has_ended))
    thread.start()
    try:
        yield frames
    finally:
        has_ended.set()
        thread.join()


def _follow(feed: LiveFeed, frames: list[bytes], has_ended: threading.Event) -> None:
    """Read from the namespace of the server, until the end."""
    parts = urlsplit(feed.url)
    with closing(HTTPConnection(parts.netloc, timeout=TIMEOUT_S)) as connection:
        with namespace_of(feed.process_id):
            connection.request("GET", f"{parts.path}events")
        answer = connection.getresponse()
        while not has_ended.is_set() and (line := answer.readline()):
            if line == b"event: frame\n":
                frames.append(line)
