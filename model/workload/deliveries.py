"""Proof that transfers replay a trace: they deliver every byte, in the order of the trace.

Two columns with a row for each node are proved. `entries` has the transfers with which the node
begins to send, `ends` the transfers whose end is the node's end, as its GPU observes it. By
induction over the trace: the node's dependencies have ended before its entries begin, or, without
entries, before the node ends.
"""

from dataclasses import dataclass

import numpy as np

from model.arrays import Ints
from model.workload.trace import NodeKind, Trace
from model.workload.transfers.columns import NONE, Rows, Transfers
from model.workload.transfers.proof import ScheduleError


@dataclass(frozen=True, eq=False)
class Deliveries:
    """A trace, and the columns that map its nodes to transfers, with a row for each node.

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

    def prove(self, transfers: Transfers) -> None:
        """Raise `ScheduleError` unless the transfers, in order, do all that the trace asks for."""
        self._check_steps(transfers)
        self._check_order(transfers)

    def _check_steps(self, transfers: Transfers) -> None:
        """Show that each message between two GPUs, and each node that computes, has a step."""
        trace = self.trace
        source, to = self.gpu_of[trace.rank], self.gpu_of[trace.peer]
        sends = (trace.kind == NodeKind.SEND) & (source != to)
        nodes = np.flatnonzero(sends | (self.compute_ns > 0))
        if (self.entries.lengths[nodes] != 1).any() or (self.ends.lengths[nodes] != 1).any():
            raise ScheduleError("a node has no step, or several")
        step = self.entries.values[self.entries.starts[nodes]]
        right = transfers.source[step] == source[nodes]
        right &= transfers.destination[step] == np.where(sends, to, source)[nodes]
        right &= transfers.size_bytes[step] == np.where(sends, self.size_bytes, 0)[nodes]
        right &= transfers.compute_ns[step] == self.compute_ns[nodes]
        right &= self.ends.values[self.ends.starts[nodes]] == step
        if not right.all() or len(np.unique(step)) != len(step):
            raise ScheduleError("a step does not do what its node asks, or serves two nodes")

    def _check_order(self, transfers: Transfers) -> None:
        """Show that no node begins, or counts as ended, before its dependencies have ended."""
        trace = self.trace
        receives = np.flatnonzero(trace.sent_by != NONE)
        later = np.concatenate([trace.after.row, receives])
        place, ended = _picked(
            self.ends, np.concatenate([trace.after.values, trace.sent_by[receives]])
        )
        later = later[place]
        sends = self.entries.lengths[later] > 0
        entry, begin = _picked(self.entries, later[sends])
        _require_pairs(transfers.after, begin, ended[sends][entry])
        _require_pairs(self.ends, later[~sends], ended[~sends])


def _picked(rows: Rows, which: Ints) -> tuple[Ints, Ints]:
    """Return all values of these rows, each with the place of its row among them."""
    counts = rows.lengths[which]
    place = np.repeat(np.arange(len(which)), counts)
    first = rows.starts[which] - np.cumsum(counts) + counts
    return place, rows.values[np.arange(len(place)) + first[place]]


def _require_pairs(rows: Rows, row: Ints, value: Ints) -> None:
    """Raise `ScheduleError` unless each of these values is in its row."""
    width = 1 + max(rows.values.max(initial=0), value.max(initial=0))
    if not np.isin(row * width + value, rows.row * width + rows.values).all():
        raise ScheduleError("a node does not wait for all of its dependencies")
