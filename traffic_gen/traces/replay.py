"""The replay of a trace on the GPUs of a job: its transfers and their dependencies.

A send is a transfer, which ends when it is confirmed; a receive ends when the transfer has arrived
and the receive's dependencies have ended. A message is sent whether its receive has begun or not.
Between ranks on one GPU, data are handed over without a transfer.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from model.arrays import Ints
from model.job.communicators import Shape
from model.workload.schedule import WorkSteps
from model.workload.trace import Deliveries, NodeKind, Operation, Trace
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import NONE, Rows, Transfer, Transfers
from model.workload.transfers.proof import ScheduleError
from traffic_gen.traces.description import description, origin
from traffic_gen.workloads.sized_collective import SizedCollective
from traffic_gen.workloads.task import Task

# A step takes about half a kilobyte of memory, each dependency some bytes.
MOST_STEPS, MOST_WAITS = 2_000_000, 20_000_000
# A step of compute takes at most a day of emulated time.
MOST_NS = 86_400 * 10**9
# Numbers of transfers that a GPU has sent or received.
Ends = tuple[int, ...]
# A trace names no algorithm. These are for any number of ranks.
ALGORITHM_OF = {
    Collective.ALL_REDUCE: "ring",
    Collective.ALL_GATHER: "ring",
    Collective.REDUCE_SCATTER: "ring",
    Collective.ALL_TO_ALL: "direct",
    Collective.BROADCAST: "ring",
}


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
    gpus: int
    domain_size: int

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
        return tuple(description(self.trace, self.gpu_of, self.domain_size))

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
        if (count := self.trace.most_steps) > MOST_STEPS:
            raise ScheduleError(f"must have at most {MOST_STEPS} steps, got {count}")
        emission = _Emission(self, size_scale, time_dilation)
        emission.emit_all()
        transfers = emission.transfers()
        return Replayed(
            algorithm=self.algorithm,
            gpus=self.gpus,
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
        self.gpu: list[int] = gpu_of[trace.rank].tolist()
        self.peer_gpu: list[int] = gpu_of[trace.peer].tolist()
        self.sent_by: list[int] = trace.sent_by.tolist()
        self.operation: list[int] = trace.operation.tolist()
        sizes = np.maximum(1, np.rint(trace.size_bytes / size_scale))
        self.sizes: list[int] = sizes.astype(np.int64).tolist()
        self.compute_ns = _compute_ns(trace, time_dilation)
        self.members: dict[int, list[int]] = defaultdict(list)
        self.ends: list[Ends] = [()] * len(trace)
        self.entries: list[Ends] = [()] * len(trace)
        # Source, destination, bytes, rendezvous and nanoseconds of compute of each transfer.
        self.steps: list[tuple[int, int, int, int, int]] = []
        self.after: list[Ends] = []

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
        waits = union([self.ends[earlier] for earlier in self.trace.after_lists[node]])
        if self.kind[node] == NodeKind.RECEIVE:
            waits = union([waits, self.ends[self.sent_by[node]]])
        return waits

    def _emit_node(self, node: int, waits: Ends) -> None:
        """Emit a node's transfer or compute; with the last node of an operation, the operation."""
        gpu, peer = self.gpu[node], self.peer_gpu[node]
        if self.kind[node] == NodeKind.SEND and gpu != peer:
            number = self.emit(gpu, peer, self.sizes[node], waits)
            self.ends[node] = self.entries[node] = (number,)
        elif self.compute_ns[node]:
            number = self.emit(gpu, gpu, 0, waits, compute_ns=self.compute_ns[node])
            self.ends[node] = self.entries[node] = (number,)
        elif (number := self.operation[node]) != NONE:
            operation, nodes = self.trace.operations[number], self.members[number]
            nodes.append(node)
            if len(nodes) == len(operation.ranks):
                self._collective(operation, nodes)

    def emit(
        self,
        source: int,
        to: int,
        size_bytes: int,
        after: Ends,
        ready: int = NONE,
        compute_ns: int = 0,
    ) -> int:
        """Emit a transfer, or a step of compute of a GPU; return its number."""
        self.steps.append((source, to, size_bytes, ready, compute_ns))
        self.after.append(after)
        return len(self.steps) - 1

    def _collective(self, operation: Operation, nodes: list[int]) -> None:
        """Emit a collective operation, with all of its nodes."""
        if len(nodes) == 1:
            return
        node_of = dict(zip(self.trace.rank[nodes].tolist(), nodes, strict=True))
        ranks, grid = arranged(operation.ranks, self.replay.gpu_of, self.replay.domain_size)
        size_bytes = max(1, round(operation.size_bytes / self.size_scale))
        part = _Part(self, [node_of[rank] for rank in ranks])
        part.emit_all(expansion(operation.collective, grid, size_bytes))

    def transfers(self) -> Transfers:
        """Return all transfers that were emitted."""
        count = len(self.steps)
        columns = np.array(self.steps, np.int64).reshape(count, 5).T.copy()
        source, destination, size_bytes, ready, compute_ns = columns
        return Transfers(
            source=source,
            destination=destination,
            size_bytes=size_bytes,
            chunks=Rows(np.empty(0, np.int64), np.zeros(count + 1, np.int64)),
            after=Rows.of(self.after),
            ready=ready,
            reduce=np.zeros(count, bool),
            compute_ns=compute_ns,
        )

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


class _Part:
    """One collective operation, between places that have a node each.

    `done` has the end of each of its transfers, as both GPUs see it; a transfer within a GPU ends
    with its dependencies. `carried` says which transfers are between GPUs.
    """

    def __init__(self, emission: _Emission, nodes: list[int]) -> None:
        self.emission, self.nodes = emission, nodes
        self.begins = [emission.ends[node] for node in nodes]
        self.done: list[Ends] = []
        self.carried: list[bool] = []
        self.entries: list[Ends] = [()] * len(nodes)
        # The ends that each place has seen, and those that it has waited for before it sent.
        self.seen: list[set[int]] = [set() for _ in nodes]
        self.awaited: list[set[int]] = [set() for _ in nodes]

    def emit_all(self, transfers: Sequence[Transfer]) -> None:
        """Emit the transfers, and set the entries and the end of each node."""
        for transfer in transfers:
            own = any(
                self.carried[e] and transfers[e].source == transfer.source for e in transfer.after
            )
            self._emit(transfer, begins=not own)
        for place, node in enumerate(self.nodes):
            last = tuple(sorted(self.seen[place] - self.awaited[place]))
            self.emission.entries[node] = self.entries[place]
            self.emission.ends[node] = (
                last if self.entries[place] else union([self.begins[place], last])
            )

    def _emit(self, transfer: Transfer, *, begins: bool) -> None:
        """Emit one transfer; one that `begins` its sender's part waits as the sender's node."""
        source, to = transfer.source, transfer.destination
        waits = union([self.done[earlier] for earlier in transfer.after])
        waits = union([waits, self.begins[source]]) if begins else waits
        gpu, peer = (self.emission.gpu[self.nodes[place]] for place in (source, to))
        carried = gpu != peer
        if carried:
            ready = NONE
            if transfer.ready is not None and self.carried[transfer.ready]:
                (ready,) = self.done[transfer.ready]
            number = self.emission.emit(gpu, peer, transfer.size_bytes, waits, ready)
            self.awaited[source].update(waits)
            self.entries[source] += (number,) if begins else ()
        self.carried.append(carried)
        self.done.append((number,) if carried else waits)
        for place in (source, to):
            self.seen[place].update(self.done[-1])


def union(parts: Sequence[Ends]) -> Ends:
    """Return the numbers of all parts, in order."""
    filled = [part for part in parts if part]
    if not filled:
        return ()
    return filled[0] if len(filled) == 1 else tuple(sorted(set().union(*filled)))


@lru_cache(maxsize=32)
def expansion(collective: Collective, grid: Shape, size_bytes: int) -> tuple[Transfer, ...]:
    """Return the proved transfers of a collective operation between places of a grid."""
    whole = SizedCollective(collective, ALGORITHM_OF[collective], grid, size_bytes)
    return whole.steps().transfers.objects


def arranged(ranks: Sequence[int], gpu_of: Ints, domain_size: int) -> tuple[list[int], Shape]:
    """Return the ranks by their place on a grid, and the grid.

    Ranks that have a GPU each, on the same rails of some domains, are on the grid of these GPUs;
    rings then cross domains along rails. All others are in a row, in the order of the trace. The
    first of the ranks is at the first place.
    """
    domain, rail = np.divmod(gpu_of[list(ranks)], domain_size)
    domains, rails = np.unique(domain), np.unique(rail)
    distinct = len(np.unique(gpu_of[list(ranks)]))
    if not len(domains) * len(rails) == distinct == len(ranks):
        return list(ranks), (1, len(ranks))
    row = (np.searchsorted(domains, domain) - np.searchsorted(domains, domain[0])) % len(domains)
    column = (np.searchsorted(rails, rail) - np.searchsorted(rails, rail[0])) % len(rails)
    order = np.argsort(row * len(rails) + column)
    return [ranks[place] for place in order.tolist()], (len(domains), len(rails))
