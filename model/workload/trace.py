"""Traces: what the ranks of a program send, receive and wait for, as another tool recorded it.

A node is one action of one rank. It begins when its dependencies, nodes of the same rank, have
ended. The steps of a schedule are a trace, too (`trace_of`). That transfers replay a trace is
proved (`Deliveries`).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property

import numpy as np

from model.arrays import Floats, Ints
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import NONE, Rows, Transfers, starts_of
from model.workload.transfers.lanes import Parts
from model.workload.transfers.proof import ScheduleError

# Of a replay: a step takes about half a kilobyte of memory, each dependency some bytes.
MOST_STEPS, MOST_WAITS = 2_000_000, 20_000_000


class Action(IntEnum):
    """The action of a node."""

    COMPUTE = 0
    SEND = 1
    RECEIVE = 2
    COLLECTIVE = 3


@dataclass(frozen=True)
class Operation:
    """A collective operation of some ranks; its size is as nccl-tests count it.

    A broadcast is from the first of the ranks.
    """

    collective: Collective
    size_bytes: int
    ranks: tuple[int, ...]

    @property
    def most_steps(self) -> int:
        """The most transfers of a replay, with rings and direct sends."""
        both = 2 if self.collective is Collective.ALL_REDUCE else 1
        return both * len(self.ranks) * (len(self.ranks) - 1)


class Contradiction(ValueError):
    """Nodes of a trace that do not fit together; `node` is one of them."""

    def __init__(self, node: int, what: str) -> None:
        super().__init__(what)
        self.node = node


@dataclass(frozen=True, eq=False)
class Trace:
    """The nodes of a trace as columns: a node's number is its row.

    `peer` is the other rank of a send or a receive, `sent_by` the send that a receive takes, and
    `operation` the number of a collective operation; each is `NONE` where there is none.
    `size_bytes` has the bytes of sends, `seconds` the time of compute. Each of the `operations`
    has a node for each of its ranks. Compute without a time may have `flops`, and bytes of memory
    that it moves (see `timed`). Compute on one `processor` of a rank takes turns: of what is
    ready the lowest `turn`, else first come, first served; where it is `NONE`, compute waits for no
    other. `left_out` says, for `check`, what of the file is not here.
    """

    format: str
    ranks: int
    kind: Ints
    rank: Ints
    peer: Ints
    size_bytes: Ints
    seconds: Floats
    after: Rows
    sent_by: Ints
    operation: Ints
    operations: tuple[Operation, ...]
    flops: Floats | None = None
    memory_bytes: Floats | None = None
    processor: Ints | None = None
    turn: Ints | None = None
    left_out: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.kind)

    @cached_property
    def modeled(self) -> int:
        """The number of nodes whose time follows from FLOPs and bytes of memory."""
        if self.flops is None or self.memory_bytes is None:
            return 0
        return int(((self.flops > 0) | (self.memory_bytes > 0)).sum())

    def timed(self, peak_flops: float, bandwidth: float) -> "Trace":
        """Return the trace with the time of all compute, on a GPU of these FLOP/s and bytes/s.

        The time is that of a roofline (Williams, Waterman and Patterson, 2009): the longer one of
        FLOPs at the peak, and bytes at the memory's bandwidth.
        """
        if self.flops is None or self.memory_bytes is None:
            return self
        modeled_s = np.maximum(self.flops / peak_flops, self.memory_bytes / bandwidth)
        return replace(self, seconds=np.where(modeled_s > 0, modeled_s, self.seconds))

    def dependencies(self) -> tuple[Ints, Ints]:
        """Return all dependencies as pairs, earlier and later; a receive depends on its send."""
        receives = np.flatnonzero(self.sent_by != NONE)
        earlier = np.concatenate([self.after.values, self.sent_by[receives]])
        return earlier, np.concatenate([self.after.row, receives])

    @cached_property
    def after_lists(self) -> Sequence[tuple[int, ...]]:
        """The dependencies of each node, for code that handles one node at a time."""
        return tuple(self.after.lists())

    @cached_property
    def total_bytes(self) -> int:
        """The bytes of all sends, and the sizes of all collective operations, in all."""
        sent: int = sum(self.size_bytes[self.kind == Action.SEND].tolist())
        return sent + sum(operation.size_bytes for operation in self.operations)

    @cached_property
    def largest_bytes(self) -> int:
        """The size of the largest send or collective operation."""
        sizes = (operation.size_bytes for operation in self.operations)
        return max(int(self.size_bytes.max(initial=0)), *sizes, 0)

    @cached_property
    def most_steps(self) -> int:
        """The most transfers and steps of compute of a replay, with rings and direct sends."""
        steps = int(((self.kind == Action.SEND) | (self.seconds > 0)).sum())
        return steps + sum(operation.most_steps for operation in self.operations)

    @cached_property
    def order(self) -> Sequence[int]:
        """All nodes, each after its dependencies (Kahn, 1962); raises `Contradiction` for a cycle.

        A receive depends on its send, too, and a collective operation on the dependencies of all
        its ranks: its nodes follow each other.
        """
        earlier, later = self.dependencies()
        missing = np.bincount(later, minlength=len(self))
        waits = Rows.grouped(later, earlier, len(self))
        followers, starts = waits.values.tolist(), waits.starts.tolist()
        nodes = np.flatnonzero(self.operation != NONE)
        members = list(Rows.grouped(nodes, self.operation[nodes], len(self.operations)).lists())
        operation, absent = self.operation.tolist(), [len(of_one) for of_one in members]
        left = missing.tolist()
        ready, ordered = np.flatnonzero(missing == 0).tolist(), list[int]()
        for node in ready:
            ended: Sequence[int] = (node,)
            if (number := operation[node]) != NONE:
                absent[number] -= 1
                ended = () if absent[number] else members[number]
            ordered += ended
            for done in ended:
                for later_node in followers[starts[done] : starts[done + 1]]:
                    left[later_node] -= 1
                    if not left[later_node]:
                        ready.append(later_node)
        if len(ordered) < len(left):
            node = min(set(range(len(left))) - set(ordered))
            raise Contradiction(node, "is in a dependency cycle, or depends on one")
        return ordered


def matched(kind: Ints, rank: Ints, peer: Ints, tag: Ints) -> Ints:
    """Return the send that each receive takes, `NONE` for other nodes.

    The n-th receive of a rank from another rank with a tag takes the n-th send between them with
    this tag. Raises `Contradiction` for a send or receive that is left over.
    """
    sends, receives = (np.flatnonzero(kind == one) for one in (Action.SEND, Action.RECEIVE))
    sends = sends[np.lexsort((sends, tag[sends], peer[sends], rank[sends]))]
    receives = receives[np.lexsort((receives, tag[receives], rank[receives], peer[receives]))]
    count = min(len(sends), len(receives))
    one, other = sends[:count], receives[:count]
    wrong = (rank[one] != peer[other]) | (peer[one] != rank[other]) | (tag[one] != tag[other])
    if wrong.any() or len(sends) != len(receives):
        _refuse_left_over(kind, rank, peer, tag)
    sent_by = np.full(len(kind), NONE)
    sent_by[receives] = sends
    return sent_by


def _refuse_left_over(kind: Ints, rank: Ints, peer: Ints, tag: Ints) -> None:
    """Raise `Contradiction` for the first send that no receive takes, or receive without a send."""
    nodes = np.flatnonzero(np.isin(kind, (Action.SEND, Action.RECEIVE)))
    columns = [column[nodes].tolist() for column in (kind == Action.SEND, rank, peer, tag)]
    ends, seen = Counter(zip(*columns, strict=True)), Counter[tuple[bool, int, int, int]]()
    for node, *end in zip(nodes.tolist(), *columns, strict=True):
        is_send, here, there, mark = end
        seen[is_send, here, there, mark] += 1
        if seen[is_send, here, there, mark] > ends[not is_send, there, here, mark]:
            what = "send of rank {} to rank {} has no receive"
            if not is_send:
                what = "receive of rank {} from rank {} has no send"
            raise Contradiction(node, what.format(here, there))


def trace_of(transfers: Transfers, ranks: int) -> Trace:
    """Return a node for each step of compute, and two for each transfer: a send and a receive.

    The nodes of step n are `first_nodes(transfers)[n]` and, of a transfer, the one after it.
    """
    first, computes = first_nodes(transfers), transfers.is_compute
    count = len(transfers) + int((~computes).sum())
    step = np.repeat(np.arange(len(transfers)), np.where(computes, 1, 2))
    receives = np.arange(count) != first[step]
    kind = np.where(receives, Action.RECEIVE, Action.SEND)
    kind[first[computes]] = Action.COMPUTE
    source, to = transfers.source[step], transfers.destination[step]
    return Trace(
        format="steps",
        ranks=ranks,
        kind=kind.astype(np.int64),
        rank=np.where(receives, to, source),
        peer=np.where(computes[step], NONE, np.where(receives, source, to)),
        size_bytes=np.where(receives, 0, transfers.size_bytes[step]),
        seconds=transfers.compute_ns[step] / 1e9,
        after=_after(transfers, first, count),
        sent_by=np.where(receives, first[step], NONE),
        operation=np.full(count, NONE),
        operations=(),
    )


def first_nodes(transfers: Transfers) -> Ints:
    """Return the first node of each step."""
    return starts_of(np.where(transfers.is_compute, 1, 2))[:-1]


def _after(transfers: Transfers, first: Ints, count: int) -> Rows:
    """Return each node's dependencies: a GPU sees its own sends end, and others' sends arrive.

    A receive comes after the transfer that makes its destination ready-to-receive.
    """
    after = transfers.after
    own = transfers.source[after.row] == transfers.source[after.values]
    earlier = first[after.values] + np.where(own, 0, 1)
    ready = np.flatnonzero(transfers.ready != NONE)
    return Rows.grouped(
        np.concatenate([earlier, first[transfers.ready[ready]] + 1]),
        np.concatenate([first[after.row], first[ready] + 1]),
        count,
    )


@dataclass(frozen=True, eq=False)
class Deliveries:
    """A trace, and the columns that map its nodes to transfers, with a row for each node.

    They prove that transfers replay the trace: they deliver every byte, in its order. `entries` has
    the transfers with which a node begins to send, `ends` the transfers whose end is the node's
    end, as its GPU observes it. By induction over the trace: the node's dependencies have ended
    before its entries begin, or, without entries, before the node ends.

    `gpu_of` has the GPU of each rank, `size_bytes` the bytes that each send delivers, `compute_ns`
    the duration of each node's compute. Collective operations are proved elsewhere; this proves
    that they begin and end in order.
    """

    trace: Trace
    gpu_of: Ints
    size_bytes: Ints
    compute_ns: Ints
    entries: Rows
    ends: Rows

    def of_parts(self, parts: Parts) -> "Deliveries":
        """Return the same for transfers that are cut into parts."""
        return replace(self, entries=parts.rows(self.entries), ends=parts.rows(self.ends))

    def prove(self, transfers: Transfers) -> None:
        """Raise `ScheduleError` unless the transfers, in order, do all that the trace asks for."""
        self._check_steps(transfers)
        self._check_order(transfers)

    def _check_steps(self, transfers: Transfers) -> None:
        """Show that each message between two GPUs, and each node that computes, has a step.

        A message may have several, its parts on the lanes of its GPUs.
        """
        trace = self.trace
        source, to = self.gpu_of[trace.rank], self.gpu_of[trace.peer]
        sends = (trace.kind == Action.SEND) & (source != to)
        nodes = np.flatnonzero(sends | (self.compute_ns > 0))
        begun, ended = self.entries.picked(nodes), self.ends.picked(nodes)
        if not begun.lengths.all() or not np.array_equal(begun.starts, ended.starts):
            raise ScheduleError("a node has no step, or ends without one of its steps")
        step, of = begun.values, nodes[begun.row]
        right = transfers.source[step] == source[of]
        right &= transfers.destination[step] == np.where(sends, to, source)[of]
        right &= transfers.compute_ns[step] == self.compute_ns[of]
        right &= ended.values == step
        sent = begun.sums(transfers.size_bytes) == np.where(sends, self.size_bytes, 0)[nodes]
        if not (right.all() and sent.all()) or (np.bincount(step) > 1).any():
            raise ScheduleError("a step does not do what its node asks, or serves two nodes")

    def _check_order(self, transfers: Transfers) -> None:
        """Show that no node begins, or counts as ended, before its dependencies have ended."""
        earlier, later = self.trace.dependencies()
        ended = self.ends.picked(earlier)
        later = later[ended.row]
        sends = self.entries.lengths[later] > 0
        begins = self.entries.picked(later[sends])
        _require_pairs(transfers.after, begins.values, ended.values[sends][begins.row])
        _require_pairs(self.ends, later[~sends], ended.values[~sends])


def _require_pairs(rows: Rows, row: Ints, value: Ints) -> None:
    """Raise `ScheduleError` unless each of these values is in its row."""
    if not rows.have(row, value).all():
        raise ScheduleError("a node does not wait for all of its dependencies")
