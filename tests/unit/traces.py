"""Traces for property tests, and a bound of the memory that reading one takes."""

import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from hypothesis import strategies as st

from model.workload.trace import Action, Trace
from model.workload.transfers.collective import Collective
from traffic_gen.traces.formats.nodes import Node, Nodes
from traffic_gen.traces.operations import ALGORITHM_OF


@st.composite
def traces(draw: st.DrawFn, *, kinds: Sequence[Action] = tuple(Action), fewest: int = 1) -> Trace:
    """Traces whose nodes come after earlier ones of their rank; two GPUs or more move bytes.

    Collective operations are of `fewest` ranks or more.
    """
    ranks = draw(st.integers(2, 5))
    nodes = Nodes(ranks=ranks)
    of_rank: list[list[int]] = [[] for _ in range(ranks)]
    if Action.SEND in kinds:
        sends = [nodes.message(0, to, 0, 100) for to in (1, ranks - 1)]
        added = [[send, send + 1] for send in sends]
    else:
        added = [_collective(nodes, Collective.ALL_REDUCE, 100, range(ranks), place=0)]
    for place in range(draw(st.integers(0, 14))):
        added.append(_added(draw, nodes, draw(st.sampled_from(kinds)), place, fewest))
    for together in added:
        for node in together:
            before = of_rank[nodes.added[node].rank]
            for earlier in draw(st.sets(st.sampled_from(before), max_size=3)) if before else ():
                nodes.wait(node, earlier)
            before.append(node)
    return nodes.trace("made")


def _added(draw: st.DrawFn, nodes: Nodes, what: Action, place: int, fewest: int) -> list[int]:
    """Add a node that computes, a message, or a collective operation; return its nodes."""
    rank, size_bytes = draw(st.integers(0, nodes.ranks - 1)), draw(st.integers(0, 10**6))
    if what is Action.COMPUTE:
        seconds = draw(st.integers(0, 1000)) / 1e6
        return [nodes.add(Node(Action.COMPUTE, rank, place, seconds=seconds))]
    if what is Action.COLLECTIVE:
        group = draw(st.sets(st.integers(0, nodes.ranks - 1), min_size=fewest))
        collective = draw(st.sampled_from(sorted(ALGORITHM_OF)))
        size_bytes *= len(group)
        root = draw(st.integers(0, len(group) - 1)) if collective.has_root else 0
        ranks = sorted(group)
        return _collective(nodes, collective, size_bytes, ranks[root:] + ranks[:root], place)
    peer, tag = draw(st.integers(0, nodes.ranks - 1)), draw(st.integers(0, 2))
    send = nodes.message(rank, peer, place, size_bytes, tag)
    return [send, send + 1]


def _collective(
    nodes: Nodes, collective: Collective, size_bytes: int, ranks: Sequence[int], place: int
) -> list[int]:
    return list(nodes.collective(collective, size_bytes, tuple(ranks), place).values())


def same(one: Trace, other: Trace) -> bool:
    """Whether two traces have the same nodes, each rank's in the same order."""
    return _contents(one) == _contents(other)


def _contents(trace: Trace) -> list[list[object]]:
    """What the nodes of each rank are; others are named by rank and place."""
    places = np.zeros(len(trace), np.int64)
    counts = [0] * trace.ranks
    for node, rank in enumerate(trace.rank.tolist()):
        places[node], counts[rank] = counts[rank], counts[rank] + 1
    contents: list[list[object]] = [[] for _ in range(trace.ranks)]
    for node, rank in enumerate(trace.rank.tolist()):
        sent_by, operation = int(trace.sent_by[node]), int(trace.operation[node])
        contents[rank].append(
            (
                int(trace.kind[node]),
                int(trace.peer[node]),
                int(trace.size_bytes[node]),
                round(float(trace.seconds[node]) * 1e6),
                sorted(places[earlier] for earlier in trace.after_lists[node]),
                int(places[sent_by]) if sent_by >= 0 else None,
                trace.operations[operation] if operation >= 0 else None,
            )
        )
    return contents


@contextmanager
def peak_below(most_bytes: int) -> Iterator[None]:
    """Require that what happens inside takes less memory than this at any time."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most_bytes, f"took {peak} bytes"
