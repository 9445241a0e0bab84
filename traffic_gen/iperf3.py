"""Run iperf3 in the network namespaces of ranks, and parse its reports."""

import json
import os
import select
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from signal import Signals

from linux.network.counters import listens
from linux.network.namespaces import namespace_of
from linux.processes.lifetime import ANSWER_S, dies_with_us, end, wait_for
from model.errors import EmulationError
from model.workload.schedule import Steps

IPERF_PORT = 5201
# The slowest loads of the benchmarks take a minute.
LISTEN_DEADLINE_S, END_DEADLINE_S = 10, 600.0
PIECE_BYTES, MOST_SAID = 1 << 16, 200
Pair = tuple[int, int]
Process = subprocess.Popen[str]


@dataclass(frozen=True)
class Hosts:
    """Where iperf3 runs: for each rank the process that has its namespace; addresses by lane."""

    process_ids: Sequence[int]
    addresses: Mapping[tuple[int, int, int], str]


@dataclass(frozen=True)
class Flow:
    """Bytes of a pair as reported by client and server, and the processor time of both.

    A client ends when its socket has taken all bytes. Its server counts the bytes received by
    then, in the `duration_s` seconds since the connections were established.
    """

    pair: Pair
    sent_bytes: int
    received_bytes: int
    duration_s: float
    cpu_s: float = 0.0


def bytes_by_pair(schedule: Steps) -> dict[Pair, int]:
    """Return the total bytes that each rank sends to each other rank."""
    total: dict[Pair, int] = defaultdict(int)
    for transfer in schedule.transfers:
        total[transfer.source, transfer.destination] += transfer.size_bytes
    return dict(total)


def rounds(pairs: Iterable[Pair], domains: int, domain_size: int) -> list[list[Pair]]:
    """Group pairs into rounds in which each rank sends to one other and receives from one other.

    As in a pairwise exchange, all pairs of a round have the same offset in domains and in rails.
    """
    by_distance: dict[Pair, list[Pair]] = defaultdict(list)
    for source, destination in pairs:
        domain, rail = divmod(source, domain_size)
        to_domain, to_rail = divmod(destination, domain_size)
        distance = (to_domain - domain) % domains, (to_rail - rail) % domain_size
        by_distance[distance].append((source, destination))
    return list(by_distance.values())


def carry(
    hosts: Hosts,
    sizes: Mapping[Pair, int],
    meter: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> list[Flow]:
    """Run one round, all pairs at once; `meter` is entered after all servers listen."""
    with ExitStack() as running:
        servers = [running.enter_context(iperf3(hosts, to, "-s", "-1")) for _, to in sizes]
        for _, to in sizes:
            wait_until_listening(hosts.process_ids[to])
        with meter():
            clients = []
            for (of, to), size in sizes.items():
                options = "-c", hosts.addresses[of, to, 0], "-n", str(size), "-J"
                clients.append(running.enter_context(iperf3(hosts, of, *options)))
            reports = [_finish(client) for client in clients]
        flows = []
        ended = zip(sizes, servers, clients, reports, strict=True)
        for pair, server, client, (text, client_cpu_s) in ended:
            flow = parse(pair, text, ending(client, said_by(client)))
            flows.append(replace(flow, cpu_s=client_cpu_s + _finish(server)[1]))
        return flows


def wait_until_listening(process_id: int, port: int = IPERF_PORT) -> None:
    """Wait until a server listens in the namespace of a process."""
    what = f"start of the iperf3 server in the namespace of process {process_id}"
    wait_for(lambda: listens(process_id, port), what, LISTEN_DEADLINE_S)


def ending(process: Process, said: str | None) -> str:
    """Say how a process ended: its exit code or signal, and what it `said` on standard error."""
    status = process.returncode
    how = f"killed by {Signals(-status).name}" if status < 0 else f"exit code {status}"
    return f"{how}: {said.strip()[-MOST_SAID:]}" if said else how


def said_by(process: Process) -> str:
    """Return what a process that has ended wrote to standard error."""
    return process.stderr.read() if process.stderr else ""


def parse(pair: Pair, text: str, how: str) -> Flow:
    """Parse the report of a client; raise `EmulationError` with iperf3's own message.

    `how` is its ending, to be told if there is no report.
    """
    try:
        report = json.loads(text)
    except json.JSONDecodeError as error:
        what = f"iperf3 {pair}: report is not JSON: {text[-MOST_SAID:]!r}"
        raise EmulationError(f"{what} ({how})") from error
    if "error" in report:
        raise EmulationError(f"iperf3 {pair}: {report['error']}")
    sent, received = report["end"]["sum_sent"], report["end"]["sum_received"]
    return Flow(pair, sent["bytes"], received["bytes"], received["seconds"])


@contextmanager
def iperf3(
    hosts: Hosts, rank: int, *arguments: str, port: int = IPERF_PORT, files: Sequence[int] = ()
) -> Iterator[Process]:
    """Run iperf3 in a rank's namespace; the kernel kills it when this process ends.

    It inherits the descriptors `files`.
    """
    command = dies_with_us(["iperf3", "-p", str(port), *arguments])
    with namespace_of(hosts.process_ids[rank]):
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=tuple(files),
        )
    try:
        yield process
    finally:
        end(process)


def _finish(process: Process) -> tuple[str, float]:
    """Wait for a process to end; return its output and its processor time in seconds.

    Its status stays until it is read with its usage (waitid(2), wait4(2)). Raises `EmulationError`
    if it does not end.
    """
    text, unread = _output(process), os.WEXITED | os.WNOHANG | os.WNOWAIT
    wait_for(
        lambda: os.waitid(os.P_PID, process.pid, unread) is not None,
        "end of iperf3 after its report",
        ANSWER_S,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return text, usage.ru_utime + usage.ru_stime


def _output(process: Process) -> str:
    if process.stdout is None:
        return ""
    end_s, pieces, poll = time.monotonic() + END_DEADLINE_S, list[bytes](), select.poll()
    poll.register(process.stdout, select.POLLIN)
    while poll.poll(max(0.0, end_s - time.monotonic()) * 1000):
        if not (piece := os.read(process.stdout.fileno(), PIECE_BYTES)):
            return b"".join(pieces).decode()
        pieces.append(piece)
    raise EmulationError(f"iperf3: did not end within {END_DEADLINE_S:g} s")
