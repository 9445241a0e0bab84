"""The same bytes between the same pairs by iperf3: what a user without agents would run."""

import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from linux.listening import listens
from linux.namespaces import namespace_of
from linux.processes import wait_for
from model.errors import EmulationError
from model.workload.schedule import Schedule

IPERF_PORT = 5201
LISTEN_DEADLINE_S = 10
Pair = tuple[int, int]


@dataclass(frozen=True)
class Hosts:
    """Where iperf3 runs: the process whose network namespace each rank has, and all addresses."""

    process_ids: Sequence[int]
    addresses: Mapping[Pair, str]


@dataclass(frozen=True)
class Flow:
    """What a client and its server say of a transfer, and the processor time of both.

    A client ends when its socket has taken all bytes. Its server counts those that have come by
    then, in `duration_s` seconds since the connections were there.
    """

    pair: Pair
    sent_bytes: int
    received_bytes: int
    duration_s: float
    cpu_s: float = 0.0


def bytes_by_pair(schedule: Schedule) -> dict[Pair, int]:
    """What each rank sends to each other one in all."""
    total: dict[Pair, int] = defaultdict(int)
    for transfer in schedule.transfers:
        total[transfer.source, transfer.destination] += transfer.size_bytes
    return dict(total)


def rounds(pairs: Iterable[Pair], domains: int, domain_size: int) -> list[list[Pair]]:
    """Pairs in rounds in which each rank sends to one other and receives from one other.

    As in a pairwise exchange, all send equally many domains and rails further.
    """
    by_distance: dict[Pair, list[Pair]] = defaultdict(list)
    for source, destination in pairs:
        (from_domain, from_rail), (to_domain, to_rail) = (
            divmod(rank, domain_size) for rank in (source, destination)
        )
        distance = (to_domain - from_domain) % domains, (to_rail - from_rail) % domain_size
        by_distance[distance].append((source, destination))
    return list(by_distance.values())


def no_meter() -> AbstractContextManager[Any]:
    """Nothing is measured while the clients run."""
    return nullcontext()


def carry(
    hosts: Hosts, sizes: Mapping[Pair, int], meter: Callable[[], AbstractContextManager[Any]]
) -> list[Flow]:
    """One round: all pairs at once. `meter` is entered while clients run; servers wait before."""
    with ExitStack() as running:
        servers = [running.enter_context(_iperf3(hosts, to, "-s", "-1")) for _, to in sizes]
        for _, to in sizes:
            _wait_until_listening(hosts.process_ids[to])
        with meter():
            clients = [
                running.enter_context(_iperf3(hosts, of, *_load(hosts.addresses[of, to], size)))
                for (of, to), size in sizes.items()
            ]
            reports = [_finish(client) for client in clients]
        flows = []
        for pair, server, (text, client_cpu_s) in zip(sizes, servers, reports, strict=True):
            flow = parse(pair, text)
            flows.append(replace(flow, cpu_s=client_cpu_s + _finish(server)[1]))
        return flows


def _load(address: str, size_bytes: int) -> list[str]:
    return ["-c", address, "-n", str(size_bytes), "-J"]


def _wait_until_listening(process_id: int) -> None:
    what = f"iperf3 of the host with process {process_id} listens"
    wait_for(lambda: listens(process_id, IPERF_PORT), what, LISTEN_DEADLINE_S)


def parse(pair: Pair, text: str) -> Flow:
    """A flow from the report of a client; raises `EmulationError` with iperf3's own words."""
    try:
        report = json.loads(text)
    except json.JSONDecodeError as error:
        raise EmulationError(f"iperf3 {pair}: no report but {text[-200:]!r}") from error
    if "error" in report:
        raise EmulationError(f"iperf3 {pair}: {report['error']}")
    sent, received = report["end"]["sum_sent"], report["end"]["sum_received"]
    return Flow(pair, sent["bytes"], received["bytes"], received["seconds"])


@contextmanager
def _iperf3(hosts: Hosts, rank: int, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """An iperf3 of a rank; the kernel kills it when this process ends."""
    command = ["setpriv", "--pdeathsig", "KILL", "--", "iperf3", "-p", str(IPERF_PORT), *arguments]
    with namespace_of(hosts.process_ids[rank]):
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _finish(process: subprocess.Popen[str]) -> tuple[str, float]:
    """What a process has printed until its end, and its processor time in seconds."""
    text = process.stdout.read() if process.stdout else ""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return text, usage.ru_utime + usage.ru_stime
