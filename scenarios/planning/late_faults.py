"""Faults that would begin after the execution that they are to break."""

from collections.abc import Iterator, Sequence

from model.fabric.spec import FabricSpec
from scenarios.format.faults import DEFAULT_AT_S
from scenarios.format.issues import Issue
from scenarios.format.keys import FaultEntry, ScenarioFile
from scenarios.planning.load_estimate import estimate_of, real_task
from scenarios.planning.plan import predicted_profile
from scenarios.scenario import Case
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


def late_faults(
    file: ScenarioFile, fabrics: Sequence[FabricSpec], cases: Sequence[Case]
) -> Iterator[Issue]:
    """Yield an issue for each fault that begins after an execution of a case has surely ended."""
    specs = {spec.kind: spec for spec in fabrics}
    for number, entry in enumerate(file.faults):
        issues = (_late(number, entry, case, specs[case.kind]) for case in cases)
        yield from [issue for issue in issues if issue is not None][:1]


def _late(number: int, entry: FaultEntry, case: Case, spec: FabricSpec) -> Issue | None:
    estimate = estimate_of(case, spec)
    if entry.at_step is not None:
        if entry.at_step < estimate.steps:
            return None
        what = f"{case.name} has {estimate.steps} steps, got {entry.at_step}"
        return Issue(("faults", number, "at_step"), what, f"use at most {estimate.steps - 1}")
    at_s = DEFAULT_AT_S if entry.at is None else entry.at
    # The latest end takes longer to compute than the estimate, before which no execution ends.
    if at_s < estimate.completion_s or at_s < (end_s := latest_end_s(case, spec)):
        return None
    default = " (the default)" if entry.at is None else ""
    what = f"{case.name} ends after {end_s:.3g} s at the latest, got {at_s:g}{default}"
    hint = f"break it earlier, or send more in workloads.{case.workload}"
    return Issue(("faults", number, "at"), what, hint)


def latest_end_s(case: Case, spec: FabricSpec) -> float:
    """Seconds after which an execution without faults has ended, by any prediction of a run."""
    if spec.gpus > EXACT_UP_TO_GPUS:
        return estimated_end_s(case, spec)
    return ORDER_MARGIN * predicted_profile(case, spec, _slowest_path_s(spec)).completion_s


def estimated_end_s(case: Case, spec: FabricSpec) -> float:
    """Upper bound of the completion time on a fabric too large for a prediction."""
    estimate, scale = estimate_of(case, spec), spec.bandwidth_scale / case.size_scale
    alone_s = max(estimate.completion_s, real_task(case.task, spec).full_s * scale)
    # In each step, a GPU may wait for the latency of a path to and fro.
    return MARGIN * spec.nic.oversubscription * alone_s + estimate.steps * 2 * _slowest_path_s(spec)


def _slowest_path_s(spec: FabricSpec) -> float:
    """Latency that no path exceeds: across an HB domain, and up and down two layers of switches."""
    return SLOWEST_PATH_S + 2 * spec.hb.impairment.delay_s + 4 * spec.nic.impairment.delay_s
