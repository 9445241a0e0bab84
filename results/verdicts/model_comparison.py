"""Compare the measured with the modeled times of each case."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from model.fabric.health import Epoch
from model.fabric.spec import FabricSpec
from model.fabric.topology import RankGpus, Topology
from model.job.concurrent_jobs import ConcurrentJobs
from model.measurement.records import CaseExecutions, Repeat
from model.prediction.fluid import Prediction
from model.prediction.network import networks, pairs_of
from model.prediction.overlap import overlap
from model.training.steps import IterationSteps
from model.workload.generator import FRAMINGS, Generator
from model.workload.requests import RequestSteps
from model.workload.schedule import Schedule, Steps
from model.workload.transfers.collective import Collective
from results.verdicts.byte_conservation import Carried, link_reasons, payload_reasons
from results.verdicts.fidelity import Fidelity, machine_reasons
from results.verdicts.iteration_parts import IterationResult, iteration_result
from results.verdicts.job_times import JobTime, job_times
from results.verdicts.machine_headroom import Observation, machine_headroom
from results.verdicts.request_latencies import RequestResult, request_result
from results.verdicts.summary import Summary, summarize
from results.verdicts.verdict import Reason, Verdict, worst


@dataclass(frozen=True)
class Thresholds:
    """Distance of measured / modeled from 1: above `within`, warn; above `limit`, fail."""

    within: float
    limit: float


@dataclass(frozen=True)
class CaseObservations:
    """Observations during a case, beside its executions.

    `machine` has one for each repeat, `None` if the machine is not judged. `carried` is `None` if
    the fabric changed during the case. `known` are findings from before the case: links with
    an inconclusive calibration.
    """

    machine: tuple[Observation, ...] | None = None
    dropped_packets: int = 0
    carried: Carried | None = None
    known: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class Measured:
    """All measurements of a case.

    `epoch` is the fabric that carried it, `None` if the fabric changed during the case. With
    `check_data`, the agents checked the results during the executions, so times do not count; nor
    do the times of a generator that is not timed.
    """

    topology: Topology
    schedule: Steps
    executions: CaseExecutions
    observations: CaseObservations = CaseObservations()
    epoch: Epoch | None = None
    gpus: RankGpus = ()
    check_data: bool = False
    generator: Generator = Generator.AGENT

    @property
    def times_count(self) -> bool:
        """Whether the completion times are held against the model."""
        return self.generator.is_timed and not self.check_data

    @property
    def data_is_right(self) -> bool | None:
        """Whether all arrived data is right, every element or packet; `None` if not checked."""
        if self.times_count:
            return None
        return all(repeat.complete and not repeat.errors for repeat in self.executions.all)


@dataclass(frozen=True)
class Work:
    """The work of a case: its bytes, which are the real ones divided by a scale.

    Training iterations, traces and request loads have no collective; `task` names the work. `gpus`
    are those of a communicator, `variant` names the communicators unless they are all GPUs, and the
    matrix of an all-to-all. `chunks` are those that a schedule cuts its data into.
    """

    fabric: FabricSpec
    task: str
    collective: Collective | None
    algorithm: str
    gpus: int
    size_bytes: int
    size_scale: float
    generator: Generator = Generator.AGENT
    variant: str = ""
    chunks: int | None = None


@dataclass(frozen=True)
class CompletionTimes:
    """Seconds of the executions of a case.

    Disturbed executions are among the measured ones only if `disturbed_counted`: too few others
    were left.
    """

    measured: Summary
    warmup_s: tuple[float, ...]
    disturbed_s: tuple[float, ...]
    disturbed_counted: bool


@dataclass(frozen=True)
class Modeled:
    """The modeled time of a case, and its lower bound.

    `overlap` is the part of the modeled time in which HB domains and NICs carry data at the same
    time, `None` if paths changed.
    """

    completion_s: float
    lower_bound_s: float
    overlap: float | None


@dataclass(frozen=True)
class Breakdown:
    """The time of special work by its parts: of an iteration, of requests, of several jobs.

    `iteration` and `inference` are `None` for other work; `jobs` is empty for anything but several
    jobs.
    """

    iteration: IterationResult | None = None
    inference: RequestResult | None = None
    jobs: tuple[JobTime, ...] = ()


@dataclass(frozen=True)
class CaseResult:
    """A case against the model. Times are emulated seconds; bandwidths are the real platform's.

    `data_is_right` is `None` if the results were not checked. `rail_crossings` names the traffic
    between rails that no spine switch joins.
    """

    name: str
    work: Work
    times: CompletionTimes
    modeled: Modeled
    breakdown: Breakdown
    retransmits: int
    found: tuple[Reason, ...]
    fidelity: Fidelity
    data_is_right: bool | None
    rail_crossings: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the findings."""
        return worst(verdict for verdict, _ in self.found)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The findings, in sentences."""
        return tuple(reason for _, reason in self.found)

    @property
    def measured_s(self) -> float:
        """The measured median."""
        return self.times.measured.median

    @property
    def ratio(self) -> float:
        """Measured median over modeled time."""
        return self.measured_s / self.modeled.completion_s

    @property
    def time_dilation(self) -> float:
        """Emulated seconds for each second of the real platform."""
        return self.work.fabric.bandwidth_scale / self.work.size_scale

    @property
    def real_s(self) -> float:
        """The measured median, converted to seconds on the real platform."""
        return self.measured_s / self.time_dilation

    @property
    def algbw_gbyte_per_s(self) -> float | None:
        """Algorithm bandwidth: size over time on the real platform (nccl-tests, PERFORMANCE.md).

        `None` without a collective.
        """
        if self.work.collective is None:
            return None
        bytes_per_s = self.work.size_bytes / self.measured_s
        return bytes_per_s * self.work.fabric.bandwidth_scale / 1e9

    @property
    def busbw_gbyte_per_s(self) -> float | None:
        """Bus bandwidth: the load of the busiest link in an ideal ring; `None` as for algbw."""
        algbw, work = self.algbw_gbyte_per_s, self.work
        if algbw is None or work.collective is None:
            return None
        return algbw * busbw_factor(work.collective, work.gpus)


def busbw_factor(collective: Collective, gpus: int) -> float:
    """Bus bandwidth over algorithm bandwidth (nccl-tests, PERFORMANCE.md)."""
    match collective:
        case Collective.ALL_REDUCE:
            return 2 * (gpus - 1) / gpus
        case Collective.ALL_GATHER | Collective.REDUCE_SCATTER | Collective.ALL_TO_ALL:
            return (gpus - 1) / gpus
        case Collective.BROADCAST | Collective.SEND_RECV:
            return 1.0


class Mismatch(ValueError):
    """A measurement and a prediction are for different topologies or schedules."""


def compare(
    name: str, measured: Measured, prediction: Prediction, size_scale: float, limits: Thresholds
) -> CaseResult:
    """Compare a measurement with its prediction; raise `Mismatch` if that is for another case."""
    topology, schedule = measured.topology, measured.schedule
    if prediction.topology_digest != topology.digest:
        raise Mismatch(f"{name}: the prediction is for another topology")
    if prediction.schedule_digest != schedule.digest:
        raise Mismatch(f"{name}: the prediction is for another schedule")
    times, fidelity = _times(measured.executions), fidelity_of(measured)
    breakdown = _breakdown(measured, prediction)
    found = (
        *judge(measured, times.measured, prediction, limits),
        *_of_jobs(breakdown.jobs, limits),
        *fidelity.found,
    )
    return CaseResult(
        name=name,
        work=_work(measured, size_scale),
        times=times,
        modeled=_modeled(measured, prediction),
        breakdown=breakdown,
        retransmits=measured.executions.retransmits,
        found=found,
        fidelity=fidelity,
        data_is_right=measured.data_is_right,
    )


def _times(executions: CaseExecutions) -> CompletionTimes:
    """With no complete repeat the case fails; times of the incomplete ones are still shown."""
    complete_s = _complete_s(executions.repeats)
    return CompletionTimes(
        measured=summarize(complete_s or [repeat.completion_s for repeat in executions.repeats]),
        warmup_s=_complete_s(executions.warmups),
        disturbed_s=_complete_s(executions.disturbed),
        disturbed_counted=executions.disturbed_counted,
    )


def _breakdown(measured: Measured, prediction: Prediction) -> Breakdown:
    repeats = measured.executions.repeats
    match measured.schedule:
        case IterationSteps() as steps:
            return Breakdown(iteration=iteration_result(steps, repeats, prediction))
        case RequestSteps() as steps:
            found = request_result(steps, measured.topology, repeats, prediction)
            return Breakdown(inference=found)
        case ConcurrentJobs() as steps:
            return Breakdown(jobs=job_times(steps, repeats, prediction))
    return Breakdown()


def _modeled(measured: Measured, prediction: Prediction) -> Modeled:
    return Modeled(
        completion_s=prediction.completion_s,
        lower_bound_s=prediction.lower_bound_s,
        overlap=_overlap(measured, prediction),
    )


def _overlap(measured: Measured, prediction: Prediction) -> float | None:
    if measured.epoch is None:
        return None
    gpus = measured.gpus or measured.topology.job_gpus
    transfers, arrival_s = measured.schedule.transfers, np.array(prediction.arrival_s)
    pairs, pair = pairs_of(transfers, len(gpus))
    return overlap(transfers, pair, networks([measured.epoch], gpus, pairs)[0], arrival_s)


def _work(measured: Measured, size_scale: float) -> Work:
    steps = measured.schedule
    members, variant, chunks = steps.gpus, "", None
    if isinstance(steps, Schedule):
        members, variant = steps.members or steps.gpus, steps.variant
        chunks = steps.chunks
    return Work(
        fabric=measured.topology.spec,
        task=steps.task,
        collective=steps.collective,
        algorithm=steps.algorithm,
        gpus=members,
        size_bytes=steps.size_bytes,
        size_scale=size_scale,
        generator=measured.generator,
        variant=variant,
        chunks=chunks,
    )


def _complete_s(executions: Iterable[Repeat]) -> tuple[float, ...]:
    return tuple(repeat.completion_s for repeat in executions if repeat.complete)


def judge(
    measured: Measured, summary: Summary, prediction: Prediction, limits: Thresholds
) -> Iterator[Reason]:
    """Yield findings on the completeness, results and times of the executions."""
    yield from _failures(measured, prediction)
    if measured.times_count:
        yield from ratio_reasons(summary.median, prediction.completion_s, limits)


def fidelity_of(measured: Measured) -> Fidelity:
    """Return the fidelity: findings on the machine and the bytes, without the model."""
    seen = measured.observations
    found = (*seen.known, *_bytes(measured), *_losses(measured))
    if seen.machine is None:
        return Fidelity(found, None)
    headroom = machine_headroom(seen.machine, seen.dropped_packets)
    reasons = (*machine_reasons(headroom), *_disturbances(measured.executions), *found)
    return Fidelity(reasons, headroom)


def _disturbances(executions: CaseExecutions) -> Iterator[Reason]:
    """Warn if disturbed executions count, as there were too many to leave them out."""
    if executions.disturbed_counted:
        yield (
            Verdict.WARN,
            f"the machine disturbed {len(executions.disturbed)} of {len(executions.repeats)} "
            "executions, too many to leave them out: all count",
        )


def _bytes(measured: Measured) -> Iterator[Reason]:
    """Check byte conservation; check links and switches only if all executions completed."""
    schedule, executions = measured.schedule, measured.executions.all
    carried, epoch = measured.observations.carried, measured.epoch
    yield from payload_reasons(schedule, executions)
    whole = all(repeat.complete for repeat in executions)
    if carried is not None and epoch is not None and whole:
        framing = FRAMINGS[measured.generator]
        yield from link_reasons(schedule, epoch, measured.gpus, executions, carried, framing)


def _failures(measured: Measured, prediction: Prediction) -> Iterator[Reason]:
    executions = measured.executions.all
    for repeat in executions:
        if not repeat.complete:
            yield Verdict.FAIL, f"execution {repeat.number} did not complete"
        yield from data_reasons(repeat)
    fastest_s = min(_complete_s(executions), default=prediction.lower_bound_s)
    if fastest_s < prediction.lower_bound_s:
        yield (
            Verdict.FAIL,
            f"{fastest_s:.4f} s is below the lower bound of {prediction.lower_bound_s:.4f} s: "
            "the testbed is wrong",
        )


def data_reasons(execution: Repeat) -> Iterator[Reason]:
    """Yield a failure for each wrong result of an execution whose data the agents checked."""
    for error in execution.errors:
        yield Verdict.FAIL, f"wrong result in execution {execution.number}: {error}"


def _losses(measured: Measured) -> Iterator[Reason]:
    """Report notes and TCP retransmits, which pass, and packets dropped by queues, which warn."""
    executions, dropped = measured.executions, measured.observations.dropped_packets
    for note in dict.fromkeys(note for repeat in executions.repeats for note in repeat.notes):
        yield Verdict.PASS, note
    if executions.retransmits:
        plural = "" if executions.retransmits == 1 else "s"
        yield Verdict.PASS, f"TCP retransmitted {executions.retransmits} segment{plural}"
    if dropped:
        yield Verdict.WARN, f"queues dropped {dropped} packets"


def ratio_reasons(measured_s: float, modeled_s: float, limits: Thresholds) -> Iterator[Reason]:
    """Yield the first threshold that measured / modeled time exceeds, failure first."""
    away = abs(measured_s / modeled_s - 1)
    for verdict, threshold in ((Verdict.FAIL, limits.limit), (Verdict.WARN, limits.within)):
        if away > threshold:
            yield verdict, f"{away:.1%} away from the model, more than {threshold:.1%}"
            return


def _of_jobs(jobs: Sequence[JobTime], limits: Thresholds) -> Iterator[Reason]:
    """Judge the time of each job as that of a case; the case itself has the time of the last."""
    last_s = max((job.modeled_s for job in jobs), default=0.0)
    for job in jobs:
        if job.modeled_s < last_s:
            for verdict, reason in ratio_reasons(job.measured.median, job.modeled_s, limits):
                yield verdict, f"job {job.job}: {reason}"
