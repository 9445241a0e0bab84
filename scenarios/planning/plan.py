"""Plan a scenario: the load of each case's busiest second, by kind of hop."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from model.fabric.spec import FabricSpec
from model.fabric.topology import build_topology
from model.job.concurrent_jobs import ConcurrentJobs
from model.prediction.budget import Need, switch_ports
from model.prediction.fluid import predict
from model.prediction.load import Load, Profile, profile
from model.prediction.machine import Machine
from model.prediction.network import healthy_network
from scenarios.planning.load_estimate import WINDOW_S, estimate_of, heaviest
from scenarios.planning.schedules import EXACT_UP_TO_GPUS, case_schedule
from scenarios.spec.scenario import Case, Scenario


@dataclass(frozen=True)
class CasePlan:
    """A case's busiest second. Without a measured machine there is no `need`.

    `jobs_s` has the modeled time of each of its jobs, unless the case is estimated.
    """

    case: Case
    completion_s: float
    exact: bool
    load: Load
    need: Need | None
    jobs_s: Mapping[str, float] = field(default_factory=dict)

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
    specs = {spec.kind: spec for spec in scenario.fabrics}
    for case in scenario.cases:
        spec = specs[case.kind]
        exact = spec.gpus <= EXACT_UP_TO_GPUS
        found, jobs_s = _followed(case, spec) if exact else (estimate_of(case, spec), {})
        if machine is None:
            load, needed = found.busiest(WINDOW_S, lambda some: sum(some.packets.values())), None
        else:
            load, needed = heaviest(found, machine, switch_ports(spec))
        yield CasePlan(case, found.completion_s, exact, load, needed, jobs_s)


def followed(case: Case, spec: FabricSpec, path_s: float = 0.0) -> Profile:
    """Profile of a case by the model's prediction, with the same latency of all paths."""
    return _followed(case, spec, path_s)[0]


def _followed(
    case: Case, spec: FabricSpec, path_s: float = 0.0
) -> tuple[Profile, Mapping[str, float]]:
    """Return the profile, and the time of each of several jobs."""
    topology = build_topology(spec)
    schedule = case_schedule(case, spec)
    pair, net = healthy_network(schedule.transfers, topology)
    latency_s = dict.fromkeys(net.classes, path_s)
    arrival_s = predict(schedule, topology, latency_s).arrival_s
    jobs_s = schedule.ends(arrival_s) if isinstance(schedule, ConcurrentJobs) else {}
    return profile(schedule.transfers, pair, net, topology, arrival_s), jobs_s
