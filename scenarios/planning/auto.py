"""Scales and sizes, as given or chosen for `auto`: the fastest within the error budget, and why.

On a measured machine (`railbed doctor`), its costs decide. Otherwise the limits are those known for
two cores (docs/reference/measurements.md): 16 GPUs with 20 Mbit/s per NIC and 180 Mbit/s per
HB link stay within 1 % of the model at 15 to 55 % of two cores; the totals below are these, with a
margin. No HB link is then faster than the fastest in the library (DGX A100).
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from model.fabric.shaping import (
    DEFAULT_DEPTH_S,
    MIN_RATE_BPS,
    MOST_DEPTH_S,
    SEGMENT_PACKETS,
    segment_bytes,
    wire_bytes,
)
from model.fabric.spec import FabricSpec
from model.prediction.load import CPU_BUDGET, THREAD_BUDGET, TRANSFER_BUDGET, Need, switch_ports
from model.prediction.machine import Machine
from model.workload.generator import Generator
from results.sections.section import human_seconds
from scenarios.format.fabric import fabric_spec
from scenarios.format.faults import WITHOUT_MOVE, faults_on
from scenarios.format.keys import ScenarioFile
from scenarios.format.units import round_down, round_up
from scenarios.format.workloads.kinds import AnyWorkload
from scenarios.planning.plan import (
    NOT_MEASURED,
    WINDOW_S,
    RealTask,
    change_by_uneven_shares,
    changes_ports,
    estimate,
    heaviest,
    real_task,
)
from scenarios.scenario import Case, Chosen
from traffic_gen.workloads.task import Task

MAX_NIC_BPS = 20e6
MAX_HB_BPS = 240e6
TOTAL_NIC_BPS = 320e6
TOTAL_HB_BPS = 4e9
TARGET_S = 3.0
# Grains to choose from, in packets: with the first, contended traffic was within 2.5 % of its
# model, but for one case (docs/reference/measurements.md, "Contention"); two cores carry half of
# the rates with it.
FINE_PACKETS = 8
GRAINS = (FINE_PACKETS, 12, 16, 24, SEGMENT_PACKETS)
# Shares of links matter where uneven ones change a completion time by this part.
MATTERS = 0.02

# The fastest link whose shaped rate was checked: 0.98 to 1.00 of the nominal 450 Mbit/s.
MAX_LINK_BPS = 450e6
SLOWEST_LINKS = "the largest with links that can be shaped, yet too fast"
# Shorter executions do not average out scheduler jitter: 1 to 2 s keep 16 GPUs within 1 %.
SHORTEST_S = 1.5
DECADES = 9
# Share of an execution that late wake-ups may take: each step waits for the slowest GPU.
LATENESS_BUDGET = 0.01
# Lateness of a timer on a machine that was not measured: the kernel's slack (prctl(2),
# PR_SET_TIMERSLACK).
TIMER_SLACK_S = 50e-6


def grain(file: ScenarioFile, machine: Machine | None) -> Chosen:
    """The packets of a segment, as given or chosen: few only where shares of links matter."""
    given = file.fabric.grain
    if given != "auto":
        return Chosen(given)
    why = _why_fine(file, machine)
    if not why:
        return Chosen(SEGMENT_PACKETS)
    packets, scale = FINE_PACKETS, file.fabric.bandwidth_scale
    if machine is not None and scale != "auto":
        for packets in GRAINS:
            tasks = _real_tasks(file, machine, packets)
            if all(peak(task, machine, scale).is_within_budget for task in tasks):
                break
    if packets != FINE_PACKETS:
        why += "; finer ones are too many at this bandwidth_scale"
    return Chosen(packets, f"segments of {segment_bytes(packets) / 1e3:.3g} kB; {why}")


def _why_fine(file: ScenarioFile, machine: Machine | None) -> str:
    """Say why flows must share links in a fine grain; empty if they need not."""
    tasks = list(_real_tasks(file, machine, SEGMENT_PACKETS))
    profiles = [estimate(task) for task in tasks]
    if any(profile.is_contended for profile in profiles):
        most = max(profile.contention for profile in profiles)
        return f"flows that could fall out of step would fill a link {most:.3g} times over"
    if any(changes_ports(real.task, real.spec) for real in tasks):
        return "with spread: hash, a GPU's next transfer may leave by a port that owes nothing"
    if not file.faults or file.job.strategy not in WITHOUT_MOVE:
        return ""
    # Of each time on the degraded fabric, if the job stays.
    changes = [0.0]
    for kind in dict.fromkeys(file.fabric.kinds):
        spec = fabric_spec(file, kind, 1.0)
        faults, issues = faults_on(file, spec)
        works = [work for work in file.workloads if kind in work.kinds and not issues]
        changes += [change_by_uneven_shares(work.task(spec), spec, faults) for work in works]
    if (change := max(changes)) < MATTERS:
        return ""
    return f"with these faults, uneven shares of links would change a time by {change:.0%}"


def auto_bandwidth_scale_of(file: ScenarioFile, machine: Machine | None) -> Chosen:
    """Choose the bandwidth scale for `auto`, with the grain that would be used."""
    packets = round(grain(file, machine).value)
    return auto_bandwidth_scale(list(_real_tasks(file, machine, packets)), machine)


def _real_tasks(
    file: ScenarioFile, machine: Machine | None, grain_packets: int
) -> Iterator[RealTask]:
    """Yield each task on each kind of fabric, at real rates."""
    depth_s = bucket_depth(file, machine).value
    for kind in dict.fromkeys(file.fabric.kinds):
        spec = fabric_spec(file, kind, 1.0, depth_s, grain_packets)
        for workload in file.workloads:
            if kind in workload.kinds:
                yield real_task(workload.task(spec), spec)


def auto_bandwidth_scale(tasks: Sequence[RealTask], machine: Machine | None) -> Chosen:
    """Smallest two-digit scale that fits all tasks, limited by the slowest rate of links."""
    rates = [rate_bps for task in tasks for rate_bps in task.spec.emulated_rates_bps.values()]
    by_links = round_up(max(rates) / MAX_LINK_BPS)
    largest_scale = round_down(min(rates) / MIN_RATE_BPS)
    if machine is None:
        return _known_to_work(tasks[0].spec, by_links, largest_scale)
    scale = smallest(
        by_links, lambda scale: all(peak(task, machine, scale).is_within_budget for task in tasks)
    )
    if scale == by_links:
        return Chosen(scale, f"no link above {MAX_LINK_BPS / 1e6:g} Mbit/s, the fastest measured")
    if scale > largest_scale >= by_links:
        needs = [peak(task, machine, largest_scale) for task in tasks]
        return Chosen(largest_scale, f"{SLOWEST_LINKS}: {_binding(needs)}")
    return Chosen(scale, _binding([peak(task, machine, scale) for task in tasks]))


def _known_to_work(spec: FabricSpec, by_links: float, largest_scale: float) -> Chosen:
    """Smallest two-digit scale that keeps each link and the sum of all within the limits."""
    share = min(1.0, spec.grain_packets / (2 * FINE_PACKETS))
    nic_bps = min(MAX_NIC_BPS, share * TOTAL_NIC_BPS / spec.gpus)
    hb_bps = min(MAX_HB_BPS, share * TOTAL_HB_BPS / spec.gpus)
    by_totals = round_up(max(spec.nic.rate_bps / nic_bps, spec.hb.rate_bps / hb_bps))
    if by_totals > largest_scale >= by_links:
        return Chosen(largest_scale, f"{SLOWEST_LINKS} for two cores; {NOT_MEASURED}")
    why = f"rates that two cores are known to carry; {NOT_MEASURED}"
    return Chosen(max(by_totals, by_links), why)


def _binding(needs: Sequence[Need]) -> str:
    """Describe the limit nearest to the chosen scale: all cores, or a switch's thread."""
    cpu, thread = max(n.data for n in needs), max(n.thread for n in needs)
    if cpu / CPU_BUDGET >= thread / THREAD_BUDGET:
        most = f"of at most {CPU_BUDGET:.0%}"
        return f"data takes {cpu:.0%} of all cores at its heaviest moment, {most}"
    return f"a switch's thread takes {thread:.0%} of a core, of at most {THREAD_BUDGET:.0%}"


def peak(task: RealTask, machine: Machine, scale: float) -> Need:
    """Need of the heaviest slice of a task at a bandwidth scale, however short the slice is.

    Where flows contend, the first moment, in which all fill the HB links, delays no later one.
    """
    profile = estimate(task).scaled(scale, 1.0)
    window_s = WINDOW_S if profile.is_contended else 0.0
    return heaviest(profile, machine, switch_ports(task.spec), window_s)[1]


def bucket_depth(file: ScenarioFile, machine: Machine | None) -> Chosen:
    """The depth of buckets in seconds, as given, or as long as this machine's pauses, bounded."""
    given = file.fabric.bucket_depth
    if given != "auto":
        return Chosen(given)
    if machine is None:
        return Chosen(DEFAULT_DEPTH_S, f"the default; {NOT_MEASURED}")
    depth_s = min(MOST_DEPTH_S, max(DEFAULT_DEPTH_S, round_up(machine.pauses.most_s or 1e-9)))
    why = f"95% of the paused time is in pauses of at most {machine.pauses.most_s * 1e3:.3g} ms"
    return Chosen(depth_s, f"{why}; {DEFAULT_DEPTH_S:g} to {MOST_DEPTH_S:g}")


def sized_cases(workload: AnyWorkload, spec: FabricSpec, machine: Machine | None) -> Iterator[Case]:
    """Yield a workload's cases, at their scale as given or chosen.

    Several jobs are a case each, and one together, at the same scale.
    """
    task, generator = workload.task(spec), workload.generator
    mark = () if generator is Generator.AGENT else (generator,)
    size_scale, chosen = _scale(workload, task, spec, machine)
    whole = Case(
        name="/".join((spec.kind, task.name, *mark)),
        kind=spec.kind,
        task=task,
        size_scale=size_scale,
        generator=generator,
        chosen=chosen,
        marks=(workload.size_name(task).replace(" ", ""), workload.variant),
    )
    for job in task.alone:
        name = f"{spec.kind}/{job.name}"
        marks = (job.size_name.replace(" ", ""), workload.variant)
        yield replace(whole, name=name, task=job, chosen=None, marks=marks)
    yield whole


def _scale(
    workload: AnyWorkload, task: Task, spec: FabricSpec, machine: Machine | None
) -> tuple[float, tuple[str, Chosen] | None]:
    """Return the size scale of a workload, and the key and value that `auto` chose, if any."""
    scale, given = spec.bandwidth_scale, workload.time_dilation
    if task.is_modeled:
        return 1.0, None
    if given is None:
        if workload.size_scale != "auto":
            return workload.size_scale, None
        size = auto_size_scale(real_task(task, spec), scale)
        return size.value, ("size_scale", size)
    if given != "auto":
        return scale / given, None
    dilation = auto_time_dilation(real_task(task, spec), scale, machine)
    return scale / dilation.value, ("time_dilation", dilation)


def auto_size_scale(task: RealTask, bandwidth_scale: float) -> Chosen:
    """Two-digit size scale for an execution of about 3 s; at least 1, so data never grows.

    The estimate also has the links that flows share, as oversubscribed uplinks.
    """
    full_s = max(wire_bytes(1) * task.full_s, estimate(task).completion_s) * bandwidth_scale
    scale = round_up(full_s / TARGET_S)
    if scale < 1:
        return Chosen(1.0, f"all of the data is sent, in less than {TARGET_S:g} s")
    return Chosen(scale, f"about {TARGET_S:g} s an execution")


def auto_time_dilation(task: RealTask, bandwidth_scale: float, machine: Machine | None) -> Chosen:
    """Emulated seconds per real second, for the shortest execution that keeps the error budget."""
    dilation, why = least_dilation(task, machine)
    if dilation > bandwidth_scale:
        dilation, why = bandwidth_scale, "all of the data is sent"
    return Chosen(dilation, why if machine is not None else f"{why}; {NOT_MEASURED}")


def least_dilation(task: RealTask, machine: Machine | None) -> tuple[float, str]:
    """Return the least dilation that keeps the error budget, however much data it asks for."""
    profile = estimate(task)
    late_s, bound = (machine.timer_p99_s, "up to") if machine else (TIMER_SLACK_S, "at least")
    late = f"{profile.steps} steps, each {bound} {late_s * 1e6:.0f} us late"
    floors = {
        f"{SHORTEST_S:g} s average out the scheduler": SHORTEST_S,
        f"{late}, may take {LATENESS_BUDGET:.0%}": profile.steps * late_s / LATENESS_BUDGET,
    }
    if machine is not None:
        agents_s = sum(profile.transfers) * machine.transfer_s / machine.key.cores / TRANSFER_BUDGET
        floors[f"the agents may take {TRANSFER_BUDGET:.0%} of all cores"] = agents_s
    why, shortest_s = max(floors.items(), key=lambda floor: floor[1])
    dilation = round_up(shortest_s / profile.completion_s)
    return dilation, f"at least {human_seconds(shortest_s)}: {why}"


def smallest(least: float, holds: Callable[[float], bool]) -> float:
    """Return the smallest two-digit number, `least` or above, for which `holds` is true.

    `holds` must also be true for all larger numbers. The search covers `DECADES`.
    """
    first = math.floor(math.log10(least)) - 1
    exponents, digits = range(first, first + DECADES), range(10, 100)
    numbers = (round(digit * 10.0**exponent, 9) for exponent in exponents for digit in digits)
    candidates = [number for number in numbers if number >= least]
    return candidates[bisect_left(candidates, True, hi=len(candidates) - 1, key=holds)]
