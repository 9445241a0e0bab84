"""The kinds of workloads: one of them, or several at once as jobs on partitions of the grid."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Annotated, ClassVar, Self, get_args

from pydantic import Discriminator, Field, Tag, model_validator

from model.fabric.job_grid import JobGrid
from model.fabric.spec import FabricSpec
from scenarios.format.issues import TAGGED, Issue, Place, Refused
from scenarios.format.workloads.collective import CollectiveJob, CollectiveWork, CollectiveWorkload
from scenarios.format.workloads.inference import InferenceWorkload
from scenarios.format.workloads.iteration import IterationJob, IterationWorkload
from scenarios.format.workloads.trace import TraceJob, TraceWorkload
from scenarios.format.workloads.work import ByTime, Excludes, Work
from traffic_gen.workloads.jobs import Job, Jobs
from traffic_gen.workloads.task import MOST_FOLLOWED_GPUS, Task

MOST_JOBS = 16
NO_JOBS = "cannot be combined with several jobs"


def _key_of(entry: object) -> str:
    """Return the tag of a workload's or job's entry: its kind, told by a key."""
    if isinstance(entry, Work):
        return TAGGED + entry.key
    keys = [kind.key for kind in KINDS if isinstance(entry, dict) and kind.key in entry]
    return TAGGED + (keys or [CollectiveWork.key])[-1]


AnyJob = Annotated[
    Annotated[CollectiveJob, Tag(f"{TAGGED}collective")]
    | Annotated[TraceJob, Tag(f"{TAGGED}trace")]
    | Annotated[IterationJob, Tag(f"{TAGGED}iteration")],
    Discriminator(_key_of),
]


class JobsWork(Work):
    """Several jobs at once, each on a partition of its own."""

    key = "jobs"
    excludes: ClassVar[Excludes] = {
        "check_data": (NO_JOBS, "check the data of each as a workload of its own"),
        "faults": (NO_JOBS, "use a workload with a communicator"),
    }
    jobs: tuple[AnyJob, ...] = Field(max_length=MOST_JOBS)
    """the jobs, which begin together; their keys are below"""

    @model_validator(mode="after")
    def _jobs_have_names(self) -> Self:
        if len(self.jobs) < 2:
            raise Refused(f"must have two jobs or more, got {len(self.jobs)}", key="jobs")
        for name, count in Counter(job.name for job in self.jobs).items():
            if count > 1:
                raise Refused(f"duplicate job {name!r}", key="jobs")
        return self

    def task(self, spec: FabricSpec) -> Jobs:
        """Return all jobs on a fabric."""
        return Jobs(spec.job_grid, tuple(_placed(job, spec) for job in self.jobs))

    def issues(self, place: Place, grid: JobGrid, platform: str) -> Iterator[Issue]:
        """Yield the issues of the jobs."""
        for which, job in enumerate(self.jobs):
            part = job.partition(grid).of(grid)
            yield from job.placed_issues((*place, "jobs", which), part, platform)

    def idle_keys(self) -> Iterator[str]:
        """Yield those of the jobs."""
        for which, job in enumerate(self.jobs):
            yield from (f"jobs.{which}.{what}" for what in job.idle_keys())

    def given_sizes(self, place: Place, grid: JobGrid) -> Iterator[tuple[Place, Task]]:
        """Yield the tasks of the jobs whose sizes are in the file."""
        for which, job in enumerate(self.jobs):
            yield from job.given_sizes((*place, "jobs", which), job.partition(grid).of(grid))

    def early_issues(
        self, place: Place, grid: JobGrid, platform: str | None, nics: int
    ) -> Iterator[Issue]:
        """Yield issues of too many GPUs, and of wrong partitions."""
        # No closed form describes several jobs together.
        if (gpus := grid.gpus) > MOST_FOLLOWED_GPUS:
            what = f"several jobs can have at most {MOST_FOLLOWED_GPUS} GPUs, got {gpus}"
            yield Issue(("fabric", "domains"), what)
        for which, job in enumerate(self.jobs):
            yield from _partition_issues((*place, "jobs", which), job, grid)
        for (_, one), (which, other) in combinations(enumerate(self.jobs), 2):
            partition, later = one.partition(grid), other.partition(grid)
            if partition.overlaps(later):
                what = f"job {other.name} ({later}) shares GPUs with job {one.name} ({partition})"
                yield Issue((*place, "jobs", which), what, "give each job GPUs of its own")


class JobsWorkload(ByTime, JobsWork):
    """Several jobs to execute."""


def _placed(job: AnyJob, spec: FabricSpec) -> Job:
    """Return a job on its partition, as if that were a whole fabric."""
    partition = job.partition(spec.job_grid)
    part, spares = partition.of(spec.job_grid), replace(spec.spares, domains=0, gpus=0)
    if isinstance(job, CollectiveJob):
        return Job(job.name, partition, job.on_grid(part))
    own = replace(
        spec, domains=part.domains, domain_size=part.size, missing=part.missing, spares=spares
    )
    return Job(job.name, partition, job.task(own))


def _partition_issues(place: Place, job: AnyJob, grid: JobGrid) -> Iterator[Issue]:
    """Yield issues of a partition that is not within the grid, or has a single GPU."""
    spans = ("domains", job.domains, grid.domains), ("rails", job.rails, grid.size)
    for key, span, count in spans:
        if span is not None and span[1] >= count:
            what = f"job {job.name}: must be {key} 0 to {count - 1}, got {span[1]}"
            yield Issue((*place, key), what)
    if (gpus := job.partition(grid).of(grid).gpus) < 2:
        got = "one" if gpus else "none"
        yield Issue(place, f"job {job.name}: must have two GPUs or more, got {got}")


AnyWorkload = Annotated[
    Annotated[CollectiveWorkload, Tag(f"{TAGGED}collective")]
    | Annotated[TraceWorkload, Tag(f"{TAGGED}trace")]
    | Annotated[IterationWorkload, Tag(f"{TAGGED}iteration")]
    | Annotated[InferenceWorkload, Tag(f"{TAGGED}inference")]
    | Annotated[JobsWorkload, Tag(f"{TAGGED}jobs")],
    Discriminator(_key_of),
]


_UNION, _ = get_args(AnyWorkload)
KINDS: tuple[type[Work], ...] = tuple(get_args(kind)[0] for kind in get_args(_UNION))
