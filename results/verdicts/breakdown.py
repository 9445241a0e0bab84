"""Where a case's time went: parts of special work, and how flows shared the busiest link."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from model.arrays import Floats, Ints
from model.fabric.health import Epoch
from model.fabric.shaping import wire_bytes
from model.fabric.topology import RankGpus, Topology
from model.job.concurrent_jobs import ConcurrentJobs, written
from model.measurement.records import Repeat
from model.prediction.fluid import Prediction, busiest_flows
from model.prediction.load import is_contended
from model.prediction.network import Network, networks_of, overlap
from model.training.reduction import Change
from model.training.steps import IterationSteps, begins_s, exposure_s
from model.workload.schedule import RequestSteps, Steps
from model.workload.transfers.columns import Transfers
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

    @classmethod
    def of(
        cls, steps: Steps, topology: Topology, executions: Sequence[Repeat], prediction: Prediction
    ) -> "Breakdown":
        """Divide the time of a case. Only whole executions count; without any, it has no parts."""
        if isinstance(steps, IterationSteps):
            return cls(iteration=iteration_result(steps, executions, prediction))
        if isinstance(steps, RequestSteps):
            return cls(inference=request_result(steps, topology, executions, prediction))
        if isinstance(steps, ConcurrentJobs):
            return cls(jobs=job_times(steps, executions, prediction))
        return cls()


def iteration_result(
    steps: IterationSteps, executions: Iterable[Repeat], prediction: Prediction
) -> IterationResult:
    """Divide measured and modeled time of an iteration."""
    end_s, measured = np.array(prediction.arrival_s), []
    modeled = exposure_s(steps, begins_s(steps, end_s), end_s)
    for repeat in executions:
        if repeat.complete:
            times = np.array([(r.started_ns, r.arrived_ns) for r in repeat.records]) / 1e9
            measured.append(exposure_s(steps, times[:, 0], times[:, 1]))
    parts_s = {
        name: MeasuredModeled(float(np.mean([one[name] for one in measured])), seconds)
        for name, seconds in modeled.items()
        if measured
    }
    return IterationResult(parts_s, steps.reduction.changes)


def request_result(
    steps: RequestSteps, topology: Topology, executions: Iterable[Repeat], prediction: Prediction
) -> RequestResult:
    """Return the latencies of a request load."""
    waited_s = [
        steps.latencies_s(np.array([record.arrived_ns for record in repeat.records]) / 1e9)
        for repeat in executions
        if repeat.complete
    ]
    sent_bytes, nic_bps = wire_bytes(steps.size_bytes), topology.spec.emulated_nic_bps
    modeled = percentiles(steps.latencies_s(np.array(prediction.arrival_s)))
    measured = percentiles(np.concatenate(waited_s)) if waited_s else {}
    return RequestResult(
        count=len(steps.arrival_ns),
        offered_load=offered_load(steps, sent_bytes, nic_bps),
        latency_s={name: MeasuredModeled(value, modeled[name]) for name, value in measured.items()},
    )


def offered_load(steps: RequestSteps, sent_bytes: float, nic_bps: float) -> float:
    """Return the rate that requests need until the last one arrives, as a part of all NICs' rate.

    `sent_bytes` are those of all requests on NIC links.
    """
    until_s = int(steps.arrival_ns[-1]) / 1e9
    return sent_bytes * 8 / (steps.gpus * nic_bps * until_s)


def percentiles(latencies_s: Floats) -> dict[str, float]:
    """Return the percentiles of latencies by the nearest rank, in seconds."""
    values = np.percentile(latencies_s, PERCENTILES, method="inverted_cdf").tolist()
    return dict(zip((f"p{number}" for number in PERCENTILES), values, strict=True))


def job_times(
    steps: ConcurrentJobs, executions: Iterable[Repeat], prediction: Prediction
) -> tuple[JobTime, ...]:
    """Return the time of each job."""
    whole = [repeat for repeat in executions if repeat.complete]
    if not whole:
        return ()
    ends = [steps.ends([record.arrived_ns for record in repeat.records]) for repeat in whole]
    modeled_s, times = steps.ends(prediction.arrival_s), list[JobTime]()
    for job in steps.jobs:
        measured_s = summarize([ends_ns[job.name] / 1e9 for ends_ns in ends])
        times.append(
            JobTime(
                job=job.name,
                domains=written(job.partition.domains),
                rails=written(job.partition.rails),
                collective=job.steps.task,
                algorithm=job.steps.algorithm,
                bytes=job.steps.size_bytes,
                measured_s=measured_s,
                modeled_s=modeled_s[job.name],
                ratio=measured_s.median / modeled_s[job.name],
                digest=job.digest,
            )
        )
    return tuple(times)


@dataclass(frozen=True)
class Contention:
    """The flows on the link direction that needs the longest for its bytes, where flows contend.

    A share is a flow's measured rate over its modeled one; `jain` is their index of fairness, 1 if
    they are equal (Jain, Chiu, Hawe 1984). At most `grain_bytes` of a flow leave at a time: a
    segment of TCP, a packet of RoCE, or all its windows, which wait in the queue of a GPU that
    forwards them. The median of the link's transfers has `grains` of them.
    """

    link: str
    flows: int
    jain: float
    least_share: float
    most_share: float
    grain_bytes: int
    grains: float


def on_links(
    transfers: Transfers,
    epoch: Epoch | None,
    gpus: RankGpus,
    prediction: Prediction,
    repeats: Sequence[Repeat],
) -> tuple[Contention | None, float | None]:
    """Return how flows shared links, and the overlap; neither if paths changed: without an epoch.

    Rates count of these executions only.
    """
    if epoch is None:
        return None, None
    arrival_s = np.array(prediction.arrival_s)
    pair, (net,) = networks_of(transfers, [epoch], gpus)
    shared = contention(transfers, pair, net, arrival_s, repeats)
    return shared, overlap(transfers, pair, net, arrival_s)


def contention(
    transfers: Transfers, pair: Ints, net: Network, modeled_s: Floats, repeats: Sequence[Repeat]
) -> Contention | None:
    """Compare the flows on the busiest link with their model; `None` where none contend.

    `pair` is the pair of each transfer in the network, `modeled_s` the prediction of its arrival.
    """
    complete = [repeat for repeat in repeats if repeat.complete]
    if not complete or not is_contended(transfers, pair, net):
        return None
    hop, on_link, grain_bytes, grains = busiest_flows(transfers, pair, net)
    lasted: dict[int, list[int]] = {number: [] for number in on_link.tolist()}
    for record in (record for repeat in complete for record in repeat.records):
        if record.transfer in lasted:
            lasted[record.transfer].append(max(1, record.arrived_ns - record.started_ns))
    wanted_s = (modeled_s - transfers.begins_s(modeled_s))[on_link]
    shares = wanted_s / (np.array([fmean(times) for times in lasted.values()]) / 1e9)
    return Contention(
        link=f"{hop.link.name} from {hop.sender}",
        flows=len(on_link),
        jain=float(shares.sum() ** 2 / (len(shares) * (shares**2).sum())),
        least_share=float(shares.min()),
        most_share=float(shares.max()),
        grain_bytes=grain_bytes,
        grains=grains,
    )
