"""The trace of steps: transfers and compute of a schedule as nodes of its GPUs."""

import numpy as np

from model.arrays import Ints
from model.workload.trace import NodeKind, Trace
from model.workload.transfers.columns import NONE, Rows, Transfers, starts_of


def trace_of(transfers: Transfers, ranks: int) -> Trace:
    """Return a node for each step of compute, and two for each transfer: a send and a receive.

    The nodes of step n are `first_nodes(transfers)[n]` and, of a transfer, the one after it.
    """
    first, computes = first_nodes(transfers), transfers.is_compute
    count = len(transfers) + int((~computes).sum())
    step = np.repeat(np.arange(len(transfers)), np.where(computes, 1, 2))
    receives = np.arange(count) != first[step]
    kind = np.where(receives, NodeKind.RECEIVE, NodeKind.SEND)
    kind[first[computes]] = NodeKind.COMPUTE
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
