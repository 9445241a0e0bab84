"""Benchmark the import of a trace of a million nodes, in each format that orders its nodes.

Also, all that `check` does with a Chakra trace whose operations are of process groups.
"""

import resource
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from model.fabric.job_grid import JobGrid
from model.workload.trace import Action, Trace
from model.workload.transfers.collective import Collective
from scenarios.load import load
from studies.benchmarks.rows import Row
from traffic_gen.traces.formats.chakra_writing import chakra_files
from traffic_gen.traces.formats.nodes import Defaults, Node, Nodes
from traffic_gen.traces.rank_placement import PlacementRule, placed
from traffic_gen.traces.reading import read_trace
from traffic_gen.traces.replay import Replay

NODES, RANKS = 1_000_000, 64
DOMAINS, DOMAIN_SIZE = 8, 8
SIZE_BYTES, COMPUTE_NS = 4096, 1000
# AICB: layers, each of five nodes for a rank, and ranks of a tensor-parallel group.
LAYERS, TENSOR = NODES // (5 * RANKS), 2
# Chakra with process groups: layers, each of ten nodes for a rank; the scenario that replays it.
GROUPED_LAYERS = 136
CHECKED = f"""\
fabric:
  {{domains: {DOMAINS}, domain_size: {DOMAIN_SIZE}, platform: dgx-h100, bandwidth_scale: 20000}}
workloads:
  - {{trace: groups, size_scale: 2}}
"""
# MSCCL: thread blocks of a GPU, and chunks of a byte that each block sends once around the ring.
BLOCKS, CHUNKS = 16, 8


def traces(_store: Path) -> Iterator[Row]:
    """Measure processor time and memory of a fresh process for each trace."""
    with tempfile.TemporaryDirectory() as folder:
        for path in written(Path(folder)):
            with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
                yield fresh.submit(_imported, path).result()
        with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
            yield fresh.submit(_checked, _grouped(Path(folder))).result()


def written(folder: Path) -> list[Path]:
    """Write a trace in each format; return their paths."""
    made = _rounds()
    for rank, content in enumerate(chakra_files(made)):
        (folder / f"rounds.{rank}.et").write_bytes(content)
    texts = {"rounds.goal": _goal(made), "layers.txt": _aicb(), "ring.xml": _msccl()}
    for name, lines in texts.items():
        (folder / name).write_text("\n".join((*lines, "")))
    return [folder / name for name in ("rounds.0.et", *texts)]


def _rounds() -> Trace:
    """Rounds in which each rank computes, sends to the next rank and receives from the one before.

    A round of a rank begins when its round before has ended.
    """
    nodes = Nodes(RANKS)
    last: list[list[int]] = [[] for _ in range(RANKS)]
    while len(nodes.added) < NODES:
        for rank in range(RANKS):
            compute = nodes.add(Node(Action.COMPUTE, rank, 0, seconds=COMPUTE_NS / 1e9))
            for earlier in last[rank]:
                nodes.wait(compute, earlier)
            ends = (rank + 1) % RANKS, (rank - 1) % RANKS
            send = nodes.add(Node(Action.SEND, rank, 0, ends[0], SIZE_BYTES))
            nodes.wait(send, compute)
            last[rank] = [send, nodes.add(Node(Action.RECEIVE, rank, 0, ends[1]))]
    return nodes.trace("rounds")


def _grouped(folder: Path) -> Path:
    """Write a trace of tensor-parallel groups, the domains, and data-parallel ones; its scenario.

    In each layer, groups add up activations four times, then gradients are scattered along rails.
    """
    nodes, last = Nodes(RANKS), dict[int, int]()
    domains = [tuple(range(first, first + DOMAIN_SIZE)) for first in range(0, RANKS, DOMAIN_SIZE)]
    rails = [tuple(range(rail, RANKS, DOMAIN_SIZE)) for rail in range(DOMAIN_SIZE)]
    activations = [(Collective.ALL_REDUCE, 4 * 2**20, domains)] * 4
    for _ in range(GROUPED_LAYERS):
        for collective, size, groups in (*activations, (Collective.REDUCE_SCATTER, 2**26, rails)):
            for ranks in groups:
                called = nodes.collective(collective, size, ranks, 0)
                for rank, node in called.items():
                    compute = nodes.add(Node(Action.COMPUTE, rank, 0, seconds=3e-4))
                    nodes.wait(node, compute)
                    if rank in last:
                        nodes.wait(compute, last[rank])
                last |= called
    (folder / "groups").mkdir()
    for rank, content in enumerate(chakra_files(nodes.trace("groups"))):
        (folder / "groups" / f"groups.{rank}.et").write_bytes(content)
    scenario = folder / "groups.yaml"
    scenario.write_text(CHECKED)
    return scenario


def _checked(scenario: Path) -> Row:
    """Load a scenario of one trace on both fabrics, and describe it; return the costs."""
    before_s = time.process_time()
    case, *_ = load(scenario).cases
    assert case.task.details
    return {
        "checked": case.task.origin.split(",")[0].removeprefix("of a trace: "),
        "nodes": RANKS * GROUPED_LAYERS * 10,
        "steps": len(case.task.transfers()),
        "check_s": time.process_time() - before_s,
        "check_gib": _most_bytes() / 2**30,
    }


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
    if trace.kind[node] == Action.SEND:
        return f"send {trace.size_bytes[node]}b to {peer}"
    return f"recv {SIZE_BYTES}b from {peer}" if peer >= 0 else f"calc {COMPUTE_NS}"


def _aicb() -> Iterator[str]:
    """Yield the lines of an iteration of equal layers, which compute and add up within groups."""
    yield f"HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {TENSOR} all_gpus: {RANKS}"
    yield f"{LAYERS}"
    adds = f"{COMPUTE_NS} ALLREDUCE {SIZE_BYTES}"
    for _ in range(LAYERS):
        yield f"layer -1 {adds} {adds} {COMPUTE_NS} NONE 0 100"


def _msccl() -> Iterator[str]:
    """Yield the lines of a ring AllGather, in which each thread block has chunks of its own."""
    own = BLOCKS * CHUNKS
    yield f'<algo nchunksperloop="{RANKS * own}" ngpus="{RANKS}" coll="allgather">'
    for gpu in range(RANKS):
        yield f'<gpu id="{gpu}" i_chunks="{own}" o_chunks="{RANKS * own}" s_chunks="0">'
        ends = f'send="{(gpu + 1) % RANKS}" recv="{(gpu - 1) % RANKS}"'
        for block in range(BLOCKS):
            yield f'<tb id="{block}" {ends} chan="{block}">'
            chunks = range(block * CHUNKS, (block + 1) * CHUNKS)
            steps = (step for chunk in chunks for step in _around(gpu, chunk, own))
            yield from (f'<step s="{number}" {step}/>' for number, step in enumerate(steps))
            yield "</tb>"
        yield "</gpu>"
    yield "</algo>"


def _around(gpu: int, chunk: int, own: int) -> Iterator[str]:
    """Yield the steps of a GPU by which a chunk of each GPU goes once around the ring."""
    for hop, kind in enumerate(("cpy", "s", *["rcs"] * (RANKS - 2), "r")):
        owner = (gpu - max(0, hop - 1)) % RANKS
        source = f'srcbuf="i" srcoff="{chunk}"'
        target = f'dstbuf="o" dstoff="{owner * own + chunk}"'
        yield f'type="{kind}" {source} {target} cnt="1"'


def _imported(path: Path) -> Row:
    """Read, place and prove a trace in this process; return its costs."""
    before_s = time.process_time()
    trace = read_trace(path, Defaults(RANKS, RANKS * BLOCKS * CHUNKS))
    read_s, read_bytes = time.process_time(), _most_bytes()
    grid = JobGrid(DOMAINS, DOMAIN_SIZE)
    gpu_of = placed(PlacementRule.WRAP, trace.ranks, grid)
    steps = Replay(trace, path.name, gpu_of, grid).steps()
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
