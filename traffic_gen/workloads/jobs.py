"""Several jobs at once: the task of each on its partition of the grid."""

from dataclasses import dataclass
from typing import Protocol

from model.job.communicators import Shape
from model.job.concurrent_jobs import ConcurrentJobs, PlacedSteps, names_of
from model.job.partition import Partition
from model.workload.schedule import Steps
from traffic_gen.workloads.algorithms.collectives import Named
from traffic_gen.workloads.sized_collective import SizedCollective


class Task(Protocol):
    """The work of a case or a job, in its real size."""

    @property
    def name(self) -> str:
        """The name of the task."""

    @property
    def size_bytes(self) -> float:
        """The real size."""

    @property
    def largest_bytes(self) -> float:
        """The most real bytes that one transfer may have."""

    def steps(self, size_scale: float = 1.0, time_dilation: float = 1.0) -> Steps:
        """Build and prove the steps, with bytes and seconds scaled."""


@dataclass(frozen=True)
class Job:
    """A job: its name, its partition, and its task there."""

    name: str
    partition: Partition
    task: Task


@dataclass(frozen=True)
class Jobs:
    """Jobs on a grid of GPUs, which begin together."""

    shape: Shape
    jobs: tuple[Job, ...]

    @property
    def name(self) -> str:
        """The names of the jobs."""
        return names_of([job.name for job in self.jobs])

    @property
    def size_bytes(self) -> float:
        """The sum of the jobs' real sizes."""
        return sum(job.task.size_bytes for job in self.jobs)

    @property
    def largest_bytes(self) -> float:
        """The most real bytes that one transfer may have."""
        return max(job.task.largest_bytes for job in self.jobs)

    @property
    def collectives(self) -> tuple[Named, ...]:
        """The collectives of the jobs that execute one, each with its algorithm."""
        tasks = (job.task for job in self.jobs)
        return tuple(task.named for task in tasks if isinstance(task, SizedCollective))

    @property
    def alone(self) -> tuple["Jobs", ...]:
        """Each job alone, on its own partition."""
        return tuple(Jobs(self.shape, (job,)) for job in self.jobs)

    def steps(self, size_scale: float = 1.0, time_dilation: float = 1.0) -> ConcurrentJobs:
        """Build and prove the steps of all jobs, with bytes and seconds scaled."""
        return ConcurrentJobs(
            self.shape,
            tuple(
                PlacedSteps(job.name, job.partition, job.task.steps(size_scale, time_dilation))
                for job in self.jobs
            ),
        )
