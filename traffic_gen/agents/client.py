"""Control all agents of a run: load their programs, start them together, collect records."""

import json
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, NoReturn

from model.errors import EmulationError
from model.fabric.addressing import is_by_nic
from model.fabric.job_grid import JobGrid
from model.fabric.spec import FabricSpec
from model.fabric.transport import Recovery, Transport
from model.measurement.records import QueuePairSample, Repeat, TransferRecord
from model.workload.schedule import Schedule, Steps
from model.workload.transfers.collective import Demand
from model.workload.transfers.columns import Transfer
from model.workload.transfers.lanes import ELEMENT_BYTES

LOAD_DEADLINE_S = 60
# Allowances for each connection and for each end of a transfer: one processor may have to open all
# connections, and to read all programs.
CONNECTION_S, TRANSFER_S = 0.002, 0.0001
# The same for each element of real data: to make it, and to compare it.
ELEMENT_S = 4e-7
# Agents that connect at the same time, each to one peer after another. When a thousand did, on one
# processor, a few connections did not open within two minutes.
CONNECTING_AT_ONCE = 64
# Delay of a start, a constant and a part per GPU: by then, all agents have read the start time.
START_DELAY_NS, START_DELAY_EACH_NS = 100_000_000, 2_000_000
CHECK_EVERY_S = 0.1
ABORT_DEADLINE_S = 3
ANSWER_S, REPORT_DEADLINE_S = 5, 60
# An agent that is stopped does not read; a program may be larger than the socket's buffer. Seconds
# in which it reads nothing.
SEND_DEADLINE_S = 5

Program = dict[str, Any]
Answer = dict[str, Any]
Answers = dict[int, Answer]
Addresses = Mapping[tuple[int, int, int], str]
"""By source and destination, which are ranks, and lane."""
# Callback(seconds since an execution's start); returns the seconds until its next call, which may
# come earlier. It may raise `Aborted`.
OnTick = Callable[[float], float]


def no_ticks(_since_start_s: float) -> float:
    """Do nothing, and ask for no further call: an empty fault timeline."""
    return inf


class Aborted(Exception):
    """The job gives up an execution: by an `OnTick` callback, or as a queue pair has broken."""


class Incomplete(EmulationError):
    """An execution ended early; `repeat` has the records until then, marked incomplete."""

    def __init__(self, cause: EmulationError, repeat: Repeat) -> None:
        super().__init__(str(cause))
        self.repeat = repeat


class AgentClient:
    """Client of the agents of all GPUs of a fabric, in the topology's order, which have the ranks.

    `check` raises `EmulationError` when a part of the testbed has died.
    """

    def __init__(
        self, sockets: Sequence[socket.socket], spec: FabricSpec, check: Callable[[], None]
    ) -> None:
        self._sockets, self._spec = list(sockets), spec
        self._unread = [bytearray() for _ in self._sockets]
        self._check = check
        self._gpus = list(range(len(self._sockets)))
        self._dead: set[int] = set()
        # Placements so far: queue pairs tell packets of earlier ones by it.
        self._generation = 0
        # Longest wait for `check` to name the cause when an agent is gone.
        self._patience_s = 1.0
        self._checking_s = 0.0

    def place(self, gpus: Sequence[int]) -> None:
        """Place each rank on a GPU, by number; close all connections of the previous placement."""
        self._generation += 1
        self._gpus = list(range(len(self._sockets)))
        everyone = [gpu for gpu in self._gpus if gpu not in self._dead]
        for gpu in everyone:
            self._send(gpu, {"do": "reset"})
        self._wait(everyone, {}, time.monotonic() + LOAD_DEADLINE_S, "close their connections")
        self._gpus = list(gpus)

    def lose(self, gpu: int) -> None:
        """Stop waiting for the agent of a GPU, which was killed on purpose."""
        self._dead.add(gpu)

    def load(self, schedule: Steps, addresses: Addresses, *, check_data: bool) -> None:
        """Send every agent its program, and wait until all connections are open.

        With `check_data`, the ranks of a collective send real numbers, and check its result. Other
        workloads have no result to check.
        """
        demand = schedule.demand if check_data and isinstance(schedule, Schedule) else None
        ranks, transfers = range(schedule.gpus), schedule.transfers
        self._load(programs_of(ranks, transfers, addresses, self._spec, demand))

    def _load(self, by_rank: Mapping[int, Program]) -> None:
        deadline = time.monotonic() + load_deadline_s(by_rank.values())
        self._checking_s = sum(map(checking_s, by_rank.values()))
        for program in by_rank.values():
            if "roce" in program:
                program["roce"]["generation"] = self._generation
        ranks = list(by_rank)
        for begin in range(0, len(ranks), CONNECTING_AT_ONCE):
            connecting = ranks[begin : begin + CONNECTING_AT_ONCE]
            for rank in connecting:
                self._send(rank, by_rank[rank])
            self._wait(connecting, {}, deadline, "connect to their peers")

    def run(
        self,
        schedule: Steps,
        number: int,
        at_most_s: float,
        on_tick: OnTick = no_ticks,
        not_before_ns: int = 0,
    ) -> Repeat:
        """Execute the loaded schedule once; raise `Incomplete` if a part dies or does not answer.

        `on_tick` runs the fault timeline meanwhile; when it raises `Aborted`, or a queue pair has
        broken, or `at_most_s` have passed, the agents stop, and what they left undone lasts until
        then. The execution starts at `not_before_ns` of CLOCK_MONOTONIC, or as soon as it can be.
        """
        ranks, transfers = range(schedule.gpus), schedule.transfers
        start_ns, report_s = self._start(ranks, at_most_s, not_before_ns), self._report_s(transfers)
        ended, reports, asked = Answers(), Answers(), False

        def elapsed_s() -> float:
            return (time.monotonic_ns() - start_ns) / 1e9

        def until(lasted_s: float) -> Repeat:
            repeat = self._repeat(transfers, ranks, number, start_ns, reports)
            longer_s = 0.0 if repeat.complete else lasted_s
            return replace(repeat, completion_s=max(repeat.completion_s, longer_s))

        def tick() -> float:
            if any(answer["broken"] for answer in ended.values()):
                raise Aborted
            return on_tick(elapsed_s())

        try:
            last_s = start_ns / 1e9 + at_most_s + ANSWER_S
            self._wait(ranks, ended, last_s, "finish a repeat", tick)
            asked, lasted_s = True, elapsed_s()
            self._report(ended, reports, report_s)
        except Aborted:
            lasted_s = elapsed_s()
            self._abort(ranks, ended, reports, report_s)
            # A later answer would be taken for that to the next request.
            if silent := [rank for rank in self._alive(ranks) if rank not in reports]:
                self._check()
                raise _silent("abort", silent) from None
        except EmulationError as error:
            # The cause of the failure is known: do not check the testbed any more.
            self._check, self._patience_s = (lambda: None), 0.0
            if not asked:
                self._abort(ranks, ended, reports, ABORT_DEADLINE_S)
            raise Incomplete(error, until(elapsed_s())) from error
        return until(lasted_s)

    def execute(
        self, transfers: Sequence[Transfer], addresses: Addresses, at_most_s: float
    ) -> Repeat:
        """Execute transfers outside collectives once; raise `EmulationError` if not all end."""
        ranks = sorted({rank for t in transfers for rank in (t.source, t.destination)})
        self._load(programs_of(ranks, transfers, addresses, self._spec))
        start_ns, ended, reports = self._start(ranks, at_most_s), Answers(), Answers()
        self._wait(ranks, ended, start_ns / 1e9 + at_most_s + ANSWER_S, "finish a repeat")
        self._report(ended, reports, self._report_s(transfers))
        repeat = self._repeat(transfers, ranks, 0, start_ns, reports)
        if not repeat.complete:
            raise EmulationError("\n".join((f"did not end within {at_most_s:g} s", *repeat.errors)))
        return repeat

    def _start(self, ranks: Iterable[int], at_most_s: float, not_before_ns: int = 0) -> int:
        soonest_ns = time.monotonic_ns() + START_DELAY_NS + len(self._gpus) * START_DELAY_EACH_NS
        start_ns = max(soonest_ns, not_before_ns)
        end_ns = start_ns + round(at_most_s * 1e9)
        for rank in ranks:
            self._send(rank, {"do": "run", "start_ns": start_ns, "end_ns": end_ns})
        return start_ns

    def _repeat(
        self,
        transfers: Iterable[Transfer],
        ranks: Sequence[int],
        number: int,
        start_ns: int,
        answers: Answers,
    ) -> Repeat:
        """Return an execution as its agents report it, in ns since the common start."""
        reports, lanes = answers.values(), self._spec.lanes
        records = tuple(_records(transfers, number, start_ns, answers))
        keys = "retransmitted", "out_of_order", "sent_bytes", "received_bytes", "waited_s"
        return Repeat(
            number=number,
            complete=len(answers) == len(ranks) and all(one["complete"] for one in reports),
            completion_s=max((record.arrived_ns for record in records), default=0) / 1e9,
            start_skew_s=max((one["begun_ns"] - start_ns for one in reports), default=0) / 1e9,
            agents_cpu_s=sum(one["cpu_s"] for one in reports),
            errors=tuple(
                f"rank {rank}: {error}" for rank, one in answers.items() for error in one["errors"]
            ),
            records=records,
            start_ns=start_ns,
            queue_pairs=tuple(
                QueuePairSample(
                    number, rank, peer // lanes, peer % lanes, pair, ns - start_ns, *state
                )
                for rank, one in answers.items()
                for peer, pair, (ns, *state) in one["queue_pairs"]
            ),
            **{key: tuple(answers.get(rank, {}).get(key, 0) for rank in ranks) for key in keys},
        )

    def _report_s(self, transfers: Sequence[Transfer]) -> float:
        """Seconds within which all agents must have reported an execution."""
        return REPORT_DEADLINE_S + 2 * TRANSFER_S * len(transfers) + self._checking_s

    def _report(self, ended: Answers, reports: Answers, at_most_s: float) -> None:
        """Fill `reports` with the records of ranks that have ended; dead agents have none."""
        ranks = self._alive(ended)
        for rank in ranks:
            self._send(rank, {"do": "report"})
        self._wait(ranks, reports, time.monotonic() + at_most_s, "report a repeat")

    def _abort(self, ranks: range, ended: Answers, reports: Answers, report_s: float) -> None:
        """Stop the agents that still answer, and fill `reports`; dead agents have none."""
        alive = self._alive(ranks)
        self._ask([rank for rank in alive if rank not in ended], "abort", ended, ABORT_DEADLINE_S)
        self._ask([rank for rank in alive if rank in ended], "report", reports, report_s)

    def _ask(self, ranks: Sequence[int], what: str, answers: Answers, at_most_s: float) -> None:
        """Send a request to agents; fill `answers` with the answers of those that answer."""
        deadline = time.monotonic() + at_most_s
        for rank in ranks:
            with suppress(EmulationError):
                self._send(rank, {"do": what})
        for rank in ranks:
            with suppress(EmulationError):
                self._wait([rank], answers, deadline, what)

    def _alive(self, ranks: Iterable[int]) -> list[int]:
        return [rank for rank in ranks if self._gpus[rank] not in self._dead]

    def _send(self, rank: int, request: Mapping[str, Any]) -> None:
        line = json.dumps(request).encode() + b"\n"
        sock, unsent = self._sockets[self._gpus[rank]], memoryview(line)
        try:
            while unsent:
                unsent = unsent[sock.send(unsent) :]
        except OSError as error:
            self._lost(rank, str(error))

    def _wait(
        self,
        ranks: Iterable[int],
        answers: Answers,
        deadline: float,
        what: str,
        next_tick: Callable[[], float] = lambda: inf,
    ) -> None:
        """Fill `answers` until all ranks have answered; check the testbed; raise at `deadline`."""
        poll, waiting = select.poll(), dict[int, int]()
        for rank in ranks:
            if rank not in answers:
                sock = self._sockets[self._gpus[rank]]
                waiting[sock.fileno()] = rank
                poll.register(sock, select.POLLIN)
        while waiting:
            for descriptor, _ in poll.poll(min(CHECK_EVERY_S, next_tick()) * 1000):
                rank = waiting[descriptor]
                answer = {} if self._gpus[rank] in self._dead else self._receive(rank)
                if answer is not None:
                    poll.unregister(descriptor)
                    del waiting[descriptor]
                if answer:
                    answers[rank] = answer
            self._check()
            if waiting and time.monotonic() > deadline:
                raise _silent(what, waiting.values())

    def _receive(self, rank: int) -> Answer | None:
        """Read from an agent; return its answer if the line is complete, else `None`."""
        gpu = self._gpus[rank]
        try:
            data = self._sockets[gpu].recv(1 << 20)
        except OSError as error:
            self._lost(rank, str(error))
        if not data:
            self._lost(rank, "process ended")
        self._unread[gpu] += data
        if not self._unread[gpu].endswith(b"\n"):
            return None
        line, self._unread[gpu] = self._unread[gpu], bytearray()
        answer: Answer = json.loads(line)
        return answer

    def _lost(self, rank: int, what: str) -> NoReturn:
        """Raise for a lost agent, after waiting briefly for `check` to name the cause."""
        deadline = time.monotonic() + self._patience_s
        while time.monotonic() < deadline:
            self._check()
            time.sleep(0.02)
        raise EmulationError(f"the agent of rank {rank} is lost: {what}")


def _silent(what: str, ranks: Iterable[int]) -> EmulationError:
    missing = ", ".join(map(str, sorted(ranks)))
    return EmulationError(f"agents did not {what}: no answer from ranks {missing}")


def checking_s(program: Program) -> float:
    """Seconds in which an agent makes and compares the real data of its program."""
    if (check := program.get("check")) is None:
        return 0.0
    chunks = *check["initial"], *(chunk for chunk, _ in check["expected"])
    elements: int = sum(check["elements"][chunk] for chunk in chunks)
    return ELEMENT_S * elements


def load_deadline_s(all_programs: Iterable[Program]) -> float:
    """Seconds within which all agents must have read their programs, and connected."""
    deadline_s = float(LOAD_DEADLINE_S)
    for program in all_programs:
        ends = len(program["sends"]) + len(program["receives"])
        deadline_s += CONNECTION_S * len(program["peers"]) + TRANSFER_S * ends
        deadline_s += checking_s(program)
    return deadline_s


@contextmanager
def agent_client(
    sockets: Sequence[Path], spec: FabricSpec, check: Callable[[], None]
) -> Iterator[AgentClient]:
    """Connect to the agents at `sockets`. The agents end when the context does."""
    with ExitStack() as stack:
        connected = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in sockets]
        for connection, place in zip(connected, sockets, strict=True):
            connection.settimeout(SEND_DEADLINE_S)
            try:
                connection.connect(str(place))
            except OSError as error:
                check()
                raise EmulationError(f"{place}: no answer from its agent ({error})") from error
        yield AgentClient(connected, spec, check)


def _records(
    transfers: Iterable[Transfer], number: int, start_ns: int, answers: Answers
) -> Iterator[TransferRecord]:
    """Yield every transfer's times at both ends, in ns since the common start; 0 if not reached."""
    sends = {s[0]: s for answer in answers.values() for s in answer["sends"]}
    arrivals = dict(r for answer in answers.values() for r in answer["receives"])
    for transfer in transfers:
        _, started_ns, sent_ns, confirmed_ns = sends.get(transfer.id, (0, 0, 0, 0))
        arrived_ns = sent_ns if transfer.is_compute else arrivals.get(transfer.id, 0)
        moments_ns = started_ns, sent_ns, arrived_ns, confirmed_ns
        yield TransferRecord.of(transfer, number, start_ns, moments_ns)


def programs_of(
    ranks: Iterable[int],
    transfers: Iterable[Transfer],
    addresses: Addresses,
    spec: FabricSpec,
    demand: Demand | None = None,
) -> dict[int, Program]:
    """Return a program per rank of a fabric: its sends in their turns, its receives, its peers.

    A peer is a rank by a lane, with the number `rank * lanes + lane`; beside its address, a program
    has the send buffer of the connection. A step of compute is a send of a rank to itself. To meet
    a `demand` with real data, programs also list the chunks that each transfer carries, and those
    that a rank must have in the end.
    """
    settings = {"window": spec.window, "lanes": spec.lanes}
    built: dict[int, Program] = {
        rank: {"do": "load", "rank": rank, "peers": {}, "sends": [], "receives": [], **settings}
        for rank in ranks
    }
    for transfer in transfers:
        source, destination = transfer.source, transfer.destination
        to, by = (rank * spec.lanes + transfer.lane for rank in (destination, source))
        chunks = () if demand is None else transfer.chunks
        number, size_bytes, ready = transfer.id, transfer.size_bytes, transfer.ready
        waits = transfer.after, ready is not None
        compute = transfer.compute_ns, transfer.processor, transfer.turn
        built[source]["sends"].append((number, to, size_bytes, *waits, chunks, *compute))
        if not transfer.is_compute:
            built[source]["peers"][to] = addresses[source, destination, transfer.lane]
            arrival = number, by, size_bytes, ready, chunks, transfer.reduce
            built[destination]["receives"].append(arrival)
    grid = spec.job_grid
    buffers = {by_nic: spec.send_buffer_bytes(by_nic=by_nic) for by_nic in (False, True)}
    for rank, program in built.items():
        if spec.transport is Transport.ROCE:
            program["roce"] = _queue_pairs(rank, program, addresses, spec)
        program["peers"] = {
            peer: (there, buffers[is_by_nic(there)]) for peer, there in program["peers"].items()
        }
        program["sends"].sort(key=lambda send, rank=rank: turn(rank, grid, send[1] // spec.lanes))
        if demand is not None:
            program["check"] = _data_check(demand, rank)
    return built


def _queue_pairs(rank: int, program: Program, addresses: Addresses, spec: FabricSpec) -> Program:
    """Move a rank's peers in other HB domains from its TCP connections to its queue pairs.

    A peer has its own address, that of this rank as it sees it, and this rank's number there.
    """
    roce, peers = spec.roce, program["peers"]

    def by_nic(others: Iterable[int]) -> dict[int, tuple[str, str, int]]:
        found = {}
        for other in others:
            peer, lane = divmod(other, spec.lanes)
            if is_by_nic(there := addresses[rank, peer, lane]):
                found[other] = there, addresses[peer, rank, lane], rank * spec.lanes + lane
        return found

    outgoing = by_nic(sorted(peers))
    program["peers"] = {other: peers[other] for other in peers if other not in outgoing}
    return {
        "outgoing": outgoing,
        "incoming": by_nic(sorted({entry[1] for entry in program["receives"]})),
        "transfers": spec.window,
        "mtu": roce.mtu,
        "queue_pairs": roce.queue_pairs,
        "ports": spec.entropies if spec.sprays else 1,
        "split": roce.split,
        "selective": roce.recovery is Recovery.SELECTIVE_REPEAT,
        "timeout_ns": spec.retransmission_timeout_s * 1e9,
        "retries": roce.retries,
        "congestion": roce.congestion.value,
        "window": roce.window,
        "link_bps": spec.emulated_port_bps,
        "slowdown": spec.bandwidth_scale,
    }


def turn(rank: int, grid: JobGrid, peer: int) -> tuple[int, int]:
    """Return the place of a peer among those that a rank of a grid sends to at once.

    Domains take turns, and within them rails, each counted from the rank's own: no two ranks begin
    with the same peer. NCCL orders the transfers of a group so (p2pSchedule, src/init.cc of 2.20).
    """
    (domain, rail), (other, other_rail) = grid.slots[rank], grid.slots[peer]
    return (other - domain) % grid.domains, (other_rail - rail) % grid.size


def _data_check(demand: Demand, rank: int) -> dict[str, Any]:
    """Return a rank's initial chunks, and the ranks whose sum each of its final chunks must be.

    `elements` has the length of every chunk.
    """
    held, wanted = demand.held.at(rank), demand.wanted.at(rank)
    return {
        "elements": (demand.chunk_bytes // ELEMENT_BYTES).tolist(),
        "initial": demand.held.chunks[held].tolist(),
        "expected": [
            (chunk, demand.holders.at(chunk).tolist())
            for chunk in demand.wanted.chunks[wanted].tolist()
        ],
    }
