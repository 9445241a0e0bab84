"""Workloads as cases on a fabric, and the steps of cases."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from model.errors import InputError, Problem
from model.fabric.spec import FabricSpec
from model.workload.generator import Generator
from model.workload.schedule import Steps
from model.workload.transfers.columns import Transfers
from model.workload.transfers.proof import ScheduleError
from scenarios.format.workloads.kinds import AnyWorkload
from scenarios.scenario import Case

Built = TypeVar("Built")


def full_size_case(workload: AnyWorkload, spec: FabricSpec) -> Case:
    """A workload as a case on a fabric, in its real size; of several jobs, all together."""
    task, generator = workload.task(spec), workload.generator
    mark = () if generator is Generator.AGENT else (generator,)
    name = "/".join((spec.kind, task.name, *mark))
    return Case(name, spec.kind, task, workload.size_name(task), generator=generator)


def alone(case: Case) -> tuple[Case, ...]:
    """Return the parts of a case's task that are executed alone, too, as cases of their own."""
    return tuple(
        replace(case, name=f"{case.kind}/{task.name}", task=task, size_name=task.size_name)
        for task in case.task.alone
    )


def case_schedule(case: Case, spec: FabricSpec) -> Steps:
    """The proved steps of a case on its fabric; raises `InputError` if they are wrong."""
    return _built(case, spec, case.task.steps)


def case_transfers(case: Case, spec: FabricSpec) -> Transfers:
    """The transfers of a case on its fabric, without a proof if that is cheaper."""
    return _built(case, spec, case.task.transfers)


def _built(case: Case, spec: FabricSpec, build: Callable[[float, float], Built]) -> Built:
    try:
        return build(case.size_scale, spec.bandwidth_scale / case.size_scale)
    except ScheduleError as error:
        raise InputError(Problem(case.where, *case.task.refusal(error))) from error
