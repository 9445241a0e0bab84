"""Estimate the load of a scenario's cases without predicting them: cheap, for any size."""

from dataclasses import dataclass, replace
from functools import lru_cache

from model.arrays import Ints
from model.fabric.health import Epoch
from model.fabric.shaping import wire_bytes
from model.fabric.spec import FabricSpec
from model.fabric.topology import build_topology
from model.prediction.budget import Need, need
from model.prediction.closed_forms import Grid
from model.prediction.fluid import lower_bound_s
from model.prediction.load import SLICES, Load, Profile, profile
from model.prediction.machine import Machine
from model.prediction.network import healthy_network, networks, pairs_of
from model.transfers.collective import Collective
from model.transfers.columns import Transfers
from scenarios.planning.workloads.schedules import collective_of, stand_in
from scenarios.spec.scenario import Case, TimedTask
from traffic_gen.workloads.sized_collective import SizedCollective

# A scenario is planned and admitted by its busiest second.
WINDOW_S = 1.0


@dataclass(frozen=True)
class Work:
    """A collective on a fabric at the real platform's rates, with its real size."""

    spec: FabricSpec
    task: SizedCollective

    @property
    def grid(self) -> Grid:
        """The grid of a communicator's GPUs, with their bandwidths in bytes/s."""
        (domains, size), spec = self.task.groups[0].shape, self.spec
        rates = spec.hb_rate_bps / 8, spec.nic_rate_bps / 8
        return Grid(size, domains, *rates, self.task.chunk_slices)

    @property
    def full_s(self) -> float:
        """Bandwidth term of the completion time on the real platform, without headers."""
        if not self.task.is_regular:
            return estimate(self).completion_s / wire_bytes(1)
        form = self.task.how.closed_form
        return form.completion_s(self.spec.kind, self.grid, self.task.sent_bytes())


@dataclass(frozen=True)
class TimedWork:
    """A task that has times on a fabric at the real platform's rates, with its real bytes."""

    spec: FabricSpec
    task: TimedTask

    @property
    def full_s(self) -> float:
        """Lower bound of the completion time on the real platform, by each rank and each link."""
        return followed(self).least_s


AnyWork = Work | TimedWork


def work(spec: FabricSpec, task: SizedCollective) -> Work:
    """Describe a collective at real rates, without spares: the same for every scale."""
    return Work(_unscaled(spec), task)


def _unscaled(spec: FabricSpec) -> FabricSpec:
    """Return a fabric at real rates, without spares."""
    return replace(
        spec,
        domains=spec.job_domains,
        domain_size=spec.job_size,
        bandwidth_scale=1.0,
        spare_domains=0,
        spare_gpus=0,
        spare_rail_switches=0,
    )


def work_of(case: Case, spec: FabricSpec) -> AnyWork:
    """Return the work of a case on its fabric."""
    if not isinstance(case.task, Collective):
        return TimedWork(_unscaled(spec), case.task)
    return work(spec, collective_of(case, case.task, spec.job_shape))


def estimate_of(case: Case, spec: FabricSpec) -> Profile:
    """The profile of a case on its emulated fabric, with its emulated size."""
    return estimate(work_of(case, spec)).scaled(spec.bandwidth_scale, case.size_scale)


@lru_cache(maxsize=64)
def estimate(job: AnyWork) -> Profile:
    """Profile as if no flows shared a link; rates and times are the real platform's."""
    if isinstance(job, TimedWork):
        return followed(job).profile
    small = _stand_in(job) if job.task.is_regular else job
    topology = build_topology(small.spec)
    sent = transfers_of(small.task)
    found = profile(sent, *healthy_network(sent, topology), topology)
    return found if small == job else _enlarged(found, small, job)


# Cached: a case is followed for its load on each fabric, and again for its rail crossings.
@lru_cache(maxsize=8)
def transfers_of(task: SizedCollective) -> Transfers:
    """Return the transfers of a collective in its real size, without proof."""
    return task.transfers()


@dataclass(frozen=True, eq=False)
class Followed:
    """The profile of a timed task, and its least completion time in seconds (`full_s`).

    `pairs` has the sources and the destinations of all pairs of ranks with a transfer or compute.
    """

    profile: Profile
    least_s: float
    pairs: tuple[Ints, Ints]


@lru_cache(maxsize=16)
def followed(job: TimedWork) -> Followed:
    """Follow each step of a timed task at the real platform's rates."""
    topology = build_topology(job.spec)
    sent, gpus = job.task.steps().transfers, topology.job_gpus
    pairs, pair = pairs_of(sent, len(gpus))
    (net,) = networks([Epoch(topology)], gpus, pairs)
    found = profile(sent, pair, net, topology)
    least_s = max(found.completion_s, lower_bound_s(sent, pair, net))
    return Followed(found, least_s, pairs)


def _stand_in(job: Work) -> Work:
    """The same work on a fabric of the same kind, small enough to follow each transfer."""
    spec, task = job.spec, stand_in(job.task)
    domains, domain_size = task.shape
    smaller = replace(
        spec,
        domains=domains,
        domain_size=domain_size,
        spines=max(1, round(spec.spines * domains / spec.domains)),
        rail_leaves=min(spec.rail_leaves, domains),
        hb_leaves=min(spec.hb_leaves, domain_size),
    )
    return Work(smaller, task)


def _enlarged(found: Profile, small: Work, job: Work) -> Profile:
    """Scale a profile to the larger fabric's time and transfers, at the same bytes/s per GPU."""
    stretch = job.full_s / small.full_s
    more = stretch * job.spec.gpus / small.spec.gpus
    form = job.task.how.closed_form
    each = len(job.task.groups) * form.transfers(job.grid) / SLICES
    return replace(
        found,
        completion_s=found.completion_s * stretch,
        size_bytes={key: tuple(p * more for p in parts) for key, parts in found.size_bytes.items()},
        transfers=(each,) * SLICES,
        steps=form.steps(job.grid),
    )


def heaviest(
    found: Profile, machine: Machine, ports: int, window_s: float = WINDOW_S
) -> tuple[Load, Need]:
    """Load per second, and its need, of the `window_s` seconds that need the most CPU time."""
    load = found.busiest(window_s, lambda some: need(some, machine, ports).data)
    return load, need(load, machine, ports)
