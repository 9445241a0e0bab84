"""Several jobs at once: the steps of each on its own partition, begun together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise

import numpy as np

from model.job.communicators import LONGEST_LABEL, Shape
from model.job.partition import Partition
from model.workload.schedule import Steps, fingerprint
from model.workload.transfers.columns import Transfers, starts_of
from model.workload.transfers.proof import ScheduleError


@dataclass(frozen=True, eq=False)
class PlacedSteps:
    """The proved steps of a job, among the ranks of its partition from 0."""

    name: str
    partition: Partition
    steps: Steps

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the job's work and place, independent of other jobs."""
        return fingerprint(self.steps.transfers, self.name, self.partition, self.steps.digest)


@dataclass(frozen=True, eq=False)
class ConcurrentJobs:
    """The steps of all jobs on a grid of GPUs.

    No step of a job waits for a step of another job. Raises `ScheduleError` for jobs that share a
    GPU, or are not within the grid.
    """

    shape: Shape
    jobs: tuple[PlacedSteps, ...]
    collective: None = None
    task: str = "jobs"

    def __post_init__(self) -> None:
        for job in self.jobs:
            if not job.partition.is_within(self.shape):
                raise ScheduleError(f"job {job.name}: {job.partition} are not in the grid")
            if job.steps.gpus != len(job.partition.ranks(self.shape[1])):
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
        return self.shape[0] * self.shape[1]

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
                    np.array(job.partition.ranks(self.shape[1])), first=mine.start, first_chunk=0
                )
                for job, mine in self.places()
            ]
        )

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
        return fingerprint(self.transfers, "jobs", self.shape, *(job.digest for job in self.jobs))


def names_of(names: list[str]) -> str:
    """Return a short name for several jobs."""
    joined = "+".join(names)
    return joined if len(joined) <= LONGEST_LABEL else f"{len(names)}-jobs"
