"""The time of each of several jobs in a case."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from model.job.concurrent_jobs import ConcurrentJobs
from model.job.partition import written
from model.measurement.records import Repeat
from model.prediction.fluid import Prediction
from results.verdicts.summary import Summary, summarize


@dataclass(frozen=True)
class JobTime:
    """A job in a case: its partition, its task, and the seconds until its last byte arrived."""

    job: str
    domains: str
    rails: str
    task: str
    algorithm: str
    size_bytes: int
    digest: str
    measured: Summary
    modeled_s: float

    @property
    def ratio(self) -> float:
        """Measured median over modeled time."""
        return self.measured.median / self.modeled_s

    def plain(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "job": self.job,
            "domains": self.domains,
            "rails": self.rails,
            "collective": self.task,
            "algorithm": self.algorithm,
            "bytes": self.size_bytes,
            "measured_s": asdict(self.measured),
            "modeled_s": self.modeled_s,
            "ratio": self.ratio,
        }


def job_times(
    steps: ConcurrentJobs, executions: Iterable[Repeat], prediction: Prediction
) -> tuple[JobTime, ...]:
    """Return the time of each job.

    Only whole executions count; without any, there are no times.
    """
    whole = [repeat for repeat in executions if repeat.complete]
    if not whole:
        return ()
    measured = [steps.ends([record.arrived_ns for record in repeat.records]) for repeat in whole]
    modeled_s = steps.ends(prediction.arrival_s)
    return tuple(
        JobTime(
            job=job.name,
            domains=written(job.partition.domains),
            rails=written(job.partition.rails),
            task=job.steps.task,
            algorithm=job.steps.algorithm,
            size_bytes=job.steps.size_bytes,
            digest=job.digest,
            measured=summarize([ends_ns[job.name] / 1e9 for ends_ns in measured]),
            modeled_s=modeled_s[job.name],
        )
        for job in steps.jobs
    )
