"""Plan a scenario: the load of each case's busiest second, by kind of hop."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from model.fabric.spec import FabricSpec
from model.fabric.topology import build_topology
from model.job.concurrent_jobs import ConcurrentJobs
from model.prediction.fluid import predict
from model.prediction.load import Load, Need, Profile, profile, switch_ports
from model.prediction.machine import Machine
from model.prediction.network import healthy_network, overlap
from model.workload.schedule import Schedule
from scenarios.cases import case_schedule
from scenarios.planning.load_estimate import WINDOW_S, estimate_of, heaviest
from scenarios.scenario import Case, Scenario
from traffic_gen.workloads.task import EXACT_UP_TO_GPUS


@dataclass(frozen=True)
class CasePlan:
    """A case's busiest second. Without a measured machine there is no `need`.

    Unless the case is estimated, `jobs_s` has the modeled time of each of its jobs, `chunks` the
    number that a schedule cuts its data into, and `overlap` the part of the time in which HB
    domains and NICs carry data at once.
    """

    case: Case
    completion_s: float
    exact: bool
    load: Load
    need: Need | None
    jobs_s: Mapping[str, float] = field(default_factory=dict)
    chunks: int | None = None
    overlap: float | None = None

    @property
    def verdict(self) -> str:
        """Whether the case fits: `yes`, `barely`, `no`, or `not known`."""
        if self.need is None:
            return "not known"
        if self.need.is_within_budget:
            return "yes"
        return "no" if self.need.is_too_much else "barely"


def plan(scenario: Scenario, machine: Machine | None) -> Iterator[CasePlan]:
    """Yield the plan of every case, on fabrics without faults and without latencies."""
    for case in scenario.cases:
        spec = scenario.spec_of(case.kind)
        exact = spec.gpus <= EXACT_UP_TO_GPUS
        forecast = _forecast(case, spec) if exact else _Forecast(estimate_of(case, spec))
        if machine is None:
            load = forecast.profile.busiest(WINDOW_S, lambda some: sum(some.packets.values()))
            needed = None
        else:
            load, needed = heaviest(forecast.profile, machine, switch_ports(spec))
        told = forecast.jobs_s, forecast.chunks, forecast.overlap
        yield CasePlan(case, forecast.profile.completion_s, exact, load, needed, *told)


def predicted_profile(case: Case, spec: FabricSpec, path_s: float = 0.0) -> Profile:
    """Profile of a case by the model's prediction, with the same latency of all paths."""
    return _forecast(case, spec, path_s).profile


@dataclass(frozen=True)
class _Forecast:
    """What the model says about a case: see `CasePlan`."""

    profile: Profile
    jobs_s: Mapping[str, float] = field(default_factory=dict)
    chunks: int | None = None
    overlap: float | None = None


def _forecast(case: Case, spec: FabricSpec, path_s: float = 0.0) -> _Forecast:
    topology = build_topology(spec)
    schedule = case_schedule(case, spec)
    pair, net = healthy_network(schedule.transfers, topology)
    latency_s = dict.fromkeys(net.classes, path_s)
    arrival_s = predict(schedule, topology, latency_s).arrival_s
    return _Forecast(
        profile=profile(schedule.transfers, pair, net, topology, arrival_s),
        jobs_s=schedule.ends(arrival_s) if isinstance(schedule, ConcurrentJobs) else {},
        chunks=schedule.chunks if isinstance(schedule, Schedule) else None,
        overlap=overlap(schedule.transfers, pair, net, np.array(arrival_s)),
    )
