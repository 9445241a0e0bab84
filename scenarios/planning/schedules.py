"""Schedules of a scenario's workloads: wrong and impossible ones are refused as bad input.

The proof of a schedule takes about a second for 1024 GPUs, for each of the cases. The schedule of a
large fabric is therefore proved on a smaller grid here; a run proves it in full when it builds it.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from model.errors import InputError, Problem
from model.fabric.spec import FabricSpec
from model.workload.collective import Collective
from model.workload.proof import ScheduleError
from model.workload.schedule import Schedule
from scenarios.spec.issues import Issue
from scenarios.spec.scenario import Case
from scenarios.spec.schema import ScenarioFile
from traffic_gen.workloads.collectives import algorithms_of, build_schedule, require_accepted

# For more GPUs, proving and predicting a schedule takes too long for `check` and `plan`.
EXACT_UP_TO_GPUS = 32
# A larger grid is represented by a smaller one, of at most so many domains and GPUs in each.
LARGEST_DOMAINS, LARGEST_SIZE = 8, 8


def case_schedule(case: Case, spec: FabricSpec) -> Schedule:
    """The proved schedule of a case on its fabric; raises `InputError` if it is wrong."""
    shape = spec.job_domains, spec.job_size
    try:
        return build_schedule(
            case.collective, case.algorithm, *shape, case.emulated_bytes, case.slices
        )
    except ScheduleError as error:
        issue = _wrong(case.collective, case.algorithm, shape, error)
        raise InputError(Problem(case.where, *issue)) from error


def schedule_issues(file: ScenarioFile) -> Iterator[Issue]:
    """Issues of algorithms that refuse the grid of GPUs, or build a wrong schedule for it."""
    shape = file.fabric.domains, file.fabric.domain_size
    for number, workload in enumerate(file.workloads):
        issue = _issue(workload.collective, workload.algorithm, shape, workload.slices)
        if issue is not None:
            yield Issue(("workloads", number), *issue)


Shape = tuple[int, int]
"""Domains, and GPUs in each."""
Words = tuple[str, str]
"""What is wrong, and a hint."""


@lru_cache(maxsize=256)
def _issue(
    collective: Collective, algorithm: str, shape: Shape, slices: int | None
) -> Words | None:
    """Return what is wrong with an algorithm on a grid, and a hint; `None` if nothing is."""
    try:
        require_accepted(collective, algorithm, *shape)
    except ScheduleError as error:
        return _refused(collective, algorithm, shape, error)
    proved = shape
    try:
        if shape[0] * shape[1] > EXACT_UP_TO_GPUS:
            proved = stand_in(collective, algorithm, shape)
        build_schedule(collective, algorithm, *proved, size_bytes=1, slices=slices)
    except ScheduleError as error:
        return _wrong(collective, algorithm, proved, error)
    return None


def stand_in(collective: Collective, algorithm: str, shape: Shape) -> Shape:
    """The largest grid that is small, lies within `shape`, and is accepted by the algorithm.

    Raises `ScheduleError` if there is none.
    """
    domains, domain_size = min(shape[0], LARGEST_DOMAINS), min(shape[1], LARGEST_SIZE)
    for smaller in product(range(domains, 1, -1), range(domain_size, 0, -1)):
        if _is_accepted(collective, algorithm, smaller):
            return smaller
    small = f"{domains} x {domain_size} GPUs"
    raise ScheduleError(f"no grid of up to {small}, which could stand in for it, is accepted")


def _is_accepted(collective: Collective, algorithm: str, shape: Shape) -> bool:
    try:
        require_accepted(collective, algorithm, *shape)
    except ScheduleError:
        return False
    return True


def _refused(collective: Collective, algorithm: str, shape: Shape, error: ScheduleError) -> Words:
    what = f"{_named(collective, algorithm, shape)} is not possible: {error}"
    others = ", ".join(name for name in algorithms_of(collective) if name != algorithm)
    other = f", or another algorithm: {others}" if others else ""
    return what, f"use other fabric.domains and fabric.domain_size{other}"


def _wrong(collective: Collective, algorithm: str, shape: Shape, error: ScheduleError) -> Words:
    what = f"{_named(collective, algorithm, shape)} has a wrong schedule: {error}"
    return what, "mend its function in traffic_gen/workloads"


def _named(collective: Collective, algorithm: str, shape: Shape) -> str:
    return f"{collective} with the algorithm {algorithm!r} on {shape[0]} x {shape[1]} GPUs"
