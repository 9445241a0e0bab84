"""Cases on paper: the platform's time of a case, without building a fabric."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from typing import Any

from model.arrays import distinct
from model.errors import InputError, Problem
from model.fabric.build import build_topology
from model.fabric.spec import PLATFORMS, FabricKind, FabricSpec, SpineSelection, flat
from model.fabric.topology import Gpu, LinkKind
from model.prediction.platform_time import (
    FRAMINGS,
    USUAL_FRAMING,
    Framing,
    LinkLatencies,
    PlatformTime,
    platform_time,
    with_busiest,
)
from model.workload.transfers.columns import Transfers
from model.workload.transfers.lanes import Lanes, spread
from results.verdicts.breakdown import offered_load, percentiles
from results.verdicts.model_comparison import busbw_factor
from scenarios.planning.plan import RealTask, real_task
from scenarios.scenario import Case, Scenario
from traffic_gen.workloads.inference import RequestLoad
from traffic_gen.workloads.sized_collective import ROUNDING, SizedCollective
from traffic_gen.workloads.task import Task

# A regular collective with more transfers has its closed form's time, which is the same.
MOST_FOLLOWED = 2**17
# For work without one, each transfer is followed.
MOST_GPUS = 1024
# By hash, flows of these pairs fall out of step: 128 GPUs take 3 to 10 s, by the peers at once.
MOST_HASHED_PAIRS = 2**14
# With more, its busiest link would take long to find, too.
MOST_LOADED, MOST_LOADED_GPUS = 2**21, 2**12
# So much more latency tells the part that latencies have in the longest of a closed form's ways.
A_LITTLE = 1e-4
# Links of the two kinds of routing on a path to another rail of another domain.
ACROSS = {
    FabricKind.RAIL_ONLY: (LinkKind.NIC, LinkKind.NIC, LinkKind.HB, LinkKind.HB),
    FabricKind.RAIL_OPTIMIZED: (LinkKind.NIC, LinkKind.UPLINK, LinkKind.UPLINK, LinkKind.NIC),
}
ACROSS[FabricKind.CUSTOM] = ACROSS[FabricKind.RAIL_OPTIMIZED]
# Fields of a fabric that its times depend on, besides those that are put otherwise.
OF_FABRIC = (
    *("pxn", "hb_rate_bps", "nic_rate_bps", "nic_ports", "planes", "spread", "rail_leaves"),
    *("hb_leaves", "hb_oversubscription", "spare_domains", "spare_gpus", "seed"),
    *("queue_pairs", "split_data", "links"),
)
OF_SPINES = ("spines", "oversubscription", "spine_selection")


@dataclass(frozen=True)
class RequestsOnPaper:
    """The number of requests, their part of all NICs' rate, and percentiles of latencies in s."""

    count: int
    offered_load: float
    latency_s: Mapping[str, float]


@dataclass(frozen=True)
class CaseOnPaper:
    """A case on the real platform: seconds, bytes, and bandwidths in Gbyte/s as of nccl-tests.

    `latency_s` is the part of the completion time that no latency would take away, `lower_bound_s`
    what the busiest link needs for its bytes; neither this nor the link is known beyond 4096 GPUs
    or two million transfers. Only a collective has bandwidths, a variant and a number of GPUs, but
    not this nor `busbw` if its communicators differ in it. `reason` says why NCCL's tuning model
    chose the algorithm, if it did. Only a request load has `inference`.
    """

    case: str
    fabric: dict[str, Any]
    completion_s: float
    lower_bound_s: float | None
    latency_s: float
    busiest_link: str | None
    algbw: float | None
    busbw: float | None
    collective: str | None
    variant: str | None
    gpus: int | None
    algorithm: str
    reason: str | None
    bytes: float
    inference: RequestsOnPaper | None


def on_paper(
    scenario: Scenario, framing: Framing, link_s: float | None = None
) -> tuple[list[CaseOnPaper], list[Problem]]:
    """Return all cases on paper that have a time, and a problem for each of the others.

    `link_s` replaces the latency of every link, in seconds. Faults, delays and losses of a
    scenario, which are the emulation's, are left out. Raises `InputError` if no case has a time.
    """
    found, problems = list[CaseOnPaper](), list[Problem]()
    for case in scenario.cases:
        spec = scenario.spec_of(case.kind)
        if problem := _unfollowed(case, spec, scenario.places):
            problems += [problem] * (problem not in problems)
        else:
            found.append(work_on_paper(case.name, case.task, spec, framing, link_s))
    if not found:
        raise InputError(*problems)
    return found, problems


def work_on_paper(
    name: str, task: Task, spec: FabricSpec, framing: Framing, link_s: float | None = None
) -> CaseOnPaper:
    """Return work on a fabric on paper, which must have a closed form, or be followed."""
    latencies, real = link_latencies(spec, link_s), real_task(task, spec)
    time = _time(real, _regular_transfers(real), latencies, framing)
    busiest = time.busiest
    return CaseOnPaper(
        case=name,
        fabric=_fabric(spec, latencies),
        completion_s=time.completion_s,
        lower_bound_s=time.lower_bound_s,
        latency_s=time.latency_s,
        busiest_link=f"{busiest.sender} -> {busiest.receiver}" if busiest else None,
        **_of_collective(task, time.completion_s),
        algorithm=task.algorithm,
        bytes=task.size_bytes,
        inference=_requests(real, time, framing),
    )


def _unfollowed(case: Case, spec: FabricSpec, places: Mapping[str, str]) -> Problem | None:
    """Return the problem of a case that has no closed form and cannot be followed.

    It is at the key of the fabric that takes the closed form away, if there is one in the file.
    """
    real = real_task(case.task, spec)
    if _regular_transfers(real) or not (what := _cannot_follow(real)):
        return None
    keys = real.spec.keys_without_forms if _counted(real) else ()
    where = next((places[key] for key in keys if key in places), case.where)
    return Problem(where, f"{case.name} has no closed form on such a fabric: {what}")


def _requests(real: RealTask, time: PlatformTime, framing: Framing) -> RequestsOnPaper | None:
    """Return what a request load has, by the arrivals of its transfers."""
    task, spec = real.task, real.spec
    if not isinstance(task, RequestLoad) or time.arrival_s is None:
        return None
    steps = task.steps().over(Lanes.of(spec))
    sent_bytes = float(framing.transfer_bytes(steps.transfers.size_bytes, spec.roce).sum())
    return RequestsOnPaper(
        count=len(steps.arrival_ns),
        offered_load=offered_load(steps, sent_bytes, spec.nic.rate_bps),
        latency_s=percentiles(steps.latencies_s(time.arrival_s)),
    )


def usual_s(case: Case, spec: FabricSpec) -> float | None:
    """Return the platform's seconds of a case as `predict` has them without options.

    `None` if there are too many GPUs or transfers to follow each.
    """
    real, framing = real_task(case.task, spec), FRAMINGS[USUAL_FRAMING](spec.roce.mtu)
    count = _regular_transfers(real)
    if not count and _cannot_follow(real):
        return None
    return _time(real, count, link_latencies(spec), framing).completion_s


def left_out(scenario: Scenario) -> list[str]:
    """Name what a scenario or its files say and paper has not."""
    impaired = any(spec.is_impaired for spec in scenario.fabrics)
    emulated = ["faults"] * scenario.has_faults + ["delays and losses of links"] * impaired
    # Jobs are together what each is alone.
    tasks = [case.task for case in scenario.cases if not case.task.alone]
    of_tasks = dict.fromkeys(f"{task.name}: {what}" for task in tasks for what in task.left_out)
    return [*emulated, *scenario.left_out, *of_tasks]


def only_modeled(scenario: Scenario, cases: Iterable[CaseOnPaper]) -> list[str]:
    """Say which of the cases on paper no fabric can execute."""
    modeled = {case.name for case in scenario.cases if case.task.is_modeled}
    names = dict.fromkeys(one.case for one in cases if one.case in modeled)
    return [f"{name}: only modeled: switches reduce, which cannot be emulated" for name in names]


def _of_collective(task: Task, seconds: float) -> dict[str, Any]:
    """Return what a collective has and other work has not."""
    if not isinstance(task, SizedCollective):
        return dict.fromkeys(("collective", "variant", "gpus", "algbw", "busbw", "reason"))
    gpus, algbw = task.members, task.size_bytes / seconds / 1e9
    return {
        "collective": task.collective.value,
        "variant": task.variant,
        "reason": task.choice or None,
        "gpus": gpus,
        "algbw": algbw,
        "busbw": algbw * busbw_factor(task.collective, gpus) if gpus else None,
    }


def _fabric(spec: FabricSpec, latencies: LinkLatencies) -> dict[str, Any]:
    """Return all that a time depends on; keys of spines are null where there are none."""
    fields = flat(spec)
    return {
        "kind": spec.kind.value,
        "platform": spec.platform,
        "domains": spec.job_domains,
        "domain_size": spec.job_size,
        "missing": [Gpu(*slot).name for slot in spec.missing],
        "gpus": spec.gpus,
        "nics_per_domain": spec.nics,
        **{key: fields[key] for key in OF_FABRIC},
        **{key: fields[key] if spec.has_spines else None for key in OF_SPINES},
        "link_latency_s": {kind.value: latencies[kind] for kind in latencies},
    }


def link_latencies(spec: FabricSpec, given_s: float | None = None) -> LinkLatencies:
    """Return the latency of each kind of link, in seconds: the platform's, or the one given."""
    if given_s is not None:
        return dict.fromkeys(LinkKind, given_s)
    # Rates of one's own name no platform: all known ones have the same latencies.
    platform = PLATFORMS.get(spec.platform, next(iter(PLATFORMS.values())))
    of_hb = dict.fromkeys((LinkKind.HB, LinkKind.HB_TRUNK), platform.hb_link_s)
    return {**of_hb, **dict.fromkeys((LinkKind.NIC, LinkKind.UPLINK), platform.nic_link_s)}


def _time(real: RealTask, count: int, latencies: LinkLatencies, framing: Framing) -> PlatformTime:
    """Return the platform's time of a task with a closed form for `count` transfers, if any."""
    task, spec = real.task, real.spec
    if task.is_modeled:
        return closed_time(real, latencies, framing)
    if not _is_large(spec, count):
        sent = spread(_transfers(task), spec)
        return platform_time(sent, build_topology(spec), latencies, framing)
    time = closed_time(real, latencies, framing)
    assert isinstance(task, SizedCollective)
    if count > MOST_LOADED or spec.gpus > MOST_LOADED_GPUS:
        return time
    return with_busiest(time, spread(_loads(task), spec), build_topology(spec), framing)


@lru_cache(maxsize=1)
def _transfers(task: Task) -> Transfers:
    """Build the transfers once for both fabrics."""
    return task.transfers()


@lru_cache(maxsize=1)
def _loads(task: SizedCollective) -> Transfers:
    """Build the loads once for both fabrics: a million take a fifth of a second."""
    return task.loads()


def _regular_transfers(real: RealTask) -> int:
    """Return the number of transfers if there is a closed form for them, else 0."""
    return 0 if real.spec.keys_without_forms else _counted(real)


def _is_large(spec: FabricSpec, count: int) -> bool:
    """Whether a closed form for `count` transfers is quicker than to follow them."""
    return count > MOST_FOLLOWED or (count > 0 and spec.gpus > MOST_LOADED_GPUS)


def _counted(real: RealTask) -> int:
    """Return the number of transfers of a regular collective by its closed form, else 0."""
    task = real.task
    if not isinstance(task, SizedCollective) or not task.is_regular:
        return 0
    return len(task.groups) * task.how.closed_form.transfers(task.grid(real.spec))


def _cannot_follow(real: RealTask) -> str:
    """Say why not each transfer can be followed; empty if it can."""
    if real.task.is_modeled:
        return "it is modeled, without transfers to follow; name another algorithm"
    if real.spec.gpus > MOST_GPUS:
        return f"must have at most {MOST_GPUS} GPUs, got {real.spec.gpus}"
    if (count := _counted(real)) > MOST_LOADED:
        return f"must have at most {MOST_LOADED} transfers, got {count}"
    if real.spec.nic.spine_selection is SpineSelection.HASH and real.spec.has_spines:
        sent = _transfers(real.task)
        ends = (sent.source * real.spec.gpus + sent.destination)[~sent.is_compute]
        if (pairs := len(distinct(ends))) > MOST_HASHED_PAIRS:
            return f"must have at most {MOST_HASHED_PAIRS} pairs of GPUs by hash, got {pairs}"
    return ""


def closed_time(real: RealTask, latencies: LinkLatencies, framing: Framing) -> PlatformTime:
    """Return the time of a regular collective by its closed form."""
    task, spec = real.task, real.spec
    assert isinstance(task, SizedCollective)

    def on_wire(each: float) -> float:
        """Return what takes a NIC as long as a transfer's part on each lane, or a small one."""
        part = each / spec.lanes if each >= spec.lanes else each
        # Whole bytes, which rounding must not make more.
        whole_bytes = ceil(round(part, ROUNDING))
        return spec.lanes * float(framing.transfer_bytes(whole_bytes, spec.roce))

    def completion_s(times: float) -> float:
        """Return the time with so many times the latencies."""
        grid = replace(
            task.grid(spec),
            on_wire=on_wire,
            hb_s=times * 2 * latencies[LinkKind.HB],
            nic_s=times * 2 * latencies[LinkKind.NIC],
            across_s=times * sum(latencies[kind] for kind in ACROSS[spec.routed_as]),
        )
        return task.how.closed_form.completion_s(spec.routed_as, grid, task.emulated_bytes())

    more_s = completion_s(1 + A_LITTLE) - completion_s(1)
    return PlatformTime(completion_s(1), more_s / A_LITTLE)
