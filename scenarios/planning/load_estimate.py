"""Estimate the load of a scenario's cases without predicting them: cheap, for any size."""

from dataclasses import dataclass, replace
from functools import lru_cache

from model.fabric.spec import FabricSpec, Spares
from model.prediction.load import Load, Need, Profile, need
from model.prediction.machine import Machine
from scenarios.scenario import Case
from traffic_gen.workloads.task import Task

# A scenario is planned and admitted by its busiest second.
WINDOW_S = 1.0


@dataclass(frozen=True)
class RealTask:
    """A task on a fabric at the real platform's rates, in its real size."""

    task: Task
    spec: FabricSpec

    @property
    def full_s(self) -> float:
        """Bandwidth term of a collective's completion time; of other work, a lower bound."""
        return self.task.full_s(self.spec)


def real_task(task: Task, spec: FabricSpec) -> RealTask:
    """Return a task on its fabric at real rates, without spares: the same for every scale."""
    unscaled = replace(
        spec,
        domains=spec.job_domains,
        domain_size=spec.job_size,
        bandwidth_scale=1.0,
        spares=Spares(),
    )
    return RealTask(task, unscaled)


def estimate_of(case: Case, spec: FabricSpec) -> Profile:
    """The profile of a case on its emulated fabric, with its emulated size."""
    real = estimate(real_task(case.task, spec))
    return real.scaled(spec.bandwidth_scale, case.size_scale)


@lru_cache(maxsize=64)
def estimate(real: RealTask) -> Profile:
    """Profile as if no flows shared a link; rates and times are the real platform's."""
    return real.task.estimate(real.spec)


def heaviest(
    profile: Profile, machine: Machine, ports: int, window_s: float = WINDOW_S
) -> tuple[Load, Need]:
    """Load per second, and its need, of the `window_s` seconds that need the most CPU time."""
    load = profile.busiest(window_s, lambda some: need(some, machine, ports).data)
    return load, need(load, machine, ports)
