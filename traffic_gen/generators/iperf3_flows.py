"""Execute a schedule over iperf3, with a server and a client for each pair of ranks.

iperf3 sends the content of a file (`--file`), which is a pipe here, so all processes run and all
connections are open before the first step: a step begins when its bytes are written to the clients'
pipes, and ends when the kernel has counted them at the servers' connections (a server itself reads
whole blocks, from version 3.16 on). At most `WINDOW_BYTES` of a pair are in flight: a client whose
socket is full stops reading, and would never send the bytes that it has already read.
"""

import os
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from fcntl import F_SETPIPE_SZ, fcntl
from io import FileIO
from itertools import cycle, islice

import numpy as np

from linux.machine.processor import processes_s
from linux.machine.resources import provide_more_files
from linux.network.borrowed_sockets import accepted_connections, received_bytes
from linux.network.counters import packets_out_of_order, retransmitted_segments
from linux.processes.lifetime import LOOKED_AT_ONCE, require_not_stopped, wait_for
from model.arrays import Ints
from model.errors import EmulationError
from model.measurement.records import Repeat
from model.workload.schedule import Steps
from model.workload.transfers.columns import Transfer
from traffic_gen.agents.client import Incomplete
from traffic_gen.generators.progress import Progress
from traffic_gen.iperf3 import Flow as Report
from traffic_gen.iperf3 import (
    Hosts,
    Pair,
    Process,
    ending,
    iperf3,
    parse,
    said_by,
    wait_until_listening,
)

FIRST_PORT = 5201
# The socket's buffer is larger than the window; the kernel's default limit is 208 KiB.
WINDOW_BYTES, SOCKET_BUFFER = 128 * 1024, "200K"
ZEROS = memoryview(bytes(WINDOW_BYTES))
OPEN_DEADLINE_S, END_DEADLINE_S = 60, 20
GREETING = -1  # no number of a transfer
# A client opens a connection for control, then one for data, which begins with a cookie (iperf.h).
CONNECTIONS, COOKIE_BYTES = 2, 37
# A pause after each look at all flows: to wake for each packet would cost a core.
LOOK_EVERY_S = 0.0005
CHECK_EVERY_S = 0.1
# From version 3.16 on, a client without a timer is not woken by the end of its file.
WAKES_EVERY_S = "1"
# Milliseconds without a byte until a server gives up: a rank may wait long for its turn.
IDLE_TIMEOUT_MS = "3600000"
# Its pipe and connection, two pipes from either end, and what is open while they are handed over.
FILES_OF_A_FLOW = 8


@dataclass
class Flow:
    """The flow of a pair, from the pipe `source` to the server's end of the connection `sink`.

    Bytes count from its begin; `sent_ns` says when the last byte of a transfer was written.
    """

    pair: Pair
    client: Process
    source: FileIO
    server: Process
    sink: socket.socket
    asked_bytes: int = 0
    written_bytes: int = 0
    read_bytes: int = 0
    sent_ns: dict[int, int] = field(default_factory=dict)
    _unsent: deque[tuple[int, int]] = field(default_factory=deque)
    _open: deque[tuple[int, int]] = field(default_factory=deque)

    def ask(self, transfer_id: int, size_bytes: int) -> None:
        """Queue a transfer behind the earlier ones."""
        self.asked_bytes += size_bytes
        for queue in (self._unsent, self._open):
            queue.append((self.asked_bytes, transfer_id))
        self._feed()

    def _feed(self) -> None:
        """Write as much to the client as the window allows."""
        room = min(self.asked_bytes, self.read_bytes + WINDOW_BYTES) - self.written_bytes
        if room:
            self.written_bytes += self._write(ZEROS[:room])
        for transfer_id in _whole(self._unsent, self.written_bytes):
            self.sent_ns[transfer_id] = time.monotonic_ns()

    def _write(self, piece: memoryview) -> int:
        """Write to the client's pipe; raise `EmulationError` with its message if it has ended."""
        try:
            return self.source.write(piece)
        except BrokenPipeError:
            self.client.wait(END_DEADLINE_S)
            _require_client(self.pair, self.client)
            raise

    @property
    def is_open(self) -> bool:
        """Whether a transfer has not arrived."""
        return bool(self._open)

    def arrived(self) -> list[int]:
        """Return the transfers that have arrived since the last call."""
        self.read_bytes = max(0, received_bytes(self.sink) - COOKIE_BYTES)
        self._feed()
        return _whole(self._open, self.read_bytes)


def _whole(queue: deque[tuple[int, int]], count: int) -> list[int]:
    """Take the transfers that end within the first `count` bytes from a queue of (end, id)."""
    taken = list[int]()
    while queue and queue[0][0] <= count:
        taken.append(queue.popleft()[1])
    return taken


class Iperf3Flows:
    """The open flows of all pairs; `check` raises when a part of the testbed has died."""

    def __init__(self, flows: Sequence[Flow], hosts: Hosts, check: Callable[[], None]) -> None:
        self._flows = {flow.pair: flow for flow in flows}
        self._process_ids = [p.pid for flow in flows for p in (flow.client, flow.server)]
        self._hosts, self._check = hosts.process_ids, check
        self._in_turn = cycle(flows)
        self._next_check_s = 0.0

    def greet(self) -> None:
        """Send one byte over each connection, and wait until all have come: everything is open."""
        for flow in self._flows.values():
            flow.ask(GREETING, 1)
        missing, end_s = set(self._flows), time.monotonic() + OPEN_DEADLINE_S
        while missing:
            missing -= {flow.pair for flow, _ in self._arrivals()}
            if time.monotonic() > end_s:
                raise EmulationError(f"iperf3: no connection between ranks {sorted(missing)[:3]}")

    def run(self, schedule: Steps, number: int, at_most_s: float) -> Repeat:
        """Execute the schedule once; raise `Incomplete` if it takes longer than `at_most_s`."""
        progress, before = Progress(schedule.transfers), self._counters()
        cpu_s, start_ns = processes_s(self._process_ids), time.monotonic_ns()
        end_ns = start_ns + round(at_most_s * 1e9)
        self._start(progress, progress.first())
        while not progress.is_complete and time.monotonic_ns() < end_ns:
            for _, transfer_id in self._arrivals():
                self._start(progress, progress.arrived(transfer_id, time.monotonic_ns()))
        for flow in self._flows.values():
            progress.sent_ns.update(flow.sent_ns)
        cpu_s = processes_s(self._process_ids) - cpu_s
        counted: list[list[int]] = (self._counters() - before).tolist()
        sent, received, retransmitted, out_of_order = map(tuple, counted)
        repeat = replace(
            progress.repeat(number, start_ns),
            agents_cpu_s=cpu_s,
            retransmitted=retransmitted,
            out_of_order=out_of_order,
            sent_bytes=sent,
            received_bytes=received,
        )
        if not repeat.complete:
            raise Incomplete(EmulationError(f"iperf3: did not end within {at_most_s:g} s"), repeat)
        return repeat

    def _start(self, progress: Progress, transfers: Iterable[Transfer]) -> None:
        for transfer in transfers:
            progress.started_ns[transfer.id] = time.monotonic_ns()
            flow = self._flows[transfer.source, transfer.destination]
            flow.ask(transfer.id, transfer.size_bytes)

    def _arrivals(self) -> Iterator[tuple[Flow, int]]:
        """Wait for bytes; yield each transfer that has arrived, with its flow."""
        time.sleep(LOOK_EVERY_S)
        if time.monotonic() > self._next_check_s:
            self._check()
            self._require_running()
            self._next_check_s = time.monotonic() + CHECK_EVERY_S
        for flow in [flow for flow in self._flows.values() if flow.is_open]:
            for transfer_id in flow.arrived():
                yield flow, transfer_id

    def _require_running(self) -> None:
        """Raise `EmulationError` if one of the next clients or servers has ended or is stopped."""
        for flow in islice(self._in_turn, LOOKED_AT_ONCE):
            _require_client(flow.pair, flow.client)
            if flow.server.poll() is not None:
                how = ending(flow.server, said_by(flow.server))
                raise EmulationError(f"iperf3: the server of ranks {flow.pair} has ended ({how})")
            for role, process in (("client", flow.client), ("server", flow.server)):
                require_not_stopped(process.pid, f"iperf3: the {role} of ranks {flow.pair}")

    def _counters(self) -> Ints:
        """Return bytes sent and received, retransmits, and packets out of order of each rank.

        Only differences count: TCP's begin with the namespace.
        """
        sent, received = [0] * len(self._hosts), [0] * len(self._hosts)
        for (source, destination), flow in self._flows.items():
            sent[source] += flow.written_bytes
            received[destination] += flow.read_bytes
        again, disordered = retransmitted_segments(self._hosts), packets_out_of_order(self._hosts)
        return np.array([sent, received, again, disordered])


@contextmanager
def iperf3_flows(
    hosts: Hosts, pairs: Sequence[Pair], check: Callable[[], None]
) -> Iterator[Iperf3Flows]:
    """Start all servers and clients, and yield their flows once every connection is open.

    In the end, each client must have counted the bytes that went through its pipe and came.
    """
    provide_more_files(len(pairs) * FILES_OF_A_FLOW)
    ports = [FIRST_PORT + number for number in range(len(pairs))]
    with ExitStack() as running:
        servers = [_server(running, hosts, *ends) for ends in zip(pairs, ports, strict=True)]
        for (_, destination), port in zip(pairs, ports, strict=True):
            wait_until_listening(hosts.process_ids[destination], port)
        clients = [_client(running, hosts, *ends) for ends in zip(pairs, ports, strict=True)]
        flows = []
        for pair, client, server, port in zip(pairs, clients, servers, ports, strict=True):
            sink = _connection(pair, client[0], server, port)
            flows.append(Flow(pair, *client, server, running.enter_context(sink)))
        opened = Iperf3Flows(flows, hosts, check)
        opened.greet()
        yield opened
        for flow in flows:
            flow.source.close()
            flow.sink.close()
        for flow in flows:
            _require_counted(flow)


def _server(running: ExitStack, hosts: Hosts, pair: Pair, port: int) -> Process:
    options = ("-s", "-1", "-i", "0", "--rcv-timeout", IDLE_TIMEOUT_MS)
    return running.enter_context(iperf3(hosts, pair[1], *options, port=port))


def _connection(pair: Pair, client: Process, server: Process, port: int) -> socket.socket:
    """Wait for a pair's connections; return the server's end of the one for data.

    Raises `EmulationError`, with the client's message if that has ended.
    """
    accepted: list[socket.socket] = []

    def connected() -> bool:
        _require_client(pair, client)
        for connection in accepted:
            connection.close()
        # If the server has ended, the client tells.
        ended = server.poll() is not None
        accepted[:] = [] if ended else accepted_connections(server.pid, port)
        return len(accepted) == CONNECTIONS

    wait_for(connected, f"iperf3: connection of ranks {pair}", OPEN_DEADLINE_S)
    control, data = accepted
    control.close()
    return data


def _client(running: ExitStack, hosts: Hosts, pair: Pair, port: int) -> tuple[Process, FileIO]:
    """Start the client of a pair; return it and the pipe, of a window, into which its bytes go."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    fcntl(read_end, F_SETPIPE_SZ, WINDOW_BYTES)
    source = running.enter_context(FileIO(write_end, "w"))
    with FileIO(read_end, "r") as inside:
        sending = ("-c", hosts.addresses[*pair, 0], "-F", f"/dev/fd/{inside.fileno()}")
        options = (*sending, "-t", "0", "-i", WAKES_EVERY_S, "-N", "-w", SOCKET_BUFFER, "-J")
        started = iperf3(hosts, pair[0], *options, port=port, files=(inside.fileno(),))
        process = running.enter_context(started)
    return process, source


def _require_client(pair: Pair, client: Process) -> None:
    """Raise `EmulationError`, with its own message, if a client has ended."""
    if client.poll() is not None:
        _report_of(pair, client)
        raise EmulationError(f"iperf3: the client of ranks {pair} has ended")


def _report_of(pair: Pair, client: Process) -> Report:
    """Return what a client reports; raise `EmulationError` if it does not end, or has failed."""
    try:
        text, said = client.communicate(timeout=END_DEADLINE_S)
    except subprocess.TimeoutExpired:
        what = f"iperf3: a client did not end within {END_DEADLINE_S} s after its last byte"
        raise EmulationError(what) from None
    return parse(pair, text, ending(client, said))


def _require_counted(flow: Flow) -> None:
    """Raise `EmulationError` if client and kernel have not counted the bytes of the pipe.

    The server's report is not asked: from version 3.16 on, it has whole blocks alone.
    """
    report = _report_of(flow.pair, flow.client)
    if not flow.written_bytes == report.sent_bytes == flow.read_bytes:
        given = f"iperf3: ranks {flow.pair} were given {flow.written_bytes} bytes"
        counted = f"the client counted {report.sent_bytes}, the connection {flow.read_bytes}"
        raise EmulationError(f"{given}, {counted}")
