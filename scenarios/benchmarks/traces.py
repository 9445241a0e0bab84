"""Benchmark the import of traces: up to a million nodes in each format."""

import resource
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from model.workload.trace import NodeKind, Trace
from scenarios.benchmarks.common.rows import Row
from traffic_gen.traces.chakra_writing import chakra_files
from traffic_gen.traces.nodes import Nodes
from traffic_gen.traces.placement import PlacementRule, placed
from traffic_gen.traces.reading import read_trace
from traffic_gen.traces.replay import Replay

NODES, RANKS = 1_000_000, 64
DOMAINS, DOMAIN_SIZE = 8, 8
SIZE_BYTES, COMPUTE_NS = 4096, 1000


def traces(_store: Path) -> Iterator[Row]:
    """Measure processor time and memory of a fresh process for each trace."""
    with tempfile.TemporaryDirectory() as name:
        folder, made = Path(name), _rounds()
        (folder / "rounds.goal").write_text("\n".join((*_goal(made), "")))
        for rank, content in enumerate(chakra_files(made)):
            (folder / f"rounds.{rank}.et").write_bytes(content)
        del made
        for path in (folder / "rounds.goal", folder / "rounds.0.et"):
            with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
                yield fresh.submit(_imported, path).result()


def _rounds() -> Trace:
    """Rounds in which each rank computes, sends to the next rank and receives from the one before.

    A round of a rank begins when its round before has ended.
    """
    nodes = Nodes(RANKS)
    last: list[list[int]] = [[] for _ in range(RANKS)]
    while len(nodes.kind) < NODES:
        for rank in range(RANKS):
            compute = nodes.add(NodeKind.COMPUTE, rank, 0, seconds=COMPUTE_NS / 1e9)
            for earlier in last[rank]:
                nodes.wait(compute, earlier)
            ends = (rank + 1) % RANKS, (rank - 1) % RANKS
            send = nodes.add(NodeKind.SEND, rank, 0, peer=ends[0], size_bytes=SIZE_BYTES)
            nodes.wait(send, compute)
            last[rank] = [send, nodes.add(NodeKind.RECEIVE, rank, 0, peer=ends[1])]
    return nodes.trace("rounds")


def _goal(trace: Trace) -> Iterator[str]:
    """Yield the lines of a trace as a GOAL schedule."""
    of_rank: list[list[int]] = [[] for _ in range(trace.ranks)]
    for node, rank in enumerate(trace.rank.tolist()):
        of_rank[rank].append(node)
    yield f"num_ranks {trace.ranks}"
    for rank, nodes in enumerate(of_rank):
        yield f"rank {rank} {{"
        for node in nodes:
            yield f"n{node}: {_statement(trace, node)}"
            yield from (f"n{node} requires n{earlier}" for earlier in trace.after_lists[node])
        yield "}"


def _statement(trace: Trace, node: int) -> str:
    peer = trace.peer[node]
    if trace.kind[node] == NodeKind.SEND:
        return f"send {trace.size_bytes[node]}b to {peer}"
    return f"recv {SIZE_BYTES}b from {peer}" if peer >= 0 else f"calc {COMPUTE_NS}"


def _imported(path: Path) -> Row:
    """Read, place and prove a trace in this process; return what it took."""
    before_s = time.process_time()
    trace = read_trace(path)
    read_s, read_bytes = time.process_time(), _most_bytes()
    gpu_of = placed(PlacementRule.WRAP, trace.ranks, DOMAINS, DOMAIN_SIZE)
    steps = Replay(trace, path.name, gpu_of, DOMAINS * DOMAIN_SIZE, DOMAIN_SIZE).steps()
    return {
        "format": trace.format,
        "nodes": len(trace),
        "import_s": read_s - before_s,
        "import_gib": read_bytes / 2**30,
        "steps": len(steps.transfers),
        "replay_and_proof_s": time.process_time() - read_s,
        "together_gib": _most_bytes() / 2**30,
    }


def _most_bytes() -> int:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
