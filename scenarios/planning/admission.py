"""Settings that cannot work on this machine: more load than it can carry, or steps too short."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from model.fabric.spec import FabricKind, FabricSpec
from model.prediction.load import Need, switch_ports
from model.prediction.machine import Machine
from scenarios.format.issues import Issue
from scenarios.format.keys import ScenarioFile
from scenarios.planning.auto import auto_time_dilation, round_up, smallest
from scenarios.planning.emulated_fabric import auto_bandwidth_scale_of
from scenarios.planning.load_estimate import estimate_of, heaviest, real_task
from scenarios.scenario import Case


def admission_issues(
    file: ScenarioFile,
    fabrics: Sequence[FabricSpec],
    cases: Sequence[Case],
    machine: Machine,
) -> list[Issue]:
    """Issues of rates and steps that this machine cannot carry."""
    specs = {spec.kind: spec for spec in fabrics}
    issues = list(_rate_issues(file, specs, cases, machine))
    for case in () if issues else cases:
        issues += _step_issues(file, case, specs[case.kind], machine)
    return issues


def _rate_issues(
    file: ScenarioFile,
    specs: Mapping[FabricKind, FabricSpec],
    cases: Sequence[Case],
    machine: Machine,
) -> Iterator[Issue]:
    """Yield one issue for all fabrics, about the case with the highest need."""
    case, need = _worst(specs, cases, machine)
    if not need.is_too_much:
        return
    what = (
        f"{case.name} would need {need.data:.0%} of the {machine.key.cores} cores here in its "
        f"busiest second, and {need.thread:.0%} of one core for a switch's thread "
        f"(bandwidth_scale {specs[case.kind].bandwidth_scale:g})"
    )
    better = auto_bandwidth_scale_of(file, machine).value
    if _is_too_much(specs, cases, machine, better):
        hint = "this machine cannot carry this number of GPUs at any rate: use fewer"
    else:
        scale = round_up(specs[case.kind].bandwidth_scale)
        least = smallest(scale, lambda s: not _is_too_much(specs, cases, machine, s))
        hint = f"use {better:.12g} as `auto` does; {least:.12g} is the least accepted"
    yield Issue(("fabric", "bandwidth_scale"), what, hint)


def _is_too_much(
    specs: Mapping[FabricKind, FabricSpec], cases: Sequence[Case], machine: Machine, scale: float
) -> bool:
    """Whether the machine cannot carry a case at another bandwidth scale."""
    scaled = {kind: replace(spec, bandwidth_scale=scale) for kind, spec in specs.items()}
    return _worst(scaled, cases, machine)[1].is_too_much


def _worst(
    specs: Mapping[FabricKind, FabricSpec], cases: Sequence[Case], machine: Machine
) -> tuple[Case, Need]:
    """Return the case with the highest need in its busiest second, and that need."""
    needs = {}
    for case in cases:
        spec = specs[case.kind]
        needs[case] = heaviest(estimate_of(case, spec), machine, switch_ports(spec))[1]
    return max(needs.items(), key=lambda item: max(item[1].data, item[1].thread))


def _step_issues(
    file: ScenarioFile, case: Case, spec: FabricSpec, machine: Machine
) -> Iterator[Issue]:
    """Yield an issue if steps are too short for timers, or transfers too many for the agents.

    Late timers do not matter where times are not judged: data is checked, or packets are crafted.
    """
    scale, limit = spec.bandwidth_scale, file.expect.ratio_limit
    profile = estimate_of(case, spec)
    step_s = profile.completion_s / profile.steps
    agents = sum(profile.transfers) * machine.transfer_s / machine.key.cores / profile.completion_s
    judged = case.generator.is_timed and not file.check_data
    too_short = step_s * limit < machine.timer_median_s and judged
    if not too_short and agents <= 1:
        return
    what = (
        f"{case.name} would have steps of {step_s * 1e3:.2g} ms, of which {limit:.0%} must be more "
        f"than the {machine.timer_median_s * 1e6:.0f} us that a timer is late; its agents would "
        f"need {agents:.0%} of this machine's cores"
    )
    dilation = auto_time_dilation(real_task(case.task, spec), scale, machine).value
    workload = file.workloads[case.workload]
    by_time = "time_dilation" in workload.model_fields_set
    if by_time or "size_scale" not in type(workload).model_fields:
        yield Issue(
            ("workloads", case.workload, "time_dilation"), what, f"use {round_up(dilation):.12g}"
        )
    else:
        use = f"use {max(1.0, scale / dilation):.6g}"
        yield Issue(("workloads", case.workload, "size_scale"), what, use)
