"""The sections of `plan` (the load of a scenario) and `doctor` (the capacity of the machine)."""

from collections.abc import Iterable, Iterator
from math import isfinite

from model.fabric.spec import FabricKind
from model.prediction.load import CPU_BUDGET, REFUSED_ABOVE, THREAD_BUDGET
from model.prediction.machine import HopKind, Machine
from results.sections.section import Marked, Row, Section, human_seconds
from scenarios.planning.auto import NOT_MEASURED
from scenarios.planning.plan import CasePlan, rail_crossings, real_task
from scenarios.scenario import Scenario

Alone = tuple[FabricKind, int, str]
"""A job that is alone: the fabric, the number of its workload, its name."""

PLAN_COLUMNS = ("busiest second", "packets/s", "MB/s", "possible/s", "of all cores", "fits")
# Packet sizes in `doctor`'s table: segments of TCP at a low rate, and at a high one.
SMALL_BYTES, LARGE_BYTES = 1_500.0, 30_000.0


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


def plan_section(plans: Iterable[CasePlan], machine: Machine | None) -> Section:
    """The busiest second of every case, below its facts and those of its jobs."""
    rows: list[Row] = []
    alone_s: dict[Alone, float] = {}
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
    return Section("Busiest seconds", PLAN_COLUMNS, rows, unknown if machine is None else legend)


def _facts(plan: CasePlan) -> Iterator[str]:
    """Say what the model knows about a case beside its load."""
    yield human_seconds(plan.completion_s)
    if not plan.exact:
        yield "estimated"
    if plan.chunks is not None:
        yield f"{plan.chunks} chunks"
    if plan.overlap is not None:
        yield f"{plan.overlap:.1%} overlap"


def _interference(plan: CasePlan, alone_s: dict[Alone, float]) -> Iterator[str]:
    """Say how long each of several jobs takes; note the time of one that is alone."""
    of_job = {job: (plan.case.kind, plan.case.workload, job) for job in plan.jobs_s}
    if len(of_job) == 1:
        alone_s.update({of_job[job]: seconds for job, seconds in plan.jobs_s.items()})
        return
    for job, seconds in plan.jobs_s.items():
        times = f"{seconds / alone_s[of_job[job]]:.2f} times as long as alone"
        yield f"{job}: {human_seconds(seconds)}, {times}"


def notes(scenario: Scenario) -> Iterator[str]:
    """Yield the values chosen for `auto`, and why; and which cases cross rails on rail-only."""
    for key, chosen in scenario.chosen.items():
        yield f"{key}: auto is {chosen.value:g}: {chosen.why}"
    for case in scenario.cases:
        if case.task.choice:
            yield f"{case.name}: {case.task.choice}."
        real = real_task(case.task, scenario.spec_of(case.kind))
        if price := real.task.price(real.spec):
            yield f"{case.name}: {price}."
    for sentence in rail_crossings(scenario):
        yield f"{sentence}."
    yield from (f"not emulated: {what}" for what in scenario.left_out)


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
            yield f"{kind}", f"{packets:,.0f}", f"{size / 1e6:.3g}", possible, share, Marked("")
    if need is not None:
        yield "agents, per transfer", "", "", "", f"{need.transfers:.1%}", Marked("")
        yield "switch thread, of one core", "", "", "", f"{need.thread:.1%}", Marked("")


def shown(number: float) -> str:
    """Format a number; `-` if it is infinite, as where a cost is too small to measure."""
    return f"{number:,.0f}" if isfinite(number) else "-"
