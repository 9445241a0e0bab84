"""The grid of each workload and job of a scenario, and partitions that do not fit."""

from collections.abc import Iterator
from itertools import combinations
from math import prod

from model.job.communicators import Shape
from scenarios.format.issues import Issue, Place
from scenarios.format.keys import ScenarioFile
from scenarios.format.workloads import AnyJob, AnyWork, JobsWorkload

# Transfers of several jobs are computed in full: no closed form describes them together.
MOST_GPUS = 256


def work_entries(file: ScenarioFile) -> Iterator[tuple[Place, AnyWork, Shape]]:
    """Yield each workload, or each of its jobs, with its place in the file and its grid of GPUs."""
    grid = file.fabric.domains, file.fabric.domain_size
    for number, workload in enumerate(file.workloads):
        if not isinstance(workload, JobsWorkload):
            yield ("workloads", number), workload, grid
            continue
        for which, job in enumerate(workload.jobs):
            yield ("workloads", number, "jobs", which), job, job.partition(*grid).shape


def job_issues(file: ScenarioFile) -> Iterator[Issue]:
    """Issues of partitions, and of keys that are not possible with several jobs."""
    if any(isinstance(workload, JobsWorkload) for workload in file.workloads):
        yield from _excluded(file)
    for number, workload in enumerate(file.workloads):
        if isinstance(workload, JobsWorkload):
            yield from _wrong_partitions(file, ("workloads", number, "jobs"), workload.jobs)


def _excluded(file: ScenarioFile) -> Iterator[Issue]:
    gpus = prod((file.fabric.domains, file.fabric.domain_size))
    if gpus > MOST_GPUS:
        what = f"are too many for several jobs: at most {MOST_GPUS}, got {gpus} GPUs"
        yield Issue(("fabric", "domains"), what)
    if file.check_data:
        what = "is not possible with several jobs"
        yield Issue(("check_data",), what, "check the data of each as a workload of its own")
    if file.faults:
        what = "are not possible with several jobs"
        yield Issue(("faults",), what, "use a workload with a communicator")


def _wrong_partitions(
    file: ScenarioFile, place: Place, jobs: tuple[AnyJob, ...]
) -> Iterator[Issue]:
    grid = file.fabric.domains, file.fabric.domain_size
    for which, job in enumerate(jobs):
        yield from _outside((*place, which), job, grid)
        if prod(job.partition(*grid).shape) == 1:
            yield Issue((*place, which), f"job {job.name}: must have two GPUs or more, got one")
    for (_, one), (which, other) in combinations(enumerate(jobs), 2):
        partition, later = one.partition(*grid), other.partition(*grid)
        if partition.overlaps(later):
            what = f"job {other.name} ({later}) has GPUs of job {one.name} ({partition})"
            yield Issue((*place, which), what, "give each job GPUs of its own")


def _outside(place: Place, job: AnyJob, grid: Shape) -> Iterator[Issue]:
    for key, span, count in (("domains", job.domains, grid[0]), ("rails", job.rails, grid[1])):
        if span is not None and span[1] >= count:
            what = f"job {job.name}: there are only {key} 0 to {count - 1}, got {span[1]}"
            yield Issue((*place, key), what)
