"""The load of cases, estimated or predicted; which cross rails; sections of `plan` and `doctor`.

Also, whether the time on a degraded fabric depends on how flows share links.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import isfinite
from typing import Any

import numpy as np

from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.shaping import DEFAULT_DEPTH_S, SEGMENT_PACKETS
from model.fabric.spec import FabricKind, FabricSpec, Spread
from model.fabric.topology import LinkKind
from model.fabric.transport import Transport
from model.faults import Fault, health_under
from model.job.concurrent_jobs import ConcurrentJobs
from model.prediction.fluid import arrivals_s, busiest_flows, predict
from model.prediction.load import (
    CPU_BUDGET,
    REFUSED_ABOVE,
    SHORTEST_S,
    THREAD_BUDGET,
    Load,
    Need,
    Profile,
    is_contended,
    need,
    profile,
    switch_ports,
)
from model.prediction.machine import HopKind, Machine
from model.prediction.network import OF_HB, healthy_network, networks_of, overlap
from model.prediction.timeouts import late_answers, queue_epochs
from model.sentences import counted
from model.workload.schedule import Schedule
from model.workload.transfers.lanes import spread
from results.sections.section import Marked, Row, Section, grain_shown, human_seconds
from results.store.records import HIDDEN
from scenarios.scenario import Case, Scenario
from traffic_gen.workloads.task import BANDWIDTH_ALONE, EXACT_UP_TO_GPUS, MOST_SIMULATED, Task

# A scenario is planned and admitted by its busiest second.
WINDOW_S = 1.0
# Rate of a forwarded flow over that of a GPU's own one where sharing is uneven: it has up to four
# segments in the NIC's queue, the other two (`model.fabric.shaping.buffered_segments`).
UNEVEN_WEIGHT = 2.0
NOT_MEASURED = "this machine was not measured (`sudo ./railbed doctor` does it)"
PLAN_COLUMNS = ("busiest second", "packets/s", "MB/s", "possible/s", "of all cores", "fits")
# Packet sizes in `doctor`'s table: segments of TCP at a low rate, and at a high one.
SMALL_BYTES, LARGE_BYTES = 1_500.0, 30_000.0


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
    """Return a task on its fabric at real rates: the same for every scale."""
    return RealTask(task, replace(spec, bandwidth_scale=1.0, bucket_depth_s=DEFAULT_DEPTH_S))


def estimate_of(case: Case, spec: FabricSpec) -> Profile:
    """The profile of a case on its emulated fabric, with its emulated size."""
    real = estimate(real_task(case.task, spec))
    return real.scaled(spec.bandwidth_scale, case.size_scale)


def estimate(real: RealTask) -> Profile:
    """Profile without latencies, at the real platform's rates; only flows that contend share."""
    of_any_grain = _estimate(real.task, replace(real.spec, grain_packets=SEGMENT_PACKETS))
    return replace(of_any_grain, grain_packets=real.spec.grain_packets)


@lru_cache(maxsize=64)
def _estimate(task: Task, spec: FabricSpec) -> Profile:
    return task.estimate(spec)


def heaviest(
    profile: Profile, machine: Machine, ports: int, window_s: float = WINDOW_S
) -> tuple[Load, Need]:
    """Load per second, and its need, of the `window_s` seconds that need the most CPU time."""
    load = profile.busiest(window_s, lambda some: need(some, machine, ports).data)
    return load, need(load, machine, ports)


@dataclass(frozen=True)
class CasePlan:
    """A case's busiest second. Without a measured machine there is no `need`.

    Unless the case is estimated, `jobs_s` has the modeled time of each of its jobs, `chunks` the
    number that a schedule cuts its data into, and `overlap` the part of the time in which HB
    domains and NICs carry data at once.
    """

    case: Case = field(metadata=HIDDEN)
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
        if self.need.is_too_much or self.need.transfers > REFUSED_ABOVE:
            return "no"
        return "yes" if self.need.is_within_budget else "barely"


def plan(scenario: Scenario, machine: Machine | None) -> Iterator[CasePlan]:
    """Yield the plan of every case, on fabrics without faults and without latencies."""
    for case in scenario.cases:
        spec = scenario.spec_of(case.kind)
        exact = spec.gpus <= EXACT_UP_TO_GPUS
        forecast, told = _forecast(case, spec) if exact else (estimate_of(case, spec), {})
        if machine is None:
            load = forecast.busiest(WINDOW_S, lambda some: sum(some.packets.values()))
            needed = None
        else:
            # The profile by which a load is refused, without what full buckets carry.
            load, needed = heaviest(estimate_of(case, spec), machine, switch_ports(spec))
        yield CasePlan(case, forecast.completion_s, exact, load, needed, **told)


def predicted_profile(case: Case, spec: FabricSpec, path_s: float = 0.0) -> Profile:
    """Profile of a case by the model's prediction, with the same latency of all paths."""
    return _forecast(case, spec, path_s)[0]


def _forecast(case: Case, spec: FabricSpec, path_s: float = 0.0) -> tuple[Profile, dict[str, Any]]:
    """The same, and what else `CasePlan` has of the prediction."""
    topology = build_topology(spec)
    schedule = case.schedule(spec)
    pair, net = healthy_network(schedule.transfers, topology)
    latency_s = dict.fromkeys(net.classes, path_s)
    arrival_s = predict(schedule, [Epoch(topology)], latency_s).arrival_s
    ends = schedule.ends(arrival_s) if isinstance(schedule, ConcurrentJobs) else {}
    told = {
        "jobs_s": {job: max(SHORTEST_S, end_s) for job, end_s in ends.items()},
        "chunks": schedule.chunks if isinstance(schedule, Schedule) else None,
        "overlap": overlap(schedule.transfers, pair, net, np.array(arrival_s)),
    }
    return profile(schedule.transfers, pair, net, topology, arrival_s), told


def _told(scenario: Scenario, tell: Callable[[Case, FabricSpec], Iterable[str]]) -> Iterator[str]:
    """Yield what is told of cases, each sentence once, behind the names of its cases."""
    told_of = defaultdict[str, list[Case]](list)
    for case in scenario.cases:
        for sentence in tell(case, scenario.spec_of(case.kind)):
            told_of[sentence].append(case)
    for sentence, cases in told_of.items():
        if sentence:
            yield f"{scenario.named(cases)}: {sentence}."


def told_on_paper(scenario: Scenario) -> Iterator[str]:
    """Yield prices of missing GPUs and shared NICs, crossings of rails, and idle spine switches."""
    yield from _told(
        scenario, lambda case, spec: [case.task.price(real_task(case.task, spec).spec)]
    )
    yield from rail_crossings(scenario)
    yield from idle_spines(scenario)


def rail_crossings(scenario: Scenario) -> Iterator[str]:
    """Yield a sentence for the cases, and each of several jobs, that cross rails on rail-only."""
    return _told(scenario, crossings)


def crossings(case: Case, spec: FabricSpec) -> Iterator[str]:
    """Yield how a case, or each of its jobs, crosses rails; nothing if the fabric has spines."""
    if spec.routed_as is FabricKind.RAIL_ONLY and not case.task.is_modeled:
        yield from case.task.crossings(real_task(case.task, spec).spec)


def idle_spines(scenario: Scenario) -> Iterator[str]:
    """Yield a sentence for each fabric with spine switches that carry no data without faults."""
    for spec in scenario.fabrics:
        if spec.nic.pxn:
            way = "only where no path over HB links and rails is left"
            yield f"{spec.kind}: with PXN, data takes spine switches {way}."
        elif spec.has_spines and (used := spec.most_spines_used) < spec.nic.spines:
            count = f"without faults, at most {used} of {spec.nic.spines} spine switches carry data"
            yield f"{spec.kind}: {count}, taken in turn by {counted(spec.domains, 'domain')}."


@lru_cache(maxsize=64)
def change_by_uneven_shares(task: Task, spec: FabricSpec, faults: tuple[Fault, ...]) -> float:
    """Return the part by which the time on a degraded fabric changes if shares are uneven.

    Forwarded flows then have twice the share of others. 0 without flows that contend, and for more
    GPUs or transfers than are simulated.
    """
    if spec.gpus > EXACT_UP_TO_GPUS:
        return 0.0
    topology = build_topology(spec)
    sent = spread(task.transfers(), spec)
    if len(sent) > MOST_SIMULATED:
        return 0.0
    degraded = Epoch(topology, health_under(topology, faults))
    pair, (net,) = networks_of(sent, [degraded], topology.job_gpus)
    # Another GPU sends the packets of such a path over its NIC.
    forwarded = np.array(
        [bool(kinds) and kinds[0] in OF_HB and LinkKind.NIC in kinds for kinds in net.classes]
    )
    weight = np.where(forwarded[net.class_of[pair]], UNEVEN_WEIGHT, 1.0)
    if (weight == 1.0).all() or not is_contended(sent, pair, net):
        return 0.0
    at_once = dict.fromkeys(net.classes, 0.0)
    fair_s, uneven_s = (
        float(arrivals_s(sent, pair, [net], at_once, BANDWIDTH_ALONE, shares).max())
        for shares in (None, weight)
    )
    return abs(uneven_s / fair_s - 1)


@lru_cache(maxsize=64)
def changes_ports(task: Task, spec: FabricSpec) -> bool:
    """Whether a GPU sends some transfers, each whole, by one port of its NIC and some by another.

    A port that is left is in debt for the last segment, and idle; the next transfer does not wait.
    """
    if spec.lanes == 1 or spec.nic.spread is not Spread.HASH or spec.transport is Transport.ROCE:
        return False
    sent, (domain, _) = spread(task.transfers(), spec), spec.job_grid.places
    crosses = ~sent.is_compute & (domain[sent.source] != domain[sent.destination])
    ports = np.unique(np.stack([sent.source, sent.lane])[:, crosses], axis=1)
    return bool((np.bincount(ports[0]) > 1).any())


def machine_section(machine: Machine) -> Section:
    """The costs and packet rates of the machine, for small and large packets."""
    threads = machine.threads
    return Section(
        "Costs of packets",
        ("kind of hop", "per packet", "per kB", "small/s", "large/s", "large Gbit/s"),
        [(kind.value, *_costs(machine, kind)) for kind in HopKind],
        f"{machine.key.cores} cores; small packets have {SMALL_BYTES:g} bytes, large ones "
        f"{LARGE_BYTES:g}; all switches share one ovs-vswitchd. A wake-up of its thread takes "
        f"{threads.wake_s * 1e6:.0f} us and {threads.port_s * 1e6:.2f} us a port. A transfer costs "
        f"the agents {machine.transfer_s * 1e6:.0f} us. Timers are "
        f"{machine.timer_median_s * 1e6:.0f} us late (99th percentile "
        f"{machine.timer_p99_s * 1e6:.0f} us).",
        (f"{machine.pauses}",),
    )


def _costs(machine: Machine, kind: HopKind) -> tuple[str, ...]:
    cost = machine.hop_cost(kind)
    small, large = (machine.most_packets_per_s(kind, size) for size in (SMALL_BYTES, LARGE_BYTES))
    times = f"{cost.packet_s * 1e6:.1f} us", f"{cost.byte_s * 1e9:.2f} us"
    return *times, shown(small), shown(large), shown(large * LARGE_BYTES * 8 / 1e9)


def plan_section(
    plans: Iterable[CasePlan], machine: Machine | None, told: Iterable[str] = ()
) -> Section:
    """The busiest second of every case, below its facts and those of its jobs; then `notes`."""
    rows: list[Row] = []
    alone_s: dict[tuple[FabricKind, int, str], float] = {}
    for plan in plans:
        rows.append((f"{plan.case.name} ({', '.join(_facts(plan))})",))
        rows += ((f"  {line}",) for line in _interference(plan, alone_s))
        rows += _loads(plan, machine)
    legend = (
        "Possible/s: packets that one kind of hop could carry alone. Fits: yes if data needs at "
        f"most {CPU_BUDGET:.0%} of all cores and a switch's thread {THREAD_BUDGET:.0%} of one, no "
        f"above {REFUSED_ABOVE:.0%} of either or for the agents, else barely. Estimated: without "
        "latencies, and as if no flows shared a link unless they contend. Overlap: the part of the "
        "time in which HB domains and NICs carry data at once."
    )
    unknown = f"Possible rates and needs are not known: {NOT_MEASURED}."
    # The text says for all of them that the machine was not measured.
    remarks = [f"  {note.removesuffix(f'; {NOT_MEASURED}')}" for note in told]
    text = unknown if machine is None else legend
    return Section("Busiest seconds", PLAN_COLUMNS, rows, text, remarks)


def _facts(plan: CasePlan) -> Iterator[str]:
    """Say what the model knows about a case beside its load."""
    yield human_seconds(plan.completion_s)
    if not plan.exact:
        yield "estimated"
    if plan.chunks is not None:
        yield counted(plan.chunks, "chunk")
    if plan.overlap is not None:
        yield f"{plan.overlap:.1%} overlap"


def _interference(
    plan: CasePlan, alone_s: dict[tuple[FabricKind, int, str], float]
) -> Iterator[str]:
    """Say how long each of several jobs takes; note the time of one that is alone."""
    for job, seconds in plan.jobs_s.items():
        key = plan.case.kind, plan.case.workload, job
        if len(plan.jobs_s) == 1:
            alone_s[key] = seconds
        else:
            times = f"{seconds / alone_s[key]:.2f} times ".removeprefix("1.00 times ")
            yield f"{job}: {human_seconds(seconds)}, {times}as long as alone"


def notes(scenario: Scenario) -> Iterator[str]:
    """Yield the values chosen for `auto`, and why, and what the model tells of cases."""
    for key, chosen in scenario.chosen.items():
        yield f"{key}: auto is {chosen.value:g}: {chosen.why}"
    yield from _told(scenario, lambda case, _: [case.task.choice])
    yield from _told(scenario, _grain)
    yield from told_on_paper(scenario)
    yield from _short_timeouts(scenario)
    yield from (f"not emulated: {what}" for what in scenario.left_out)


def _short_timeouts(scenario: Scenario) -> Iterator[str]:
    """Yield a sentence for each fabric, if small, whose given timeout full queues may exceed."""
    for spec in scenario.fabrics:
        if spec.roce.timeout_s is not None and spec.gpus <= EXACT_UP_TO_GPUS:
            epochs = queue_epochs(spec, scenario.faults.get(spec.kind, ()))
            if why := late_answers(epochs):
                yield f"{spec.kind}: {why}."


def _grain(case: Case, spec: FabricSpec) -> Iterator[str]:
    """Yield in which grain flows share the busiest link; not if none contend, or for many GPUs."""
    if spec.gpus > EXACT_UP_TO_GPUS or not estimate(real_task(case.task, spec)).is_contended:
        return
    transfers = case.transfers(spec)
    *_, grain_bytes, grains = busiest_flows(
        transfers, *healthy_network(transfers, build_topology(spec))
    )
    emulated, real, part = grain_shown(grain_bytes, grains, case.size_scale)
    yield f"a grain is {emulated}, {real} of the platform's data, {part} of a transfer"


def _loads(plan: CasePlan, machine: Machine | None) -> Iterator[Row]:
    """Yield the load of all data, of each kind of hop, of the agents, and of a switch's thread."""
    need = plan.need
    share = "" if need is None else f"{need.data:.1%}"
    yield ("data", "", "", "", share, Marked(plan.verdict))
    for kind in HopKind:
        packets, size = plan.load.packets[kind], plan.load.size_bytes[kind]
        if packets:
            possible = share = ""
            if machine is not None and need is not None:
                possible = shown(machine.most_packets_per_s(kind, size / packets))
                share = f"{need.by_hop[kind]:.1%}"
            rate = f"{float(f'{size / 1e6:.3g}'):,.12g}"
            yield f"{kind}", f"{packets:,.0f}", rate, possible, share, Marked("")
    if need is not None:
        yield "agents, per transfer", "", "", "", f"{need.transfers:.1%}", Marked("")
        yield "switch thread, of one core", "", "", "", f"{need.thread:.1%}", Marked("")


def shown(number: float) -> str:
    """Format a number; `-` if it is infinite, as where a cost is too small to measure."""
    return f"{number:,.0f}" if isfinite(number) else "-"
