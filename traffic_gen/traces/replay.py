"""The replay of a trace on the GPUs of a job: its transfers and their dependencies.

A send is a transfer, which ends when it is confirmed; a receive ends when the transfer has arrived
and the receive's dependencies have ended. A message is sent whether its receive has begun or not.
Between ranks on one GPU, data are handed over without a transfer.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from model.arrays import Ints
from model.fabric.job_grid import JobGrid
from model.workload.schedule import WorkSteps
from model.workload.trace import Deliveries, NodeKind, Operation, Trace
from model.workload.transfers.columns import NONE, Rows, Transfers, starts_of
from model.workload.transfers.proof import ScheduleError
from traffic_gen.traces.description import description, origin
from traffic_gen.traces.operations import Ends, Pattern, arranged, pattern, union
from traffic_gen.workloads.task import Task

# A step takes about half a kilobyte of memory, each dependency some bytes.
MOST_STEPS, MOST_WAITS = 2_000_000, 20_000_000
# A step of compute takes at most a day of emulated time.
MOST_NS = 86_400 * 10**9


@dataclass(frozen=True, eq=False, kw_only=True)
class Replayed(WorkSteps):
    """The steps of a trace on a job; raises `ScheduleError` unless they replay all of it.

    `size_bytes` is the sum of all transfers, `algorithm` the name of the trace.
    """

    task: str = "trace"
    deliveries: Deliveries

    def __post_init__(self) -> None:
        if not self.transfers.size_bytes.any():
            raise ScheduleError("no GPU sends to another GPU")
        super().__post_init__()
        self.deliveries.prove(self.transfers)


@dataclass(frozen=True, eq=False)
class Replay(Task):
    """A trace whose ranks are placed on the GPUs of a job, numbered domain after domain.

    `algorithm` is the name of the trace.
    """

    key = "trace"
    trace: Trace
    algorithm: str
    gpu_of: Ints
    grid: JobGrid

    @property
    def name(self) -> str:
        """The trace; where GPUs have several ranks, how many are on how many."""
        gpus = len(np.unique(self.gpu_of))
        folded = f"/{self.trace.ranks}-ranks-on-{gpus}" if gpus < self.trace.ranks else ""
        return super().name + folded

    @property
    def origin(self) -> str:
        """The trace: its format and size."""
        return origin(self.trace)

    @property
    def details(self) -> tuple[str, ...]:
        """What is replayed, and what is left out."""
        return tuple(description(self.trace, self.gpu_of, self.grid))

    @property
    def size_bytes(self) -> int:
        """The real bytes of all operations."""
        return self.trace.total_bytes

    @property
    def largest_bytes(self) -> float:
        """The most real bytes that one transfer may have."""
        return self.trace.largest_bytes

    def steps(self, size_scale: float = 1.0, time_dilation: float = 1.0) -> Replayed:
        """Build and prove the steps: bytes divided by a scale, times multiplied by a dilation.

        Raises `ScheduleError` for more steps than memory holds, or compute of more than a day.
        """
        if size_scale == time_dilation == 1:
            return self._whole
        return self._built(size_scale, time_dilation)

    @cached_property
    def _whole(self) -> Replayed:
        return self._built(1.0, 1.0)

    def _built(self, size_scale: float, time_dilation: float) -> Replayed:
        if (count := self.trace.most_steps) > MOST_STEPS:
            raise ScheduleError(f"must have at most {MOST_STEPS} steps, got {count}")
        emission = _Emission(self, size_scale, time_dilation)
        emission.emit_all()
        transfers = emission.transfers()
        return Replayed(
            algorithm=self.algorithm,
            gpus=self.grid.gpus,
            size_bytes=int(transfers.size_bytes.sum()),
            transfers=transfers,
            deliveries=emission.deliveries(),
        )


class _Emission:
    """Emits the transfers of all nodes, each after its dependencies.

    `ends` and `entries` are as in `Deliveries`.
    """

    def __init__(self, replay: Replay, size_scale: float, time_dilation: float) -> None:
        self.replay, self.trace, self.size_scale = replay, replay.trace, size_scale
        trace, gpu_of = replay.trace, replay.gpu_of
        self.kind: list[int] = trace.kind.tolist()
        self.rank: list[int] = trace.rank.tolist()
        self.gpu: list[int] = gpu_of[trace.rank].tolist()
        self.peer_gpu: list[int] = gpu_of[trace.peer].tolist()
        self.sent_by: list[int] = trace.sent_by.tolist()
        self.operation: list[int] = trace.operation.tolist()
        self.after = trace.after_lists
        sizes = np.maximum(1, np.rint(trace.size_bytes / size_scale))
        self.sizes: list[int] = sizes.astype(np.int64).tolist()
        self.compute_ns = _compute_ns(trace, time_dilation)
        self.members: dict[int, list[int]] = defaultdict(list)
        self.ends: list[Ends] = [()] * len(trace)
        self.entries: list[Ends] = [()] * len(trace)
        self.count = 0
        # Number, source, destination, bytes and nanoseconds of compute of each step of a node.
        self.steps: list[tuple[int, int, int, int, int]] = []
        # Dependencies: of nodes' steps, and of the steps with which operations begin.
        self.later: list[int] = []
        self.earlier: list[int] = []
        self.placed: dict[Operation, tuple[list[int], Pattern, Ints]] = {}
        # The first step of each operation, and its GPUs, by pattern.
        self.operations: dict[Pattern, list[tuple[int, Ints]]] = defaultdict(list)

    def emit_all(self) -> None:
        """Emit all nodes; those of a collective operation follow each other."""
        left = MOST_WAITS
        for node in self.trace.order:
            self.ends[node] = waits = self._waits(node)
            left -= len(waits)
            if left < 0:
                raise ScheduleError(f"must have at most {MOST_WAITS} dependencies on transfers")
            self._emit_node(node, waits)

    def _waits(self, node: int) -> Ends:
        """Return the dependencies of a node's begin, or, for a receive, of its end."""
        after = self.after[node]
        waits = union([self.ends[earlier] for earlier in after]) if after else ()
        if self.kind[node] == NodeKind.RECEIVE:
            waits = union([waits, self.ends[self.sent_by[node]]])
        return waits

    def _emit_node(self, node: int, waits: Ends) -> None:
        """Emit a node's transfer or compute; with the last node of an operation, the operation."""
        if self.kind[node] == NodeKind.SEND and self.gpu[node] != self.peer_gpu[node]:
            self._emit(node, self.peer_gpu[node], self.sizes[node], 0, waits)
        elif self.compute_ns[node]:
            self._emit(node, self.gpu[node], 0, self.compute_ns[node], waits)
        elif (number := self.operation[node]) != NONE:
            operation, nodes = self.trace.operations[number], self.members[number]
            nodes.append(node)
            if len(nodes) == len(operation.ranks):
                self._collective(operation, nodes)

    def _emit(self, node: int, to: int, size_bytes: int, compute_ns: int, after: Ends) -> None:
        """Emit the transfer of a node, or its step of compute."""
        self.steps.append((self.count, self.gpu[node], to, size_bytes, compute_ns))
        self._wait(self.count, after)
        self.ends[node] = self.entries[node] = (self.count,)
        self.count += 1

    def _wait(self, later: int, earlier: Ends) -> None:
        self.later += [later] * len(earlier)
        self.earlier += earlier

    def _collective(self, operation: Operation, nodes: list[int]) -> None:
        """Emit a collective operation, with all of its nodes."""
        if len(nodes) == 1:
            return
        if operation not in self.placed:
            self.placed[operation] = self._place(operation)
        ranks, transfers, gpus = self.placed[operation]
        node_of = {self.rank[node]: node for node in nodes}
        placed = [node_of[rank] for rank in ranks]
        first, begins = self.count, [self.ends[node] for node in placed]
        for number, places in transfers.begins:
            self._wait(first + number, union([begins[place] for place in places]))
        for place, node in enumerate(placed):
            self.entries[node] = tuple([first + n for n in transfers.entries[place]])
            before = union([begins[other] for other in transfers.awaited[place]])
            self.ends[node] = before + tuple([first + n for n in transfers.ends[place]])
        self.operations[transfers].append((first, gpus))
        self.count += len(transfers)

    def _place(self, operation: Operation) -> tuple[list[int], Pattern, Ints]:
        """Return the ranks of an operation by their places, its pattern, and their GPUs."""
        ranks, grid = arranged(operation.ranks, self.replay.gpu_of, self.replay.grid)
        gpus = self.replay.gpu_of[ranks]
        _, same = np.unique(gpus, return_inverse=True)
        distinct = len(set(same.tolist())) == len(ranks)
        shared = tuple(range(len(ranks)) if distinct else same.tolist())
        size_bytes = max(1, round(operation.size_bytes / self.size_scale))
        return ranks, pattern(operation.collective, grid, size_bytes, shared), gpus

    def transfers(self) -> Transfers:
        """Return all transfers that were emitted."""
        columns = np.zeros((5, self.count), np.int64)
        source, destination, size_bytes, compute_ns, ready = columns
        ready[:] = NONE
        steps = np.array(self.steps, np.int64).reshape(len(self.steps), 5).T
        columns[:4, steps[0]] = steps[1:]
        for one, firsts, rows in self._copies():
            gpus = np.stack([gpus for _, gpus in self.operations[one]])
            source[rows], destination[rows] = gpus[:, one.source], gpus[:, one.destination]
            size_bytes[rows] = one.size_bytes
            ready[rows] = np.where(one.ready == NONE, NONE, firsts + one.ready)
        return Transfers(
            source=source,
            destination=destination,
            size_bytes=size_bytes,
            chunks=Rows(np.empty(0, np.int64), np.zeros(self.count + 1, np.int64)),
            after=self._after(),
            ready=ready,
            reduce=np.zeros(self.count, bool),
            compute_ns=compute_ns,
            lane=np.zeros(self.count, np.int64),
        )

    def _copies(self) -> Iterator[tuple[Pattern, Ints, Ints]]:
        """Yield each pattern, the first step of each of its operations, and all their steps."""
        for one, operations in self.operations.items():
            firsts = np.array([first for first, _ in operations])[:, None]
            yield one, firsts, firsts + np.arange(len(one))

    def _after(self) -> Rows:
        """Return the dependencies of all steps: earlier ones, then those within an operation."""
        outer = Rows.grouped(
            np.array(self.earlier, np.int64), np.array(self.later, np.int64), self.count
        )
        lengths = outer.lengths
        for one, _, rows in self._copies():
            lengths[rows] += one.after.lengths
        starts = starts_of(lengths)
        values = np.empty(starts[-1], np.int64)
        values[np.arange(len(outer.values)) + (starts - outer.starts)[outer.row]] = outer.values
        inner = starts[:-1] + outer.lengths
        for one, firsts, _ in self._copies():
            within = np.arange(len(one.after.values)) - one.after.starts[one.after.row]
            values[inner[firsts + one.after.row] + within] = firsts + one.after.values
        return Rows(values, starts)

    def deliveries(self) -> Deliveries:
        """Return the columns that prove that the transfers replay the trace."""
        return Deliveries(
            trace=self.trace,
            gpu_of=self.replay.gpu_of,
            size_bytes=np.array(self.sizes, np.int64),
            compute_ns=np.array(self.compute_ns, np.int64),
            entries=Rows.of(self.entries),
            ends=Rows.of(self.ends),
        )


def _compute_ns(trace: Trace, time_dilation: float) -> list[int]:
    """Return how long each node computes in emulated time, at most a day."""
    compute_ns = np.rint(trace.seconds * time_dilation * 1e9)
    if (compute_ns > MOST_NS).any():
        longest_s = compute_ns.max() / 1e9
        raise ScheduleError(f"must compute at most a day of emulated time, got {longest_s:.3g} s")
    durations: list[int] = compute_ns.astype(np.int64).tolist()
    return durations
