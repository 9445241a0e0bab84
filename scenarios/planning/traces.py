"""Traces of a scenario: read once, and placed on the GPUs of its fabrics."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from model.fabric.spec import FabricSpec
from model.workload.proof import ScheduleError
from model.workload.trace import Trace
from scenarios.spec.issues import Issue
from scenarios.spec.scenario import Case
from scenarios.spec.schema import ScenarioFile, TraceWorkload
from traffic_gen.traces.placement import PlacementRule, placed
from traffic_gen.traces.reading import read_trace
from traffic_gen.traces.replay import Replay


def trace_case(workload: TraceWorkload, spec: FabricSpec) -> Case:
    """A trace as a case on a fabric, in its real size."""
    replay = replay_of(workload, spec.job_domains, spec.job_size)
    rule = workload.placement
    return Case(
        name=f"{spec.kind}/trace/{replay.name}",
        kind=spec.kind,
        task=replay,
        algorithm=replay.name,
        size_name=rule.value if isinstance(rule, PlacementRule) else "listed",
        size_bytes=replay.trace.total_bytes,
        size_scale=1.0,
        generator=workload.generator,
    )


def replay_of(workload: TraceWorkload, domains: int, domain_size: int) -> Replay:
    """Read and place a trace; raises `ValueError` if its placement does not fit."""
    path = Path(workload.trace)
    return _placed(path, _version(path), workload.placement, domains, domain_size)


def _version(path: Path) -> tuple[int, ...]:
    """What changes when a file does; nothing of one that cannot be read."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


@lru_cache(maxsize=8)
def _read(path: Path, _version: tuple[int, ...]) -> Trace:
    return read_trace(path)


@lru_cache(maxsize=16)
def _placed(
    path: Path,
    version: tuple[int, ...],
    rule: PlacementRule | tuple[int, ...],
    domains: int,
    domain_size: int,
) -> Replay:
    trace = _read(path, version)
    gpu_of = placed(rule, trace.ranks, domains, domain_size)
    return Replay(trace, path.name, gpu_of, domains * domain_size, domain_size)


def trace_issues(file: ScenarioFile) -> Iterator[Issue]:
    """Issues of traces that do not fit the fabric; raises `InputError` for one that is damaged."""
    for number, workload in enumerate(file.workloads):
        if isinstance(workload, TraceWorkload):
            yield from _issues(number, workload, file)


def _issues(number: int, workload: TraceWorkload, file: ScenarioFile) -> Iterator[Issue]:
    if file.check_data:
        what = "is not possible with a trace, which has no result to check"
        yield Issue(("check_data",), what, "leave it out")
    try:
        replay = replay_of(workload, file.fabric.domains, file.fabric.domain_size)
        replay.steps()
    except ScheduleError as error:
        yield Issue(("workloads", number, "trace"), f"cannot be replayed: {error}")
    except ValueError as error:
        yield Issue(("workloads", number, "placement"), str(error))
