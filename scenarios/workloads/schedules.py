"""Schedules of a scenario's workloads: wrong and impossible ones are refused as bad input.

The proof of a schedule takes about a second for 1024 GPUs, for each of the cases. The schedule of a
large fabric is therefore proved on a smaller grid here; a run proves it in full when it builds it.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import TypeVar

from model.errors import InputError, Problem
from model.fabric.spec import FabricSpec
from model.workload.schedule import Steps
from model.workload.transfers.columns import Transfers
from model.workload.transfers.proof import ScheduleError
from scenarios.format.issues import Issue, Place
from scenarios.format.keys import ScenarioFile
from scenarios.format.workloads import (
    CollectiveWork,
    InferenceWorkload,
    IterationWork,
    TraceWork,
)
from scenarios.scenario import Case
from scenarios.workloads.inference import inference_issues
from scenarios.workloads.iterations import iteration_issues
from scenarios.workloads.jobs import work_entries
from scenarios.workloads.traces import trace_issues
from traffic_gen.workloads.algorithms.collectives import algorithms_of
from traffic_gen.workloads.algorithms.matrices import Given
from traffic_gen.workloads.sized_collective import SizedCollective
from traffic_gen.workloads.task import EXACT_UP_TO_GPUS, MOST_FOLLOWED_GPUS

# Limit of pairs of GPUs times slices times phases: the proof of this many parts takes seconds.
MOST_PARTS = 2_000_000
Built = TypeVar("Built")


def case_schedule(case: Case, spec: FabricSpec) -> Steps:
    """The proved steps of a case on its fabric; raises `InputError` if they are wrong."""
    return _built(case, spec, case.task.steps)


def case_transfers(case: Case, spec: FabricSpec) -> Transfers:
    """The transfers of a case on its fabric, without a proof if that is cheaper."""
    return _built(case, spec, case.task.transfers)


def _built(case: Case, spec: FabricSpec, build: Callable[[float, float], Built]) -> Built:
    try:
        return build(case.size_scale, spec.bandwidth_scale / case.size_scale)
    except ScheduleError as error:
        raise InputError(Problem(case.where, *case.task.refusal(error))) from error


def schedule_issues(file: ScenarioFile) -> Iterator[Issue]:
    """Issues of all tasks on their grids."""
    for place, work, shape in work_entries(file):
        match work:
            case CollectiveWork():
                yield from _collective_issues(place, work.on_grid(shape))
            case TraceWork():
                yield from _data_issues(file, "a trace")
                yield from trace_issues(place, work, shape)
            case IterationWork():
                yield from _data_issues(file, "an iteration")
                yield from iteration_issues(place, work, shape)
            case InferenceWorkload():
                yield from _data_issues(file, "inference")
                yield from inference_issues(place, work, shape)


def _data_issues(file: ScenarioFile, kind: str) -> Iterator[Issue]:
    """Refuse a data check of work without a result."""
    if file.check_data:
        what = f"is not possible with {kind}, which has no result to check"
        yield Issue(("check_data",), what, "leave it out")


def _collective_issues(place: Place, task: SizedCollective) -> Iterator[Issue]:
    """Issues of a collective: its algorithm may refuse the grid, or be wrong on it."""
    wrong = list(_wrong_groups(task))
    yield from (Issue((*place, key), what) for key, what in wrong)
    issue = None if wrong else _issue(replace(task, size_bytes=1))
    if issue is not None:
        yield Issue(place, *issue)


def _wrong_groups(task: SizedCollective) -> Iterator[tuple[str, str]]:
    """Yield the key and the issue of a wrong communicator, or of a matrix that does not fit it."""
    matrix, gpus = task.matrix, prod(task.shape)
    try:
        groups = task.groups
    except ValueError as error:
        yield "communicator", str(error)
        return
    if not task.is_regular and gpus > MOST_FOLLOWED_GPUS:
        key = "communicator" if matrix is None else "matrix"
        yield key, f"is possible for up to {MOST_FOLLOWED_GPUS} GPUs, got {gpus}"
    elif not task.is_regular and (parts := _parts(task)) > MOST_PARTS:
        key = "communicator" if matrix is None else "slices"
        yield key, f"makes {parts} parts for pairs of GPUs, more than the {MOST_PARTS} possible"
    elif isinstance(matrix, Given):
        for ranks in {len(group.ranks) for group in groups} - {len(matrix.rows)}:
            yield "matrix", f"has {len(matrix.rows)} rows, for {ranks} GPUs"


def _parts(task: SizedCollective) -> int:
    """Return the most parts that slices and phases cut the data of all pairs into."""
    return sum(len(group.ranks) ** 2 for group in task.groups) * task.chunk_slices * task.phases


IssueText = tuple[str, str]
"""What is wrong, and a hint."""


@lru_cache(maxsize=256)
def _issue(task: SizedCollective) -> IssueText | None:
    """Return the issue of a collective on a grid, and a hint; `None` if its schedule is right."""
    try:
        task.require_accepted()
    except ScheduleError as error:
        return _refused(task, error)
    proved = task
    try:
        if prod(task.shape) > EXACT_UP_TO_GPUS and task.is_regular:
            proved = task.stand_in()
        proved.steps()
    except ScheduleError as error:
        return proved.refusal(error)
    return None


def _refused(task: SizedCollective, error: ScheduleError) -> IssueText:
    what = f"{task.on_grid} is not possible: {error}"
    others = ", ".join(name for name in algorithms_of(task.collective) if name != task.algorithm)
    other = f", or another algorithm: {others}" if others else ""
    return what, f"use another grid of GPUs{other}"
