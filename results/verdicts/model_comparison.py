"""Compare the measured with the modeled times of each case."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import isclose

from model.fabric.health import Epoch
from model.fabric.spec import FabricKind, FabricSpec
from model.fabric.topology import RankGpus, Topology
from model.fabric.transport import Transport
from model.measurement.records import CaseExecutions, QueuePairSample, Repeat
from model.prediction.fluid import Prediction
from model.prediction.timeouts import late_answers
from model.sentences import counted
from model.workload.generator import OVERHEADS, Generator
from model.workload.schedule import Schedule, Steps
from model.workload.transfers.collective import Collective
from results.store.records import FLAT, OPTIONAL
from results.verdicts.breakdown import Breakdown, Contention, JobTime, on_links
from results.verdicts.byte_conservation import Carried, link_reasons, payload_reasons
from results.verdicts.fidelity import (
    LIMITS,
    LOSSY_LIMITS,
    Fidelity,
    Observation,
    machine_headroom,
    machine_reasons,
)
from results.verdicts.summary import Summary, summarize
from results.verdicts.verdict import Judgement, Reason, Thresholds, Verdict, is_timed, with_verdict

# With fewer grains in a transfer, contended traffic was up to 5 % away from its model
# (docs/reference/measurements.md, "Contention").
FEWEST_GRAINS = 10
# The part of the platform's time that the emulation may hide before a note says so.
HIDDEN_PART = 0.03


@dataclass(frozen=True)
class Measured:
    """All measurements of a case, and observations during it.

    `epoch` is the fabric that carried it; it and `carried` are `None` if the fabric changed during
    the case. With `check_data`, the agents checked the results during the executions, so times do
    not count; nor do the times of a generator that is not timed. `machine` has an observation of
    each repeat, `None` if the machine is not judged. `known` are findings from before the case:
    links with an inconclusive calibration.
    """

    topology: Topology
    schedule: Steps
    executions: CaseExecutions
    epoch: Epoch | None = None
    gpus: RankGpus = ()
    check_data: bool = False
    generator: Generator = Generator.AGENT
    machine: tuple[Observation, ...] | None = None
    dropped_packets: int = 0
    carried: Carried | None = None
    known: tuple[Reason, ...] = ()

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
class Fabric:
    """The fabric of a case."""

    kind: FabricKind
    domains: int
    domain_size: int
    platform: str


@dataclass(frozen=True)
class Work:
    """The work of a case: its bytes, which are the real ones divided by a scale.

    `collective` names the work, also if it is none. `gpus` are those of each communicator, `None`
    if they differ in it; `variant` names the communicators unless they are all GPUs, and the matrix
    of an all-to-all. `chunks` are those that a schedule cuts its data into, `schedule_digest` is
    that of all steps. `time_dilation` is the number of emulated seconds for each second of the real
    platform.
    """

    fabric: Fabric
    collective: str
    algorithm: str
    generator: Generator
    variant: str
    gpus: int | None
    bytes: int
    chunks: int | None
    schedule_digest: str
    bandwidth_scale: float
    size_scale: float
    time_dilation: float


@dataclass(frozen=True)
class CaseResult:
    """A case against the model. Times are emulated seconds; bandwidths are the real platform's.

    `overlap` is the part of the modeled time in which HB domains and NICs carry data at the same
    time, `None` if paths changed. `real_s` is the measured median in seconds of the real platform,
    `ratio` is the median over the modeled time. Bandwidths are those of nccl-tests
    (PERFORMANCE.md): size over time, and the load of the busiest link in an ideal ring; `None`
    without a collective, or if all are `incomplete`. Disturbed executions are among the
    measured ones only if `disturbed_counted`: too few others were left.
    `data_is_right` is `None` if the results were not checked. `rail_crossings` names the traffic
    between rails that no spine switch joins. `on_paper_s` is the real platform's time, without
    terms of the emulation. `contention` tells how flows shared links, where they contend. `notes`
    only inform. `doubts` are as those of a `Judgement`.
    """

    case: str
    work: Work = field(metadata=FLAT)
    measured_s: Summary
    modeled_s: float
    lower_bound_s: float
    overlap: float | None
    real_s: float
    ratio: float
    algbw_gbyte_per_s: float | None
    busbw_gbyte_per_s: float | None
    warmup_s: tuple[float, ...]
    disturbed_s: tuple[float, ...]
    disturbed_counted: bool
    retransmits: int
    data_is_right: bool | None
    verdict: Verdict
    reasons: tuple[str, ...]
    fidelity: Fidelity
    breakdown: Breakdown = field(metadata=FLAT)
    rail_crossings: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    on_paper_s: float | None = None
    contention: Contention | None = field(default=None, metadata=OPTIONAL)
    notes: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    doubts: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    incomplete: bool = field(default=False, metadata=OPTIONAL)


def busbw_factor(collective: Collective, gpus: int) -> float:
    """Bus bandwidth over algorithm bandwidth (nccl-tests, PERFORMANCE.md)."""
    if collective is Collective.ALL_REDUCE:
        return 2 * (gpus - 1) / gpus
    return (gpus - 1) / gpus if collective.has_shards else 1.0


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
    executions = measured.executions
    # With no complete repeat the case fails; times of the incomplete ones are still kept.
    complete_s = _complete_s(executions.repeats)
    timed = executions.repeats if measured.times_count else ()
    gpus, work = measured.gpus or topology.job_gpus, _work(measured, size_scale)
    times = summarize(complete_s or [repeat.completion_s for repeat in executions.repeats])
    parts = Breakdown.of(schedule, topology, executions.repeats, prediction)
    shared, overlaps = on_links(schedule.transfers, measured.epoch, gpus, prediction, timed)
    of_times = [*grain_reasons(shared), *_failures(measured, prediction)]
    if timed and complete_s:
        of_times += ratio_reasons(times.median, prediction.completion_s, limits)
        of_times += _of_jobs(parts.jobs, times.median, limits)
    fidelity = _fidelity(measured)
    judgement = Judgement.of((*of_times, *with_verdict(fidelity)))
    algbw, busbw = _bandwidths(schedule, work, times.median) if complete_s else (None, None)
    return CaseResult(
        case=name,
        work=work,
        measured_s=times,
        modeled_s=prediction.completion_s,
        lower_bound_s=prediction.lower_bound_s,
        overlap=overlaps,
        real_s=times.median / work.time_dilation,
        ratio=times.median / prediction.completion_s,
        algbw_gbyte_per_s=algbw,
        busbw_gbyte_per_s=busbw,
        warmup_s=_complete_s(executions.warmups),
        disturbed_s=_complete_s(executions.disturbed),
        disturbed_counted=executions.disturbed_counted,
        retransmits=executions.retransmits,
        data_is_right=measured.data_is_right,
        fidelity=fidelity,
        breakdown=parts,
        contention=shared,
        incomplete=not complete_s,
        **vars(judgement),
    )


def with_paper(result: CaseResult, on_paper_s: float | None) -> CaseResult:
    """Add the real platform's time on paper, and a note where the emulation hides a part of it."""
    less = 1 - result.real_s / on_paper_s if on_paper_s else 0.0
    if not is_timed(vars(result)) or less <= HIDDEN_PART:
        return replace(result, on_paper_s=on_paper_s)
    note = (
        f"the platform's time is more than {HIDDEN_PART:.0%} less than on paper: emulated links "
        "have no latency but their delays, and pass the first bytes of short transfers at once; "
        "a larger size, or a smaller size_scale, makes both matter less"
    )
    return replace(result, on_paper_s=on_paper_s, notes=(*result.notes, note))


def _bandwidths(steps: Steps, work: Work, seconds: float) -> tuple[float | None, float | None]:
    """Return algorithm bandwidth and bus bandwidth, in Gbyte/s of the real platform."""
    if not isinstance(steps, Schedule):
        return None, None
    algbw = work.bytes / seconds * work.bandwidth_scale / 1e9
    return algbw, algbw * busbw_factor(steps.collective, work.gpus) if work.gpus else None


def grain_reasons(found: Contention | None) -> Iterator[Reason]:
    """Yield a note if flows contend in grains that are too coarse to trust their sharing."""
    if found is not None and found.grains < FEWEST_GRAINS:
        what = f"flows that contend for a link take turns of {found.grain_bytes / 1e3:.3g} kB"
        part = "all" if found.grains <= 1 else f"{1 / found.grains:.0%}"
        yield Verdict.PASS, f"{what}, {part} of a transfer: too coarse to trust how they share it"


def _work(measured: Measured, size_scale: float) -> Work:
    steps, spec = measured.schedule, measured.topology.spec
    gpus: int | None = steps.gpus
    variant, chunks = "", None
    if isinstance(steps, Schedule):
        gpus = gpus if steps.members == 0 else steps.members
        variant, chunks = steps.variant, steps.chunks
    return Work(
        fabric=Fabric(spec.kind, spec.domains, spec.domain_size, spec.platform),
        collective=steps.task,
        algorithm=steps.algorithm,
        generator=measured.generator,
        variant=variant,
        gpus=gpus,
        bytes=steps.size_bytes,
        chunks=chunks,
        schedule_digest=steps.digest,
        bandwidth_scale=spec.bandwidth_scale,
        size_scale=size_scale,
        time_dilation=spec.bandwidth_scale / size_scale,
    )


def _complete_s(executions: Iterable[Repeat]) -> tuple[float, ...]:
    return tuple(repeat.completion_s for repeat in executions if repeat.complete)


def _fidelity(measured: Measured) -> Fidelity:
    """Return the fidelity: findings on the machine and the bytes, without the model."""
    of_bytes, executions = tuple(_of_bytes(measured)), measured.executions
    if measured.machine is None:
        return Fidelity.of(of_bytes)
    headroom = machine_headroom(measured.machine, measured.dropped_packets)
    # Links or queues lose packets as the scenario has it, or some packets overtake others.
    spec, links = measured.topology.spec, measured.topology.links
    is_lossy = bool(spec.nic.queue) or spec.sprays or any(link.impairment.loss for link in links)
    of_machine = [*machine_reasons(headroom, LOSSY_LIMITS if is_lossy else LIMITS)]
    if executions.disturbed_counted:
        which = f"{len(executions.disturbed)} of {len(executions.repeats)} executions"
        what = f"the machine disturbed {which}, too many to exclude: all count"
        of_machine.append((Verdict.WARN, what))
    return Fidelity.of((*of_machine, *of_bytes), headroom=headroom)


def _of_bytes(measured: Measured) -> Iterator[Reason]:
    """Check byte conservation; report notes and TCP retransmits, which pass, and dropped packets.

    Links and switches are checked only if all executions completed.
    """
    yield from measured.known
    executions, carried, epoch = measured.executions.all, measured.carried, measured.epoch
    yield from payload_reasons(measured.schedule, executions)
    whole = all(repeat.complete for repeat in executions)
    if carried is not None and epoch is not None and whole:
        overhead, schedule, gpus = OVERHEADS[measured.generator], measured.schedule, measured.gpus
        yield from link_reasons(schedule, epoch, gpus, executions, carried, overhead)
    repeats, spec = measured.executions.repeats, measured.topology.spec
    for note in dict.fromkeys(note for repeat in repeats for note in repeat.notes):
        yield Verdict.PASS, note
    if again := measured.executions.retransmits:
        is_tcp = spec.transport is Transport.TCP
        who, what = ("TCP", "segment") if is_tcp else ("RoCE and TCP", "packet")
        overtaken = "a sprayed packet that others overtake counts as lost" if spec.sprays else ""
        reasons = filter(None, (overtaken, late_answers([epoch or Epoch(measured.topology)])))
        yield Verdict.PASS, ": ".join([f"{who} retransmitted {counted(again, what)}", *reasons])
    if measured.dropped_packets:
        kind = Verdict.PASS if spec.nic.queue else Verdict.WARN
        yield kind, f"queues dropped {counted(measured.dropped_packets, 'packet')}"
    yield from _cuts([one for repeat in repeats for one in repeat.queue_pairs], spec)


def _cuts(samples: Sequence[QueuePairSample], spec: FabricSpec) -> Iterator[Reason]:
    """Note how far congestion control cut queue pairs: what it cuts returns slowly, in no model."""
    by_marks = [one.rate_bps for one in samples if one.alpha is not None and one.rate_bps]
    least = min(by_marks, default=spec.emulated_port_bps) / spec.emulated_port_bps
    if least < 1:
        yield Verdict.PASS, f"DCQCN cut a queue pair to {least:.1%} of its port's rate"
    # A window below one packet is paced.
    by_delay = [(one.window, one.rate_bps is None) for one in samples if one.alpha is None]
    window, is_whole = min(by_delay, default=(spec.roce.window, True))
    if window < spec.roce.window or not is_whole:
        to = f"to {window:.3g}" if is_whole else "below 1"
        most = counted(spec.roce.window, "packet")
        yield Verdict.PASS, f"Swift cut the window of a queue pair {to} of {most}"


def _failures(measured: Measured, prediction: Prediction) -> Iterator[Reason]:
    executions = measured.executions.all
    for repeat in executions:
        if not repeat.complete:
            yield Verdict.FAIL, f"execution {repeat.number} did not complete{causes(repeat)}"
        yield from data_reasons(repeat)
    fastest_s = min(_complete_s(executions), default=prediction.lower_bound_s)
    if fastest_s < (bound_s := prediction.lower_bound_s):
        what = f"{fastest_s:.4f} s is below the lower bound of {bound_s:.4f} s"
        yield Verdict.FAIL, f"{what}: the testbed is wrong"


def causes(unfinished: Repeat) -> str:
    """Return why an execution did not complete, to be said after that; empty if unknown."""
    errors = unfinished.errors
    others = f" (one of {len(errors)})" if len(errors) > 1 else ""
    return f": {errors[0]}{others}" if errors else ""


def data_reasons(execution: Repeat) -> Iterator[Reason]:
    """Yield a failure for each wrong result of an execution whose data the agents checked."""
    for error in execution.errors if execution.complete else ():
        yield Verdict.FAIL, f"wrong result in execution {execution.number}: {error}"


def ratio_reasons(measured_s: float, modeled_s: float, limits: Thresholds) -> Iterator[Reason]:
    """Judge the distance of measured / modeled time from 1, unless it is within the limits."""
    away = abs(measured_s / modeled_s - 1)
    if (verdict := limits.verdict(away)) is not Verdict.PASS:
        limit = limits.fail if verdict is Verdict.FAIL else limits.warn
        yield verdict, f"{away:.1%} away from the model, more than {limit:.1%}"


def _of_jobs(jobs: Sequence[JobTime], last_s: float, limits: Thresholds) -> Iterator[Reason]:
    """Judge the time of each job as that of a case; the case itself ends with the last one."""
    modeled_last_s = max((job.modeled_s for job in jobs), default=0.0)
    for job in jobs:
        measured_s = job.measured_s.median
        if not (isclose(measured_s, last_s) and isclose(job.modeled_s, modeled_last_s)):
            for verdict, reason in ratio_reasons(measured_s, job.modeled_s, limits):
                yield verdict, f"job {job.job}: {reason}"
