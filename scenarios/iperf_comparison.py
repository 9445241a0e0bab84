"""Processor time of the agents against iperf3's, for the same bytes on the same links."""

import os
import subprocess
from collections import defaultdict
from collections.abc import Iterable

from model.errors import EmulationError
from model.schedule import Schedule
from scenarios.experiment import Experiment
from testbed.namespace import namespace_of
from testbed.processes import wait_for

IPERF_PORT = 5201
Pair = tuple[int, int]


def bytes_by_pair(schedule: Schedule) -> dict[Pair, int]:
    """What each rank sends to each other one in all."""
    total: dict[Pair, int] = defaultdict(int)
    for transfer in schedule.transfers:
        total[transfer.source, transfer.destination] += transfer.size_bytes
    return dict(total)


def rounds(pairs: Iterable[Pair], gpus: int) -> list[list[Pair]]:
    """Pairs in rounds in which each rank sends to one other and receives from one other."""
    by_distance: dict[int, list[Pair]] = defaultdict(list)
    for source, destination in pairs:
        by_distance[(destination - source) % gpus].append((source, destination))
    return list(by_distance.values())


def iperf3_cpu_s(fabric: Experiment, schedule: Schedule) -> float:
    """Processor time of iperf3 clients and servers that carry the schedule's bytes."""
    sizes = bytes_by_pair(schedule)
    return sum(
        _round_cpu_s(fabric, {pair: sizes[pair] for pair in pairs})
        for pairs in rounds(sizes, schedule.gpus)
    )


def _round_cpu_s(fabric: Experiment, sizes: dict[Pair, int]) -> float:
    servers = [_start(fabric, pair[1], "-s", "-1") for pair in sizes]
    for pair in sizes:
        wait_for(lambda to=pair[1]: _listens(fabric, to), "iperf3 listens", 10)  # type: ignore[misc]
    addresses = fabric.layout.addresses()
    clients = [
        _start(fabric, pair[0], "-c", addresses[pair], "-n", str(size))
        for pair, size in sizes.items()
    ]
    return sum(_cpu_s(process) for process in clients + servers)


def _start(fabric: Experiment, rank: int, *arguments: str) -> subprocess.Popen[bytes]:
    proxy = fabric.bed.proxies[fabric.topology.gpus[rank].name]
    with namespace_of(proxy.process_id):
        return subprocess.Popen(
            ["iperf3", *arguments, "-p", str(IPERF_PORT)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def _listens(fabric: Experiment, rank: int) -> bool:
    """Whether a server's port is open, by the kernel's table (proc(5), /proc/net/tcp)."""
    proxy = fabric.bed.proxies[fabric.topology.gpus[rank].name]
    tables = ("tcp", "tcp6")
    state = f":{IPERF_PORT:04X} "
    for table in tables:
        with open(f"/proc/{proxy.process_id}/net/{table}") as lines:
            if any(state in line and " 0A " in line for line in lines):
                return True
    return False


def _cpu_s(process: subprocess.Popen[bytes]) -> float:
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise EmulationError(f"iperf3 failed with exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime
