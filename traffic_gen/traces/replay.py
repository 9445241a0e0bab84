"""The replay of a trace on the GPUs of a job: its transfers and their dependencies.

A send is a transfer, which ends when it is confirmed; a receive ends when the transfer has arrived
and the receive's dependencies have ended. A message is sent whether its receive has begun or not.
Between ranks on one GPU, data are handed over without a transfer.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from model.arrays import Ints, distinct
from model.fabric.job_grid import JobGrid
from model.sentences import counted
from model.workload.schedule import WorkSteps
from model.workload.trace import MOST_STEPS, MOST_WAITS, Action, Deliveries, Operation, Trace
from model.workload.transfers.columns import NONE, Rows, Transfers, starts_of
from model.workload.transfers.lanes import Parts
from model.workload.transfers.proof import ScheduleError
from traffic_gen.traces.formats import htsim
from traffic_gen.traces.operations import SINGLE, Pattern, arranged, pattern, union
from traffic_gen.workloads.task import Task

# A step of compute takes at most a day of emulated time.
MOST_NS = 86_400 * 10**9


@dataclass(frozen=True, eq=False, kw_only=True)
class Replayed(WorkSteps):
    """The steps of a trace on a job; raises `ScheduleError` unless they replay all of it.

    `size_bytes` is the size of all sends and operations, `algorithm` the name of the trace.
    """

    task: str = "trace"
    deliveries: Deliveries

    def __post_init__(self) -> None:
        if not self.transfers.size_bytes.any():
            raise ScheduleError("no GPU sends to another GPU")
        super().__post_init__()
        self.deliveries.prove(self.transfers)

    def _of_parts(self, parts: Parts) -> dict[str, Any]:
        return {"deliveries": self.deliveries.of_parts(parts)}


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
        trace = self.trace
        size = f"{trace.ranks} ranks, {counted(len(trace), 'node')}, {trace.total_bytes} bytes"
        return f"of a trace: {trace.format}, {size}"

    @property
    def details(self) -> tuple[str, ...]:
        """What is replayed, and what is left out."""
        return tuple(_description(self.trace, self.gpu_of, self.grid))

    @property
    def left_out(self) -> tuple[str, ...]:
        """What is not replayed."""
        return self.trace.left_out

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
        is_whole = size_scale == time_dilation == 1
        return self._whole if is_whole else self._built(size_scale, time_dilation)

    @cached_property
    def _whole(self) -> Replayed:
        return self._built(1.0, 1.0)

    def _built(self, size_scale: float, time_dilation: float) -> Replayed:
        if (count := self.trace.most_steps) > MOST_STEPS:
            raise ScheduleError(f"must have at most {MOST_STEPS} steps, got {count}")
        emission = _Emission(self, size_scale, time_dilation)
        return Replayed(
            algorithm=self.algorithm,
            gpus=self.grid.gpus,
            size_bytes=self.scaled_bytes(size_scale),
            transfers=emission.transfers(),
            deliveries=Deliveries(
                trace=self.trace,
                gpu_of=self.gpu_of,
                size_bytes=emission.sizes,
                compute_ns=emission.compute_ns,
                entries=emission.entries,
                ends=emission.ends,
            ),
        )


def _description(trace: Trace, gpu_of: Ints, grid: JobGrid) -> Iterator[str]:
    """Yield ranks, groups, bytes by kind, and compute, as `check` says them; then what is left out.

    `gpu_of` has the GPU of each rank; GPUs are numbered domain after domain.
    """
    yield f"ranks: {trace.ranks} on {counted(len(np.unique(gpu_of)), 'GPU')}"
    groups = Counter(
        (len(group), _place(gpu_of[list(group)], grid, len(group) == trace.ranks))
        for group in {frozenset(one.ranks) for one in trace.operations}
    )
    if groups:
        listed = (
            f"{count} of {counted(size, 'rank')} ({place})"
            for (size, place), count in sorted(groups.items())
        )
        yield f"groups: {', '.join(listed)}"
    sizes = defaultdict[str, list[int]](list)
    for operation in trace.operations:
        sizes[operation.collective].append(operation.size_bytes)
    for collective, of_each in sorted(sizes.items()):
        yield f"{collective}: {counted(len(of_each), 'operation')}, {sum(of_each)} bytes"
    sends = np.flatnonzero(trace.kind == Action.SEND)
    if len(sends):
        within = int((gpu_of[trace.rank[sends]] == gpu_of[trace.peer[sends]]).sum())
        stay = f"; {within} within one GPU take no time" if within else ""
        yield f"sends: {len(sends)}, {sum(trace.size_bytes[sends].tolist())} bytes{stay}"
    computes = int((trace.seconds > 0).sum())
    if computes and trace.format == htsim.FORMAT:
        starts = f"{counted(computes, 'connection')} after the begin"
        yield f"starts: {starts}, up to {trace.seconds.max():.4g} s"
    elif computes:
        most_s = np.bincount(trace.rank, weights=trace.seconds).max()
        modeled = f"; {trace.modeled} by FLOPs and a roofline" if trace.modeled else ""
        yield f"compute: {counted(computes, 'node')}, up to {most_s:.4g} s a rank{modeled}"
    yield from (f"not replayed: {what}" for what in trace.left_out)


def _place(gpus: Ints, grid: JobGrid, is_all: bool) -> str:
    """Say where the GPUs of a group are."""
    domains, rails = grid.places[:, gpus]
    if is_all:
        return "all"
    if (gpus == gpus[0]).all():
        return "on one GPU"
    if (domains == domains[0]).all():
        return "in one HB domain"
    return "on one rail" if (rails == rails[0]).all() else "across domains and rails"


@dataclass(frozen=True, eq=False)
class _Copies:
    """All copies of one pattern: `nodes` has a row for each, with the node at each place."""

    pattern: Pattern
    nodes: Ints


class _Emission:
    """Emits the transfers of all nodes, numbered in order, each after its dependencies.

    `entries` and `ends` are as in `Deliveries`; `waits` has the steps that end before each node
    begins, or, for a receive, ends.
    """

    def __init__(self, replay: Replay, size_scale: float, time_dilation: float) -> None:
        self.replay, self.trace, self.size_scale = replay, replay.trace, size_scale
        trace, gpu_of = replay.trace, replay.gpu_of
        compute_ns = np.rint(trace.seconds * time_dilation * 1e9)
        if (compute_ns > MOST_NS).any():
            most_s = compute_ns.max() / 1e9
            raise ScheduleError(f"must compute at most a day of emulated time, got {most_s:.3g} s")
        self.gpu, self.peer_gpu = gpu_of[trace.rank], gpu_of[trace.peer]
        self.sizes = np.maximum(1, np.rint(trace.size_bytes / size_scale)).astype(np.int64)
        self.compute_ns = compute_ns.astype(np.int64)
        self.sends = (trace.kind == Action.SEND) & (self.gpu != self.peer_gpu)
        # Nodes that are one step; all others with steps are of operations.
        self.single = np.flatnonzero(self.sends | (self.compute_ns > 0))
        self.copies = [_Copies(SINGLE, self.single[:, None]), *self._operations()]
        self.order = np.array(trace.order, np.int64)
        self.first, self.count = self._numbered()
        self.entries = self._own([copies.pattern.entries for copies in self.copies])
        self.waits, self.ends = self._followed()

    def _operations(self) -> Iterator[_Copies]:
        """Yield the operations between several ranks, by pattern."""
        trace, place = self.trace, cache(self._place)
        found = defaultdict[Pattern, list[tuple[int, list[int]]]](list)
        for number, operation in enumerate(trace.operations):
            if len(operation.ranks) > 1:
                placed, one = place(operation)
                found[one].append((number, placed))
        keys = trace.operation * trace.ranks + trace.rank
        nodes = np.argsort(keys)
        keys = keys[nodes]
        for one, operations in found.items():
            of, ranks = map(np.array, zip(*operations, strict=True))
            yield _Copies(one, nodes[np.searchsorted(keys, of[:, None] * trace.ranks + ranks)])

    def _place(self, operation: Operation) -> tuple[list[int], Pattern]:
        """Return the ranks of an operation by their places, and its pattern."""
        ranks, grid = arranged(operation.ranks, self.replay.gpu_of, self.replay.grid)
        number = dict[int, int]()  # of each GPU, by its first place
        gpus = self.replay.gpu_of[ranks].tolist()
        shared = tuple(number.setdefault(gpu, len(number)) for gpu in gpus)
        size_bytes = max(1, round(operation.size_bytes / self.size_scale))
        return ranks, pattern(operation.collective, grid, size_bytes, shared)

    def _numbered(self) -> tuple[Ints, int]:
        """Return the first step of each node, or of its operation, and the number of all steps."""
        steps, first = np.zeros((2, len(self.trace)), np.int64)
        for copies in self.copies:
            steps[copies.nodes[:, 0]] = len(copies.pattern)
        starts = starts_of(steps[self.order])
        first[self.order] = starts[:-1]
        # The nodes of an operation follow each other: so do all of its steps.
        for copies in self.copies:
            first[copies.nodes] = first[copies.nodes[:, :1]]
        return first, int(starts[-1])

    def _own(self, of_places: Sequence[Rows]) -> Rows:
        """Return those steps of each node that its place in a pattern has."""
        nodes, steps = list[Ints](), list[Ints]()
        for copies, rows in zip(self.copies, of_places, strict=True):
            chosen = copies.nodes[:, rows.row]
            nodes.append(chosen.ravel())
            steps.append((self.first[chosen] + rows.values).ravel())
        return Rows.grouped(np.concatenate(steps), np.concatenate(nodes), len(self.trace))

    def _followed(self) -> tuple[Rows, Rows]:
        """Return what each node waits for, and its ends: some are those of nodes before it."""
        earlier, later = self.trace.dependencies()
        before = Rows.grouped(earlier, later, len(self.trace))
        # The nodes with no steps, not even of an operation: they end with what they wait for.
        stepless = np.ones(len(self.trace), bool)
        for copies in self.copies:
            stepless[copies.nodes] = False
        after, awaited = list(before.lists()), list(self._passed(before).lists())
        waits: list[tuple[int, ...]] = [()] * len(after)
        ends = list(self._own([copies.pattern.ends for copies in self.copies]).lists())
        alone, count = stepless.tolist(), 0
        for node in self.order.tolist():
            waits[node] = union([ends[one] for one in after[node]])
            count += len(waits[node])
            if count > MOST_WAITS:
                raise ScheduleError(f"must have at most {MOST_WAITS} dependencies on transfers")
            if alone[node]:
                ends[node] = waits[node]
            elif awaited[node]:
                ends[node] = union([ends[one] for one in awaited[node]]) + ends[node]
        return Rows.of(waits), Rows.of(ends)

    def _passed(self, before: Rows) -> Rows:
        """Return the nodes before others of its operation whose ends each node's end includes."""
        nodes, others = list[Ints](), list[Ints]()
        for copies in self.copies:
            awaited = copies.pattern.awaited
            nodes.append(copies.nodes[:, awaited.row].ravel())
            others.append(copies.nodes[:, awaited.values].ravel())
        passed = before.picked(np.concatenate(others))
        return Rows.grouped(passed.values, np.concatenate(nodes)[passed.row], len(self.trace))

    def transfers(self) -> Transfers:
        """Return all transfers that were emitted."""
        source, destination, size_bytes, compute_ns, ready = np.zeros((5, self.count), np.int64)
        processor, turn = self._turns()
        for copies in self.copies:
            one, firsts = copies.pattern, self.first[copies.nodes[:, :1]]
            rows = firsts + np.arange(len(one))
            gpus = self.gpu[copies.nodes]
            source[rows], destination[rows] = gpus[:, one.source], gpus[:, one.destination]
            size_bytes[rows] = one.size_bytes
            ready[rows] = np.where(one.ready == NONE, NONE, firsts + one.ready)
        steps = self.first[self.sends]
        destination[steps], size_bytes[steps] = self.peer_gpu[self.sends], self.sizes[self.sends]
        compute_ns[self.first[self.single]] = self.compute_ns[self.single]
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
            processor=processor,
            turn=turn,
        )

    def _turns(self) -> tuple[Ints, Ints]:
        """Return the processor and the turn of each step; ranks on one GPU have their own."""
        processor, turn = np.full(self.count, NONE), np.zeros(self.count, np.int64)
        if (of_node := self.trace.processor) is not None:
            nodes = self.single[(self.compute_ns > 0)[self.single] & (of_node[self.single] != NONE)]
            _, number = np.unique(of_node[nodes], return_inverse=True)
            processor[self.first[nodes]] = number * self.trace.ranks + self.trace.rank[nodes]
            if self.trace.turn is not None:
                turn[self.first[nodes]] = self.trace.turn[nodes]
        return processor, turn

    def _after(self) -> Rows:
        """Return what each step waits for: because its node does, and within its operation."""
        steps, nodes, inner = list[Ints](), list[Ints](), list[Ints]()
        for copies in self.copies:
            begins, after = copies.pattern.begins, copies.pattern.after
            chosen, firsts = copies.nodes[:, begins.values], self.first[copies.nodes[:, :1]]
            steps.append((self.first[chosen] + begins.row).ravel())
            nodes.append(chosen.ravel())
            inner.append(((firsts + after.row) * self.count + firsts + after.values).ravel())
        waits = self.waits.picked(np.concatenate(nodes))
        outer = np.concatenate(steps)[waits.row] * self.count + waits.values
        later, earlier = np.divmod(distinct(np.concatenate([outer, *inner])), max(1, self.count))
        return Rows(earlier, starts_of(np.bincount(later, minlength=self.count)))
