"""Workloads as cases on a fabric, in their real size."""

from dataclasses import replace

from model.fabric.spec import FabricKind, FabricSpec
from model.workload.generator import Generator
from scenarios.format.workloads import (
    AnyJob,
    AnyWorkload,
    CollectiveJob,
    CollectiveWorkload,
    InferenceWorkload,
    IterationWork,
    JobsWorkload,
    TraceWork,
)
from scenarios.scenario import Case
from scenarios.workloads.inference import inference_case
from scenarios.workloads.iterations import iteration_case
from scenarios.workloads.traces import trace_case
from traffic_gen.workloads.jobs import Job, Jobs


def full_size_case(workload: AnyWorkload | AnyJob, spec: FabricSpec) -> Case:
    """A workload as a case on a fabric, in its real size; of several jobs, all together."""
    if isinstance(workload, JobsWorkload):
        return _together(workload, spec)
    if isinstance(workload, TraceWork):
        case = trace_case(workload, spec)
        return replace(case, name="/".join((case.name, *_marked(case.generator))))
    if isinstance(workload, IterationWork):
        return iteration_case(workload, spec)
    if isinstance(workload, InferenceWorkload):
        return inference_case(workload, spec)
    return _collective(workload, spec)


def _collective(workload: CollectiveWorkload | CollectiveJob, spec: FabricSpec) -> Case:
    task = workload.on_grid(spec.job_shape)
    return Case(
        name="/".join((spec.kind, task.name, *_marked(workload.generator))),
        kind=spec.kind,
        task=task,
        size_name=workload.size or f"{workload.size_bytes:g} B",
        generator=workload.generator,
    )


def _marked(generator: Generator) -> tuple[str, ...]:
    """The last part of a case's name, if its generator is not the usual one."""
    return () if generator is Generator.AGENT else (generator,)


def _together(workload: JobsWorkload, spec: FabricSpec) -> Case:
    jobs = tuple(_job(job, spec) for job in workload.jobs)
    return _jobs_case(Jobs(spec.job_shape, jobs), spec.kind)


def _jobs_case(jobs: Jobs, kind: FabricKind) -> Case:
    return Case(f"{kind}/jobs/{jobs.name}", kind, jobs, f"{jobs.size_bytes:g} B")


def alone(case: Case) -> tuple[Case, ...]:
    """Return each job of a case of several jobs as a case of its own; of another case, none."""
    if not isinstance(case.task, Jobs):
        return ()
    cases = (_jobs_case(job, case.kind) for job in case.task.alone)
    return tuple(replace(one, size_scale=case.size_scale) for one in cases)


def _job(job: AnyJob, spec: FabricSpec) -> Job:
    """Build a job as if its partition were a whole fabric."""
    partition = job.partition(*spec.job_shape)
    domains, size = partition.shape
    spares = replace(spec.spares, domains=0, gpus=0)
    own = replace(spec, domains=domains, domain_size=size, spares=spares)
    return Job(job.name, partition, full_size_case(job, own).task)
