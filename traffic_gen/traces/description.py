"""What `check` says of a trace: what is replayed, and what is left out."""

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from model.arrays import Ints
from model.fabric.job_grid import JobGrid
from model.workload.trace import NodeKind, Trace


def origin(trace: Trace) -> str:
    """Return the format of a trace, and its size."""
    size = f"{trace.ranks} ranks, {len(trace)} nodes, {trace.total_bytes} bytes"
    return f"of a trace: {trace.format}, {size}"


def description(trace: Trace, gpu_of: Ints, grid: JobGrid) -> Iterator[str]:
    """Yield ranks, groups, bytes by kind, and compute of a trace; then what is left out.

    `gpu_of` has the GPU of each rank; GPUs are numbered domain after domain.
    """
    yield f"ranks: {trace.ranks} on {len(np.unique(gpu_of))} GPUs"
    if trace.operations:
        yield f"groups: {', '.join(_groups(trace, gpu_of, grid))}"
    yield from _operations(trace)
    yield from _sends(trace, gpu_of)
    yield from _compute(trace)
    yield from (f"not replayed: {what}" for what in trace.left_out)


def _groups(trace: Trace, gpu_of: Ints, grid: JobGrid) -> Iterator[str]:
    """Yield the number of groups of each size and each place on the fabric."""
    groups = {frozenset(ranks) for ranks in {one.ranks for one in trace.operations}}
    counts = Counter(
        (len(group), _place(gpu_of[list(group)], grid, len(group) == trace.ranks))
        for group in groups
    )
    for (size, place), count in sorted(counts.items()):
        yield f"{count} of {size} ranks ({place})"


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


def _operations(trace: Trace) -> Iterator[str]:
    """Yield the number and the sizes of the operations of each collective."""
    sizes = defaultdict[str, list[int]](list)
    for operation in trace.operations:
        sizes[operation.collective].append(operation.size_bytes)
    for collective, of_each in sorted(sizes.items()):
        yield f"{collective}: {len(of_each)} operations, {sum(of_each)} bytes"


def _sends(trace: Trace, gpu_of: Ints) -> Iterator[str]:
    """Yield the number and the bytes of sends, and how many stay within one GPU."""
    sends = np.flatnonzero(trace.kind == NodeKind.SEND)
    if not len(sends):
        return
    within = int((gpu_of[trace.rank[sends]] == gpu_of[trace.peer[sends]]).sum())
    stay = f"; {within} within one GPU take no time" if within else ""
    yield f"sends: {len(sends)}, {sum(trace.size_bytes[sends].tolist())} bytes{stay}"


def _compute(trace: Trace) -> Iterator[str]:
    """Yield the compute of the rank that computes most, and the number of all such nodes."""
    computes = int((trace.seconds > 0).sum())
    if computes:
        most_s = np.bincount(trace.rank, weights=trace.seconds).max()
        modeled = f"; {trace.modeled} by FLOPs and a roofline" if trace.modeled else ""
        yield f"compute: {computes} nodes, up to {most_s:.4g} s a rank{modeled}"
