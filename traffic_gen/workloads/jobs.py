"""Several jobs at once: the task of each on its partition of the grid."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from model.fabric.job_grid import JobGrid
from model.fabric.spec import FabricSpec
from model.job.concurrent_jobs import ConcurrentJobs, Partition, PlacedSteps, names_of
from traffic_gen.workloads.algorithms.collectives import Named
from traffic_gen.workloads.task import Task


@dataclass(frozen=True)
class Job:
    """A job: its name, its partition, and its task there."""

    name: str
    partition: Partition
    task: Task


@dataclass(frozen=True)
class Jobs(Task):
    """Jobs on a grid of GPUs, which begin together."""

    key = "jobs"
    grid: JobGrid
    jobs: tuple[Job, ...]

    @property
    def algorithm(self) -> str:
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

    def emulated_bytes(self, size_scale: float = 1.0) -> int:
        """Return the sum of the jobs' sizes at a scale."""
        return sum(job.task.emulated_bytes(size_scale) for job in self.jobs)

    @property
    def details(self) -> tuple[str, ...]:
        """Lines about the task and partition of each job, unless there is only one."""
        lines: list[str] = []
        for job in self.jobs if len(self.jobs) > 1 else ():
            origin = f", {job.task.origin}" if job.task.origin else ""
            lines.append(f"{job.name}: {job.task.name} on {job.partition}{origin}")
            lines += [f"  {line}" for line in job.task.details]
        return tuple(lines)

    @property
    def left_out(self) -> tuple[str, ...]:
        """What the jobs' files say, and their tasks have not."""
        return tuple(what for job in self.jobs for what in job.task.left_out)

    @property
    def collectives(self) -> tuple[Named, ...]:
        """The collectives of the jobs, each with its algorithm."""
        return tuple(named for job in self.jobs for named in job.task.collectives)

    @property
    def alone(self) -> tuple["Jobs", ...]:
        """Each job alone, on its own partition."""
        return tuple(Jobs(self.grid, (job,)) for job in self.jobs)

    @property
    def on_own_nics(self) -> "Jobs":
        """The same jobs of GPUs that share no NICs."""
        jobs = tuple(replace(job, task=job.task.on_own_nics) for job in self.jobs)
        return Jobs(replace(self.grid, gpus_per_nic=1), jobs)

    def steps(self, size_scale: float = 1.0, time_dilation: float = 1.0) -> ConcurrentJobs:
        """Build and prove the steps of all jobs, with bytes and seconds scaled."""
        placed = (
            PlacedSteps(job.name, job.partition, job.task.steps(size_scale, time_dilation))
            for job in self.jobs
        )
        return ConcurrentJobs(self.grid, tuple(placed))

    def crossings(self, spec: FabricSpec) -> Iterator[str]:
        """Yield how each job crosses rails."""
        pairs = self.pairs(spec)
        for job in self.jobs:
            own = np.isin(pairs[0], job.partition.ranks(self.grid))
            if sentence := job.task.crossing(pairs[:, own], self.grid):
                yield f"job {job.name}: {sentence}"
