"""Cases that cannot work: too much load for this machine, steps too short, faults after the end."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from model.fabric.spec import FabricSpec
from model.prediction.load import Need, switch_ports
from model.prediction.machine import Machine
from results.sections.section import human_seconds
from scenarios.format.faults import start_s
from scenarios.format.issues import Issue
from scenarios.format.keys import Expect, FaultEntry, ScenarioFile
from scenarios.format.units import round_up
from scenarios.planning.auto import TIMER_SLACK_S, auto_bandwidth_scale_of, least_dilation, smallest
from scenarios.planning.plan import estimate_of, heaviest, predicted_profile, real_task
from scenarios.scenario import Case, Specs
from traffic_gen.workloads.task import EXACT_UP_TO_GPUS

# Upper bound of an idle path's latency in seconds, without the delays of links, on any machine.
SLOWEST_PATH_S = 0.01
# Estimates assume that no flows share a link. Where flows do, as on the last edge of a ring that
# crosses rails, a step takes twice as long, times the oversubscription; another factor of two is
# margin for algorithms and fabrics that were not tried.
MARGIN = 4
# Margin for the order of flows, which depends on latencies: with shorter ones, an execution may end
# a ten-thousandth later.
ORDER_MARGIN = 1.01


def admission_issues(
    file: ScenarioFile, specs: Specs, cases: Sequence[Case], machine: Machine | None
) -> list[Issue]:
    """Issues of rates and steps that this machine cannot carry; if it was not measured, of steps.

    Steps are then held against the least lateness of timers.
    """
    issues = [] if machine is None else list(_rate_issues(file, specs, cases, machine))
    for case in () if issues else cases:
        issues += _step_issues(file, case, specs[case.kind], machine)
    return issues


def _rate_issues(
    file: ScenarioFile, specs: Specs, cases: Sequence[Case], machine: Machine
) -> Iterator[Issue]:
    """Yield one issue for all fabrics, about the case with the highest need."""
    case, need = _worst(specs, cases, machine)
    if not need.is_too_much:
        return
    scale = specs[case.kind].bandwidth_scale
    cores = f"{need.data:.0%} of all cores in its busiest second"
    thread = f"{need.thread:.0%} of one core for a switch's thread (bandwidth_scale {scale:g})"
    what = f"{case.name} would need {cores}, and {thread}"
    better = auto_bandwidth_scale_of(file, machine).value
    if _is_too_much(specs, cases, machine, better):
        hint = "no scale is large enough for this many GPUs on this machine: use fewer"
    else:
        least = smallest(round_up(scale), lambda s: not _is_too_much(specs, cases, machine, s))
        hint = f"use {better:.12g} as `auto` does; {least:.12g} is the least accepted"
    yield Issue(("fabric", "bandwidth_scale"), what, hint)


def _is_too_much(specs: Specs, cases: Sequence[Case], machine: Machine, scale: float) -> bool:
    """Whether the machine cannot carry a case at another bandwidth scale."""
    scaled = {kind: replace(spec, bandwidth_scale=scale) for kind, spec in specs.items()}
    return _worst(scaled, cases, machine)[1].is_too_much


def _worst(specs: Specs, cases: Sequence[Case], machine: Machine) -> tuple[Case, Need]:
    """Return the case with the highest need in its busiest second, and that need."""
    placed = ((case, specs[case.kind]) for case in cases)
    needs = {
        case: heaviest(estimate_of(case, spec), machine, switch_ports(spec))[1]
        for case, spec in placed
    }
    return max(needs.items(), key=lambda item: max(item[1].data, item[1].thread))


def _step_issues(
    file: ScenarioFile, case: Case, spec: FabricSpec, machine: Machine | None
) -> Iterator[Issue]:
    """Yield an issue if transfers are too many for the agents, or steps too short for timers.

    Late timers do not matter where times are not judged: data is checked, or packets are crafted.
    """
    profile = estimate_of(case, spec)
    agents_s = sum(profile.transfers) * machine.transfer_s / machine.key.cores if machine else 0.0
    agents, step_s = agents_s / profile.completion_s, profile.completion_s / profile.steps
    limit, late_s = file.expect.ratio_limit, machine.timer_median_s if machine else TIMER_SLACK_S
    is_judged = case.generator.is_timed and not file.check_data
    longer = max(agents, late_s / step_s / limit if is_judged else 0)
    if longer <= 1:
        return
    if agents > 1:
        what = f"the agents of {case.name} would need {agents:.4g} times this machine's cores"
        yield _too_fast(file, case, spec, machine, what, longer)
        return
    late = f"timers {'here ' if machine else ''}are late by {human_seconds(late_s)}"
    steps = f"steps of {human_seconds(step_s)}"
    if late_s <= step_s * Expect().ratio_limit:
        least = round_up(late_s / step_s)
        what = f"must be at least {least:g}, got {limit:g}: {late}, and {case.name} has {steps}"
        yield Issue(("expect", "ratio_limit"), what)
        return
    most = f"which must be at most {limit:g} of a step (expect.ratio_limit)"
    what = f"{case.name} would have {steps}: {late}, {most}"
    yield _too_fast(file, case, spec, machine, what, longer)


def _too_fast(
    file: ScenarioFile,
    case: Case,
    spec: FabricSpec,
    machine: Machine | None,
    what: str,
    longer: float,
) -> Issue:
    """Return the issue of a case that must take `longer` times as long, with what makes it."""
    scale, (auto, _) = spec.bandwidth_scale, least_dilation(real_task(case.task, spec), machine)
    # A ratio_limit below the error budget asks for more than `auto`.
    dilation = max(auto, round_up(longer * scale / case.size_scale))
    workload = file.workloads[case.workload]
    by_time = "time_dilation" in workload.model_fields_set
    by_time = by_time or "size_scale" not in type(workload).model_fields
    key, least = ("time_dilation", dilation) if by_time else ("size_scale", scale / dilation)
    hint = f"use {round_up(least) if by_time else least:.6g}"
    if not (whole := case.task.size_bytes):
        hint = "all of its messages are empty: send bytes"
    elif dilation > scale and case.size_scale >= longer:
        hint = f"use {scale if by_time else 1:.12g}, which sends all of its data"
    elif dilation > scale:
        least = round_up(whole * dilation / scale)
        hint = f"even all of it, {whole:.12g} B, is too little: send {least:.12g} B or more"
    return Issue(("workloads", case.workload, key), what, hint)


def late_faults(file: ScenarioFile, specs: Specs, cases: Sequence[Case]) -> Iterator[Issue]:
    """Yield an issue for each fault that begins after an execution of a case has surely ended."""
    for number, entry in enumerate(file.faults):
        issues = (_late(number, entry, case, specs[case.kind]) for case in cases)
        yield from islice(filter(None, issues), 1)


def _late(number: int, entry: FaultEntry, case: Case, spec: FabricSpec) -> Issue | None:
    estimate = estimate_of(case, spec)
    if entry.at_step is not None:
        if entry.at_step < estimate.steps:
            return None
        what = f"must be less than {estimate.steps}, the steps of {case.name}, got {entry.at_step}"
        return Issue(("faults", number, "at_step"), what, f"use at most {estimate.steps - 1}")
    at_s = start_s(entry)
    # The latest end takes longer to compute than the estimate, before which no execution ends.
    if at_s < estimate.completion_s or at_s < (end_s := latest_end_s(case, spec)):
        return None
    default = " (the default)" if entry.at is None else ""
    what = f"must be before the end of {case.name}, {human_seconds(end_s)}, got {at_s:g}{default}"
    hint = f"start it earlier, or send more in workloads.{case.workload}"
    return Issue(("faults", number, "at"), what, hint)


def latest_end_s(case: Case, spec: FabricSpec) -> float:
    """Seconds after which an execution without faults has ended, by any prediction of a run.

    Where GPUs share NICs or ports, the order of flows matters too much for a margin.
    """
    if spec.gpus > EXACT_UP_TO_GPUS or not spec.has_whole_nics:
        return estimated_end_s(case, spec)
    return ORDER_MARGIN * predicted_profile(case, spec, _slowest_path_s(spec)).completion_s


def estimated_end_s(case: Case, spec: FabricSpec) -> float:
    """Upper bound of the completion time, without a prediction of the execution itself."""
    estimate, scale = estimate_of(case, spec), spec.bandwidth_scale / case.size_scale
    alone_s = max(estimate.completion_s, real_task(case.task, spec).full_s * scale)
    # How many times as long as on a NIC's link the data of NICs takes on a link above, at most.
    slowdown = spec.nic.oversubscription
    if spec.nic.links:
        # All NICs of a custom fabric may send over its slowest link.
        slowest_bps = min(link.rate_bps for link in spec.nic.links)
        slowdown = max(1.0, spec.domains * spec.nics * spec.nic.rate_bps / slowest_bps)
    # In each step, a GPU may wait for the latency of a path to and fro.
    return MARGIN * slowdown * alone_s + estimate.steps * 2 * _slowest_path_s(spec)


def _slowest_path_s(spec: FabricSpec) -> float:
    """Latency that no path exceeds."""
    return SLOWEST_PATH_S + spec.longest_delay_s
