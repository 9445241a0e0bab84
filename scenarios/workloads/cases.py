"""Workloads as cases on a fabric, in their real size."""

from dataclasses import replace

from model.fabric.spec import FabricSpec
from model.workload.generator import Generator
from scenarios.format.workloads import (
    AnyJob,
    AnyWorkload,
    InferenceWorkload,
    IterationWork,
    JobsWorkload,
    TraceWork,
)
from scenarios.scenario import Case
from scenarios.workloads.inference import inference_task
from scenarios.workloads.iterations import iteration_task
from scenarios.workloads.traces import trace_task
from traffic_gen.workloads.jobs import Job, Jobs
from traffic_gen.workloads.task import Task


def full_size_case(workload: AnyWorkload | AnyJob, spec: FabricSpec) -> Case:
    """A workload as a case on a fabric, in its real size; of several jobs, all together."""
    task, size_name = _task(workload, spec)
    name = "/".join((spec.kind, task.name, *_marked(workload.generator)))
    return Case(name, spec.kind, task, size_name, generator=workload.generator)


def _task(workload: AnyWorkload | AnyJob, spec: FabricSpec) -> tuple[Task, str]:
    """Return the task of a workload on a fabric, and the name of its size."""
    if isinstance(workload, JobsWorkload):
        jobs = Jobs(spec.job_shape, tuple(_job(job, spec) for job in workload.jobs))
        return jobs, jobs.size_name
    if isinstance(workload, TraceWork):
        return trace_task(workload, spec)
    if isinstance(workload, IterationWork):
        iteration = iteration_task(workload, spec)
        return iteration, iteration.size_name
    if isinstance(workload, InferenceWorkload):
        load = inference_task(workload, spec)
        return load, load.size_name
    collective = workload.on_grid(spec.job_shape)
    return collective, workload.size or collective.size_name


def _marked(generator: Generator) -> tuple[str, ...]:
    """The last part of a case's name, if its generator is not the usual one."""
    return () if generator is Generator.AGENT else (generator,)


def alone(case: Case) -> tuple[Case, ...]:
    """Return the parts of a case's task that are executed alone, too, as cases of their own."""
    return tuple(
        replace(case, name=f"{case.kind}/{task.name}", task=task, size_name=task.size_name)
        for task in case.task.alone
    )


def _job(job: AnyJob, spec: FabricSpec) -> Job:
    """Build a job as if its partition were a whole fabric."""
    partition = job.partition(*spec.job_shape)
    domains, size = partition.shape
    spares = replace(spec.spares, domains=0, gpus=0)
    own = replace(spec, domains=domains, domain_size=size, spares=spares)
    return Job(job.name, partition, _task(job, own)[0])
