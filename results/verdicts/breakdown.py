"""The time of special work by its parts: of an iteration, of requests, of several jobs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from model.arrays import Floats
from model.fabric.shaping import wire_bytes
from model.fabric.topology import Topology
from model.job.concurrent_jobs import ConcurrentJobs, written
from model.measurement.records import Repeat
from model.prediction.fluid import Prediction
from model.training.reduction import Change
from model.training.steps import IterationSteps, begins_s, exposure_s
from model.workload.schedule import RequestSteps, Steps
from results.store.records import HIDDEN, OPTIONAL
from results.verdicts.summary import MeasuredModeled, Summary, summarize

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class IterationResult:
    """The parts of an iteration: compute, exposed traffic by dimension, waiting.

    They are emulated seconds, a mean over ranks and, measured, over executions.
    """

    parts_s: Mapping[str, MeasuredModeled]
    reduction: Sequence[Change]


@dataclass(frozen=True)
class RequestResult:
    """The number of requests, and their latencies in emulated seconds, from arrival to last byte.

    A percentile is that of all executions, by the nearest rank. `offered_load` is the rate that
    requests need until the last one arrives, as a part of the rate of all NICs.
    """

    count: int
    offered_load: float
    latency_s: Mapping[str, MeasuredModeled]


@dataclass(frozen=True)
class JobTime:
    """A job in a case: its partition, its task, and the seconds until its last byte arrived.

    `digest` is that of its work and place.
    """

    job: str
    domains: str
    rails: str
    collective: str
    algorithm: str
    bytes: int
    measured_s: Summary
    modeled_s: float
    ratio: float
    digest: str = field(metadata=HIDDEN)


@dataclass(frozen=True)
class Breakdown:
    """The parts of one of these kinds of work; of other work, nothing."""

    iteration: IterationResult | None = field(default=None, metadata=OPTIONAL)
    inference: RequestResult | None = field(default=None, metadata=OPTIONAL)
    jobs: tuple[JobTime, ...] = field(default=(), metadata=OPTIONAL)


def breakdown(
    steps: Steps, topology: Topology, executions: Sequence[Repeat], prediction: Prediction
) -> Breakdown:
    """Divide the time of a case. Only whole executions count; without any, there are no parts."""
    match steps:
        case IterationSteps():
            return Breakdown(iteration=iteration_result(steps, executions, prediction))
        case RequestSteps():
            return Breakdown(inference=request_result(steps, topology, executions, prediction))
        case ConcurrentJobs():
            return Breakdown(jobs=job_times(steps, executions, prediction))
    return Breakdown()


def iteration_result(
    steps: IterationSteps, executions: Iterable[Repeat], prediction: Prediction
) -> IterationResult:
    """Divide measured and modeled time of an iteration."""
    end_s = np.array(prediction.arrival_s)
    modeled = exposure_s(steps, begins_s(steps, end_s), end_s)
    measured = [_exposed_s(steps, repeat) for repeat in executions if repeat.complete]
    parts_s = {
        name: MeasuredModeled(float(np.mean([one[name] for one in measured])), seconds)
        for name, seconds in modeled.items()
        if measured
    }
    return IterationResult(parts_s, steps.reduction.changes)


def _exposed_s(steps: IterationSteps, repeat: Repeat) -> Mapping[str, float]:
    times = np.array([(r.started_ns, r.arrived_ns) for r in repeat.records]) / 1e9
    return exposure_s(steps, times[:, 0], times[:, 1])


def request_result(
    steps: RequestSteps, topology: Topology, executions: Iterable[Repeat], prediction: Prediction
) -> RequestResult:
    """Return the latencies of a request load."""
    waited_s = [_latencies_s(steps, repeat) for repeat in executions if repeat.complete]
    modeled = _percentiles(steps.latencies_s(np.array(prediction.arrival_s)))
    measured = _percentiles(np.concatenate(waited_s)) if waited_s else {}
    return RequestResult(
        count=len(steps.arrival_ns),
        offered_load=_offered_load(steps, topology),
        latency_s={name: MeasuredModeled(value, modeled[name]) for name, value in measured.items()},
    )


def _latencies_s(steps: RequestSteps, repeat: Repeat) -> Floats:
    return steps.latencies_s(np.array([record.arrived_ns for record in repeat.records]) / 1e9)


def _percentiles(latencies_s: Floats) -> dict[str, float]:
    values = np.percentile(latencies_s, PERCENTILES, method="inverted_cdf").tolist()
    return {f"p{number}": value for number, value in zip(PERCENTILES, values, strict=True)}


def _offered_load(steps: RequestSteps, topology: Topology) -> float:
    rate_bps = steps.gpus * topology.spec.emulated_nic_bps
    until_s = int(steps.arrival_ns[-1]) / 1e9
    return wire_bytes(steps.size_bytes) * 8 / (rate_bps * until_s)


def job_times(
    steps: ConcurrentJobs, executions: Iterable[Repeat], prediction: Prediction
) -> tuple[JobTime, ...]:
    """Return the time of each job."""
    whole = [repeat for repeat in executions if repeat.complete]
    if not whole:
        return ()
    ends = [steps.ends([record.arrived_ns for record in repeat.records]) for repeat in whole]
    modeled_s = steps.ends(prediction.arrival_s)
    measured = {
        job.name: summarize([ends_ns[job.name] / 1e9 for ends_ns in ends]) for job in steps.jobs
    }
    return tuple(
        JobTime(
            job=job.name,
            domains=written(job.partition.domains),
            rails=written(job.partition.rails),
            collective=job.steps.task,
            algorithm=job.steps.algorithm,
            bytes=job.steps.size_bytes,
            measured_s=measured[job.name],
            modeled_s=modeled_s[job.name],
            ratio=measured[job.name].median / modeled_s[job.name],
            digest=job.digest,
        )
        for job in steps.jobs
    )
