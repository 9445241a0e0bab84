"""All agents of a run, seen from outside: load programs, start them together, collect records."""

import json
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from model.errors import EmulationError
from model.measurement import Repeat, TransferRecord
from model.schedule import Schedule
from traffic_gen.program import Program, ping_pong, programs

LOAD_DEADLINE_S = 60
# All agents must have read the start time before it comes.
START_DELAY_NS = 100_000_000
CHECK_EVERY_S = 0.1
ABORT_DEADLINE_S = 3

Answer = dict[str, Any]
Answers = dict[int, Answer]


class Incomplete(EmulationError):
    """A run ended early. `repeat` keeps what was recorded until then, marked incomplete."""

    def __init__(self, cause: EmulationError, repeat: Repeat) -> None:
        super().__init__(str(cause))
        self.repeat = repeat


class Fleet:
    """The agents by rank. `check` raises `EmulationError` when a part of the testbed has died."""

    def __init__(self, sockets: Mapping[int, socket.socket], check: Callable[[], None]) -> None:
        self._sockets = dict(sockets)
        self._unread = dict.fromkeys(self._sockets, b"")
        self._check = check
        # How long the cause is looked for when an agent is gone.
        self._patience_s = 1.0
        # Called when all agents have been told to start; faults are injected from here.
        self.on_started: Callable[[], None] = lambda: None

    def load(
        self, schedule: Schedule, addresses: Mapping[tuple[int, int], str], *, verify: bool
    ) -> None:
        """Give every agent its part, and have all connections opened."""
        self._load(dict(enumerate(programs(schedule, addresses, verify=verify))))

    def _load(self, by_rank: Mapping[int, Program]) -> None:
        for rank, program in by_rank.items():
            self._send(rank, program)
        self._answers(by_rank, time.monotonic() + LOAD_DEADLINE_S, "connect to each other")

    def run(self, schedule: Schedule, number: int, at_most_s: float) -> Repeat:
        """Execute the loaded schedule once; raises `Incomplete` if a part of the testbed dies."""
        try:
            start_ns, answers = self._run(range(schedule.gpus), at_most_s)
        except _Interrupted as interrupted:
            answers = self._abort(schedule, interrupted.answers)
            repeat = _repeat(schedule, number, interrupted.start_ns, answers)
            raise Incomplete(interrupted.cause, repeat) from interrupted.cause
        return _repeat(schedule, number, start_ns, answers)

    def one_way_latency_s(
        self, rank_a: int, rank_b: int, addresses: tuple[str, str], rounds: int = 20
    ) -> list[float]:
        """Seconds that eight bytes take between two ranks, for each of a number of exchanges."""
        pair = ping_pong(rank_a, rank_b, addresses, rounds)
        self._load(dict(zip((rank_a, rank_b), pair, strict=True)))
        _, answers = self._run((rank_a, rank_b), at_most_s=10)
        sends = {s[0]: s for answer in answers.values() for s in answer["sends"]}
        arrivals = dict(r for answer in answers.values() for r in answer["receives"])
        return [(arrivals[number] - send[1]) / 1e9 for number, send in sends.items()]

    def _run(self, ranks: Iterable[int], at_most_s: float) -> tuple[int, Answers]:
        start_ns = time.monotonic_ns() + START_DELAY_NS
        end_ns = start_ns + round(at_most_s * 1e9)
        ranks = tuple(ranks)
        for rank in ranks:
            self._send(rank, {"do": "run", "start_ns": start_ns, "end_ns": end_ns})
        answers: Answers = {}
        self.on_started()
        try:
            self._collect(ranks, answers, end_ns / 1e9 + 5, "finish a repeat")
        except EmulationError as error:
            raise _Interrupted(error, start_ns, answers) from error
        return start_ns, answers

    def _abort(self, schedule: Schedule, answers: Answers) -> Answers:
        """Have those that still answer stop, and keep what they have.

        The dead have no records, and the cause is known: nobody is looked after any more.
        """
        self._check, self._patience_s = (lambda: None), 0.0
        missing = [rank for rank in range(schedule.gpus) if rank not in answers]
        deadline = time.monotonic() + ABORT_DEADLINE_S
        for rank in missing:
            with suppress(EmulationError):
                self._send(rank, {"do": "abort"})
        for rank in missing:
            with suppress(EmulationError):
                self._collect([rank], answers, deadline, "stop")
        return answers

    def _send(self, rank: int, request: Mapping[str, Any]) -> None:
        try:
            self._sockets[rank].sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            self._lost(rank, str(error))

    def _answers(self, ranks: Iterable[int], deadline: float, what: str) -> Answers:
        answers: Answers = {}
        self._collect(ranks, answers, deadline, what)
        return answers

    def _collect(self, ranks: Iterable[int], answers: Answers, deadline: float, what: str) -> None:
        """Fill `answers` until every rank has answered; look after the testbed meanwhile."""
        poll = select.poll()
        waiting = {self._sockets[rank].fileno(): rank for rank in ranks if rank not in answers}
        for descriptor in waiting:
            poll.register(descriptor, select.POLLIN)
        while waiting:
            for descriptor, _ in poll.poll(CHECK_EVERY_S * 1000):
                answer = self._receive(waiting[descriptor])
                if answer is not None:
                    answers[waiting.pop(descriptor)] = answer
                    poll.unregister(descriptor)
            self._check()
            if waiting and time.monotonic() > deadline:
                silent = ", ".join(str(rank) for rank in sorted(waiting.values()))
                raise EmulationError(f"agents did not {what} in time; silent: ranks {silent}")

    def _receive(self, rank: int) -> Answer | None:
        """Read what is there; an answer once its line is whole."""
        try:
            data = self._sockets[rank].recv(1 << 20)
        except OSError as error:
            self._lost(rank, str(error))
        if not data:
            self._lost(rank, "it ended")
        self._unread[rank] += data
        if not self._unread[rank].endswith(b"\n"):
            return None
        line, self._unread[rank] = self._unread[rank], b""
        answer: Answer = json.loads(line)
        return answer

    def _lost(self, rank: int, what: str) -> NoReturn:
        """An agent is gone: what died has the better story, if it can be found."""
        deadline = time.monotonic() + self._patience_s
        while time.monotonic() < deadline:
            self._check()
            time.sleep(0.02)
        raise EmulationError(f"the agent of rank {rank} closed its socket: {what}")


class _Interrupted(Exception):
    """Something died while a repeat was under way."""

    def __init__(self, cause: EmulationError, start_ns: int, answers: Answers) -> None:
        super().__init__(str(cause))
        self.cause, self.start_ns, self.answers = cause, start_ns, answers


@contextmanager
def fleet(sockets: Sequence[Path], check: Callable[[], None]) -> Iterator[Fleet]:
    """Connect to the agents behind `sockets`, in rank order. They end when the context does."""
    connected: dict[int, socket.socket] = {}
    try:
        for rank, place in enumerate(sockets):
            connected[rank] = socket.socket(socket.AF_UNIX)
            connected[rank].connect(str(place))
        yield Fleet(connected, check)
    finally:
        for connection in connected.values():
            connection.close()


def _repeat(schedule: Schedule, number: int, start_ns: int, answers: Answers) -> Repeat:
    records = tuple(_records(schedule, number, start_ns, answers))
    values = answers.values()
    return Repeat(
        number=number,
        complete=len(answers) == schedule.gpus and all(a["complete"] for a in values),
        completion_s=max((record.arrived_ns for record in records), default=0) / 1e9,
        start_skew_s=max((a["begun_ns"] - start_ns for a in values), default=0) / 1e9,
        agents_cpu_s=sum(a["cpu_s"] for a in values),
        retransmits=sum(a["retransmits"] for a in values),
        errors=tuple(
            f"rank {rank}: {error}" for rank, a in answers.items() for error in a["errors"]
        ),
        records=records,
    )


def _records(
    schedule: Schedule, number: int, start_ns: int, answers: Answers
) -> Iterator[TransferRecord]:
    """Both ends' times of every transfer, from the common start on."""
    sends = {s[0]: s[1:] for answer in answers.values() for s in answer["sends"]}
    arrivals = dict(r for answer in answers.values() for r in answer["receives"])
    for transfer in schedule.transfers:
        times = (*sends.get(transfer.id, (0, 0, 0)), arrivals.get(transfer.id, 0))
        started, sent, confirmed, arrived = (max(0, t - start_ns) if t else 0 for t in times)
        yield TransferRecord(
            repeat=number,
            transfer=transfer.id,
            source=transfer.source,
            destination=transfer.destination,
            size_bytes=transfer.size_bytes,
            started_ns=started,
            sent_ns=sent,
            arrived_ns=arrived,
            confirmed_ns=confirmed,
        )
