"""Several jobs at once: the steps of each on its own partition of the GPUs, begun together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise, product

import numpy as np

from model.fabric.job_grid import JobGrid
from model.job.communicators import LONGEST_LABEL
from model.workload.schedule import Steps
from model.workload.transfers.columns import Transfers, starts_of
from model.workload.transfers.lanes import Lanes
from model.workload.transfers.proof import ScheduleError

Span = tuple[int, int]
"""The first and the last of consecutive numbers."""


@dataclass(frozen=True)
class Partition:
    """The GPUs of consecutive rails in consecutive HB domains.

    A rail-only fabric without failures carries the traffic between two of them on links of the
    partition alone: the transit GPU has the domain of one GPU and the rail of the other.
    """

    domains: Span
    rails: Span

    def ranks(self, grid: JobGrid) -> tuple[int, ...]:
        """Return the ranks of its GPUs in a grid, in their order."""
        slots = product(*map(_numbers, (self.domains, self.rails)))
        return tuple(grid.rank_at[slot] for slot in slots if slot in grid.rank_at)

    def of(self, grid: JobGrid) -> JobGrid:
        """Return its own part of a grid."""
        return grid.part(_numbers(self.domains), _numbers(self.rails))

    def is_within(self, grid: JobGrid) -> bool:
        """Whether a grid has all of its slots."""
        return self.domains[1] < grid.domains and self.rails[1] < grid.size

    def overlaps(self, other: "Partition") -> bool:
        """Whether some GPU is in both."""
        return _meet(self.domains, other.domains) and _meet(self.rails, other.rails)

    def __str__(self) -> str:
        """Domains and rails, as a scenario has them."""
        return f"domains {written(self.domains)}, rails {written(self.rails)}"


def written(span: Span) -> str:
    """Return a span as a scenario has it: `2`, or `0-3`."""
    first, last = span
    return f"{first}" if first == last else f"{first}-{last}"


def _numbers(span: Span) -> range:
    return range(span[0], span[1] + 1)


def _meet(one: Span, other: Span) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


@dataclass(frozen=True, eq=False)
class PlacedSteps:
    """The proved steps of a job, among the ranks of its partition from 0."""

    name: str
    partition: Partition
    steps: Steps

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the job's work and place, independent of other jobs."""
        return self.steps.transfers.fingerprint(self.name, self.partition, self.steps.digest)


@dataclass(frozen=True, eq=False)
class ConcurrentJobs:
    """The steps of all jobs on a grid of GPUs.

    No step of a job waits for a step of another job. Raises `ScheduleError` for jobs that share a
    GPU, or are not within the grid.
    """

    grid: JobGrid
    jobs: tuple[PlacedSteps, ...]
    task: str = "jobs"

    def __post_init__(self) -> None:
        for job in self.jobs:
            if not job.partition.is_within(self.grid):
                raise ScheduleError(f"job {job.name}: {job.partition} are outside the grid")
            if job.steps.gpus != len(job.partition.ranks(self.grid)):
                raise ScheduleError(f"job {job.name}: its steps are for {job.steps.gpus} ranks")
        for one, other in combinations(self.jobs, 2):
            if one.partition.overlaps(other.partition):
                raise ScheduleError(f"the jobs {one.name} and {other.name} share GPUs")

    @property
    def algorithm(self) -> str:
        """The names of the jobs."""
        return names_of([job.name for job in self.jobs])

    @property
    def gpus(self) -> int:
        """The number of all GPUs of the grid, including those without a job."""
        return self.grid.gpus

    @property
    def size_bytes(self) -> int:
        """The sum of the jobs' sizes."""
        return sum(job.steps.size_bytes for job in self.jobs)

    @cached_property
    def transfers(self) -> Transfers:
        """The steps of the jobs, one job after the other."""
        return Transfers.joined(
            [
                job.steps.transfers.placed(
                    np.array(job.partition.ranks(self.grid)), first=mine.start, first_chunk=0
                )
                for job, mine in self.places()
            ]
        )

    def over(self, lanes: Lanes) -> "ConcurrentJobs":
        """Return the same jobs with their transfers spread over lanes."""
        jobs = []
        for job in self.jobs:
            ranks = np.array(job.partition.ranks(self.grid))
            jobs.append(replace(job, steps=job.steps.over(lanes.among(ranks))))
        return replace(self, jobs=tuple(jobs))

    def places(self) -> Iterator[tuple[PlacedSteps, slice]]:
        """Yield each job with the range of its steps among all."""
        starts = starts_of([len(job.steps.transfers) for job in self.jobs]).tolist()
        for job, (first, end) in zip(self.jobs, pairwise(starts), strict=True):
            yield job, slice(first, end)

    def ends(self, moments: Sequence[float]) -> dict[str, float]:
        """Return the end of each job, from the moments at which all steps end."""
        return {job.name: max(moments[mine]) for job, mine in self.places()}

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the contents."""
        digests = (job.digest for job in self.jobs)
        return self.transfers.fingerprint("jobs", self.grid.shape, *digests)


def names_of(names: list[str]) -> str:
    """Return a short name for several jobs."""
    joined = "+".join(names)
    return joined if len(joined) <= LONGEST_LABEL else f"{len(names)}-jobs"
