"""Schedules of a scenario's workloads: wrong and impossible ones are refused as bad input.

The proof of a schedule takes about a second for 1024 GPUs, for each of the cases. The schedule of a
large fabric is therefore proved on a smaller grid here; a run proves it in full when it builds it.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import prod

from model.errors import InputError, Problem
from model.fabric.spec import FabricSpec
from model.job.communicators import EVERYONE, Asked, Communicator, Shape, communicators
from model.transfers.collective import Collective
from model.transfers.columns import Transfers
from model.transfers.proof import ScheduleError
from model.workload.schedule import Steps
from scenarios.planning.workloads.inference import inference_issues
from scenarios.planning.workloads.iterations import iteration_issues
from scenarios.planning.workloads.jobs import works
from scenarios.planning.workloads.traces import trace_issues
from scenarios.spec.scenario import Case, TimedTask
from scenarios.spec.schema import ScenarioFile
from scenarios.spec.workload_entries import CollectiveWork
from scenarios.yaml_files.issues import Issue
from traffic_gen.workloads.algorithms.collectives import (
    ALGORITHMS,
    algorithms_of,
    build_schedule,
    require_accepted,
    slices_of,
)
from traffic_gen.workloads.algorithms.matrices import Matrix
from traffic_gen.workloads.sized_collective import SizedCollective

# For more GPUs, proving and predicting a schedule takes too long for `check` and `plan`.
EXACT_UP_TO_GPUS = 32
# No smaller grid can stand in for a matrix, or for a communicator that changes shape with the grid:
# these schedules are computed in full, for at most this many GPUs.
MOST_IRREGULAR_GPUS = 256
# Limit of pairs of GPUs times slices times phases: the proof of this many parts takes seconds.
MOST_PARTS = 2_000_000
REGULAR = (EVERYONE, "rails", "domains")
# A larger grid is represented by a smaller one, of at most this many domains, and GPUs in each.
LARGEST_DOMAINS, LARGEST_SIZE = 8, 8


def case_schedule(case: Case, spec: FabricSpec) -> Steps:
    """The proved steps of a case on its fabric; raises `InputError` if they are wrong."""
    if not isinstance(case.task, Collective):
        return _steps(case, case.task, spec.bandwidth_scale / case.size_scale)
    shape = spec.job_domains, spec.job_size
    try:
        return collective_of(case, case.task, shape).steps(case.size_scale)
    except ScheduleError as error:
        issue = _wrong(case.task, case.algorithm, shape, error)
        raise InputError(Problem(case.where, *issue)) from error


def _steps(case: Case, task: TimedTask, time_dilation: float) -> Steps:
    """Build the steps of a timed task; raises `InputError` if it cannot be executed."""
    try:
        return task.steps(case.size_scale, time_dilation)
    except ScheduleError as error:
        raise InputError(Problem(case.where, f"cannot be executed: {error}")) from error


def case_transfers(case: Case, spec: FabricSpec) -> Transfers:
    """The transfers of a case on its fabric; those of a collective are not proved."""
    if not isinstance(case.task, Collective):
        return case_schedule(case, spec).transfers
    shape = spec.job_domains, spec.job_size
    return collective_of(case, case.task, shape).transfers(case.size_scale)


def collective_of(case: Case, collective: Collective, shape: Shape) -> SizedCollective:
    """The collective of a case on a grid of GPUs, in its real size."""
    among = case.slices, case.matrix, case.communicator
    return SizedCollective(collective, case.algorithm, shape, case.size_bytes, *among)


def schedule_issues(file: ScenarioFile) -> Iterator[Issue]:
    """Issues of timed tasks, and of algorithms that refuse a grid or are wrong on it."""
    yield from trace_issues(file)
    yield from iteration_issues(file)
    yield from inference_issues(file)
    for place, work, shape in works(file):
        if not isinstance(work, CollectiveWork):
            continue
        wrong = list(_wrong_groups(work, shape))
        yield from (Issue((*place, key), what) for key, what in wrong)
        issue = None if wrong else _issue_of(work, shape)
        if issue is not None:
            yield Issue(place, *issue)


def _wrong_groups(workload: CollectiveWork, shape: Shape) -> Iterator[tuple[str, str]]:
    """Yield the key and the issue of a wrong communicator, or of a matrix that does not fit it."""
    try:
        groups = communicators(workload.communicator, shape)
    except ValueError as error:
        yield "communicator", str(error)
        return
    irregular = workload.matrix is not None or workload.communicator not in REGULAR
    if irregular and prod(shape) > MOST_IRREGULAR_GPUS:
        key = "communicator" if workload.matrix is None else "matrix"
        yield key, f"is possible for up to {MOST_IRREGULAR_GPUS} GPUs, got {prod(shape)}"
    elif irregular and (parts := _parts(workload, groups)) > MOST_PARTS:
        key = "communicator" if workload.matrix is None else "slices"
        yield key, f"makes {parts} parts for pairs of GPUs, more than the {MOST_PARTS} possible"
    elif isinstance(workload.matrix, tuple):
        for ranks in {len(group.ranks) for group in groups} - {len(workload.matrix)}:
            yield "matrix", f"has {len(workload.matrix)} rows, for {ranks} GPUs"


def _parts(workload: CollectiveWork, groups: Sequence[Communicator]) -> int:
    """Return the most parts that slices and phases cut the data of all pairs into."""
    slices = slices_of(workload.collective, workload.algorithm, workload.slices)
    phases = 1 if workload.pair_sizes is None else workload.pair_sizes.phases
    return sum(len(group.ranks) ** 2 for group in groups) * slices * phases


def _issue_of(workload: CollectiveWork, shape: Shape) -> "Words | None":
    """Return the issue of a workload's schedule, and a hint; `None` if the schedule is right."""
    named = workload.collective, workload.algorithm
    among = workload.pair_sizes, workload.communicator
    return _issue(*named, shape, workload.slices, *among)


Words = tuple[str, str]
"""What is wrong, and a hint."""


@lru_cache(maxsize=256)
def _issue(
    collective: Collective,
    algorithm: str,
    shape: Shape,
    slices: int | None,
    matrix: Matrix | None,
    communicator: Asked,
) -> Words | None:
    """Return the issue of an algorithm on a grid, and a hint; `None` if its schedule is right."""
    try:
        require_accepted(collective, algorithm, *shape, communicator)
    except ScheduleError as error:
        return _refused(collective, algorithm, shape, error)
    proved = shape
    try:
        if prod(shape) > EXACT_UP_TO_GPUS and matrix is None and communicator in REGULAR:
            proved = stand_in(collective, algorithm, shape, communicator)
        build_schedule(collective, algorithm, *proved, 1, slices, matrix, communicator)
    except ScheduleError as error:
        return _wrong(collective, algorithm, proved, error)
    return None


def stand_in(
    collective: Collective, algorithm: str, shape: Shape, communicator: Asked = EVERYONE
) -> Shape:
    """Return the largest grid within `shape` and the limits above that the algorithm accepts.

    The grid has a single domain only if `shape` has. Raises `ScheduleError` if no grid is accepted.
    """
    domains, domain_size = min(shape[0], LARGEST_DOMAINS), min(shape[1], LARGEST_SIZE)
    fewest = min(domains, 2)
    for smaller in product(range(domains, fewest - 1, -1), range(domain_size, 0, -1)):
        if _is_accepted(collective, algorithm, smaller, communicator):
            return smaller
    small = f"{domains} x {domain_size} GPUs"
    raise ScheduleError(f"no grid of up to {small}, which could stand in for it, is accepted")


def _is_accepted(collective: Collective, algorithm: str, shape: Shape, communicator: Asked) -> bool:
    try:
        require_accepted(collective, algorithm, *shape, communicator)
    except (ScheduleError, ValueError):
        return False
    return True


def _refused(collective: Collective, algorithm: str, shape: Shape, error: ScheduleError) -> Words:
    what = f"{_named(collective, algorithm, shape)} is not possible: {error}"
    others = ", ".join(name for name in algorithms_of(collective) if name != algorithm)
    other = f", or another algorithm: {others}" if others else ""
    return what, f"use another grid of GPUs{other}"


def _wrong(collective: Collective, algorithm: str, shape: Shape, error: ScheduleError) -> Words:
    what = f"{_named(collective, algorithm, shape)} has a wrong schedule: {error}"
    code = getattr(ALGORITHMS[collective, algorithm].build, "__code__", None)
    place = "" if code is None else f", {code.co_name} in {code.co_filename}"
    return what, f"mend its function{place}"


def _named(collective: Collective, algorithm: str, shape: Shape) -> str:
    return f"{collective} with the algorithm {algorithm!r} on {shape[0]} x {shape[1]} GPUs"
