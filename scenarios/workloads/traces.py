"""Traces of a scenario: read once, and placed on the GPUs of its fabrics."""

import math
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from model.fabric.spec import FabricSpec
from model.job.communicators import Shape
from model.workload.trace import Trace
from model.workload.transfers.proof import ScheduleError
from scenarios.format.issues import Issue, Place
from scenarios.format.units import size_in_bytes
from scenarios.format.workloads import TraceWork
from traffic_gen.traces.formats.msccl import FORMAT as MSCCL
from traffic_gen.traces.formats.nodes import Defaults
from traffic_gen.traces.rank_placement import PlacementRule, placed
from traffic_gen.traces.reading import files_of, read_trace
from traffic_gen.traces.replay import Replay


def trace_task(workload: TraceWork, spec: FabricSpec) -> tuple[Replay, str]:
    """A trace on a fabric, in its real size, and the name of its placement."""
    rule = workload.placement
    named = rule.value if isinstance(rule, PlacementRule) else "listed"
    return replay_of(workload, *spec.job_shape), named


def replay_of(workload: TraceWork, domains: int, domain_size: int) -> Replay:
    """Read and place a trace; raises `ValueError` if its placement does not fit."""
    trace, name = _trace_of(workload, domains * domain_size), Path(workload.trace).name
    return _placed(trace, name, workload.placement, domains, domain_size)


def _trace_of(workload: TraceWork, gpus: int) -> Trace:
    """Read a trace for a job of `gpus` GPUs."""
    path = Path(workload.trace)
    size_bytes = None if workload.size is None else round(size_in_bytes(workload.size))
    versions = tuple(map(_version, files_of(path)))
    return _read(path, versions, Defaults(gpus, size_bytes))


Version = tuple[int, ...]
"""Modification time, size and inode of a file; empty if the file cannot be read."""


def _version(path: Path) -> Version:
    try:
        found = path.stat()
    except (OSError, ValueError):
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


@lru_cache(maxsize=8)
def _read(path: Path, _versions: tuple[Version, ...], defaults: Defaults) -> Trace:
    return read_trace(path, defaults)


@lru_cache(maxsize=16)
def _placed(
    trace: Trace,
    name: str,
    rule: PlacementRule | tuple[int, ...],
    domains: int,
    domain_size: int,
) -> Replay:
    gpu_of = placed(rule, trace.ranks, domains, domain_size)
    return Replay(trace, name, gpu_of, domains * domain_size, domain_size)


def trace_issues(place: Place, workload: TraceWork, shape: Shape) -> Iterator[Issue]:
    """Issues of a trace that does not fit its grid; raises `InputError` if it is damaged."""
    trace = _trace_of(workload, math.prod(shape))
    if workload.size is not None and trace.format != MSCCL:
        what = f"{trace.format} names bytes of its own"
        yield Issue((*place, "size"), what, f"only {MSCCL} needs a size")
    try:
        replay = replay_of(workload, *shape)
    except ValueError as error:
        yield Issue((*place, "placement"), str(error))
        return
    try:
        replay.steps()
    except ScheduleError as error:
        yield Issue((*place, "trace"), f"cannot be replayed: {error}")
