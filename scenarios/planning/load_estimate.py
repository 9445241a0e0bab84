"""Estimate the load of a scenario's cases without predicting them: cheap, for any size."""

from dataclasses import dataclass, replace
from functools import lru_cache

from model.arrays import Ints
from model.fabric.health import Epoch
from model.fabric.shaping import wire_bytes
from model.fabric.spec import FabricSpec, Spares
from model.fabric.topology import build_topology
from model.job.communicators import Shape
from model.prediction.budget import Need, need
from model.prediction.closed_forms import Grid
from model.prediction.fluid import lower_bound_s
from model.prediction.load import SLICES, Load, Profile, profile
from model.prediction.machine import Machine
from model.prediction.network import healthy_network, networks, pairs_of
from model.workload.transfers.columns import Transfers
from scenarios.scenario import Case
from scenarios.workloads.schedules import stand_in
from traffic_gen.workloads.jobs import Task
from traffic_gen.workloads.sized_collective import SizedCollective

# A scenario is planned and admitted by its busiest second.
WINDOW_S = 1.0


@dataclass(frozen=True)
class RealTask:
    """A task on a fabric at the real platform's rates, in its real size."""

    task: Task
    spec: FabricSpec

    @property
    def full_s(self) -> float:
        """Bandwidth term of a collective's completion time on the real platform, without headers.

        Of any other task, a lower bound by each rank and each link.
        """
        if not isinstance(self.task, SizedCollective):
            return profile_steps(self).least_s
        if not self.task.is_regular:
            return estimate(self).completion_s / wire_bytes(1)
        form, grid = self.task.how.closed_form, _grid(self.task, self.spec)
        return form.completion_s(self.spec.kind, grid, self.task.scaled_bytes())


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


def _grid(task: SizedCollective, spec: FabricSpec) -> Grid:
    """Return the grid of a communicator's GPUs, with their bandwidths in bytes/s."""
    domains, size = task.groups[0].shape
    return Grid(size, domains, spec.hb.rate_bps / 8, spec.nic.rate_bps / 8, task.chunk_slices)


def estimate_of(case: Case, spec: FabricSpec) -> Profile:
    """The profile of a case on its emulated fabric, with its emulated size."""
    found = estimate(real_task(case.task, spec))
    return found.scaled(spec.bandwidth_scale, case.size_scale)


@lru_cache(maxsize=64)
def estimate(real: RealTask) -> Profile:
    """Profile as if no flows shared a link; rates and times are the real platform's."""
    if not isinstance(real.task, SizedCollective):
        return profile_steps(real).profile
    if not real.task.is_regular:
        return _each_transfer(real.task, real.spec)
    return _of_regular(real.task, real.spec)


def _each_transfer(task: SizedCollective, spec: FabricSpec) -> Profile:
    topology, sent = build_topology(spec), transfers_of(task)
    return profile(sent, *healthy_network(sent, topology), topology)


def _of_regular(task: SizedCollective, spec: FabricSpec) -> Profile:
    """Scale the profile of a smaller grid to the time and transfers of a whole one."""
    small = stand_in(task)
    smaller = _smaller(spec, small.shape)
    found = _each_transfer(small, smaller)
    if (small, smaller) == (task, spec):
        return found
    stretch = RealTask(task, spec).full_s / RealTask(small, smaller).full_s
    # GPUs of both have the same bytes/s.
    more = stretch * spec.gpus / smaller.gpus
    form, grid = task.how.closed_form, _grid(task, spec)
    each = len(task.groups) * form.transfers(grid) / SLICES
    return replace(
        found,
        completion_s=found.completion_s * stretch,
        size_bytes={key: tuple(p * more for p in parts) for key, parts in found.size_bytes.items()},
        transfers=(each,) * SLICES,
        steps=form.steps(grid),
    )


def _smaller(spec: FabricSpec, shape: Shape) -> FabricSpec:
    """Return a fabric of the same kind for a grid small enough to follow each transfer."""
    domains, domain_size = shape
    spines = max(1, round(spec.nic.spines * domains / spec.domains))
    return replace(
        spec,
        domains=domains,
        domain_size=domain_size,
        hb=replace(spec.hb, leaves=min(spec.hb.leaves, domain_size)),
        nic=replace(spec.nic, spines=spines, leaves=min(spec.nic.leaves, domains)),
    )


# Cached: a case is followed for its load on each fabric, and again for its rail crossings.
@lru_cache(maxsize=8)
def transfers_of(task: SizedCollective) -> Transfers:
    """Return the transfers of a collective in its real size, without proof."""
    return task.transfers()


@dataclass(frozen=True, eq=False)
class StepsProfile:
    """The profile of a task with times of its own, and its least completion time in seconds.

    `pairs` has the sources and the destinations of all pairs of ranks with a transfer or compute.
    """

    profile: Profile
    least_s: float
    pairs: tuple[Ints, Ints]


@lru_cache(maxsize=16)
def profile_steps(real: RealTask) -> StepsProfile:
    """Profile each step of a task with times of its own, at the real platform's rates."""
    topology = build_topology(real.spec)
    sent, gpus = real.task.steps().transfers, topology.job_gpus
    pairs, pair = pairs_of(sent, len(gpus))
    (net,) = networks([Epoch(topology)], gpus, pairs)
    found = profile(sent, pair, net, topology)
    least_s = max(found.completion_s, lower_bound_s(sent, pair, net))
    return StepsProfile(found, least_s, pairs)


def heaviest(
    found: Profile, machine: Machine, ports: int, window_s: float = WINDOW_S
) -> tuple[Load, Need]:
    """Load per second, and its need, of the `window_s` seconds that need the most CPU time."""
    load = found.busiest(window_s, lambda some: need(some, machine, ports).data)
    return load, need(load, machine, ports)
