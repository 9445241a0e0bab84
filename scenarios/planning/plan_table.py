"""Tables of `plan` (the load of a scenario) and `doctor` (the capacity of the machine)."""

from collections.abc import Iterable, Iterator
from math import isfinite

from rich.console import Console
from rich.table import Table

from model.fabric.spec import FabricKind
from model.prediction.budget import CPU_BUDGET, REFUSED_ABOVE, THREAD_BUDGET
from model.prediction.machine import HopKind, Machine
from results.tables.style import figures_table
from scenarios.planning.auto import NOT_MEASURED
from scenarios.planning.plan import CasePlan
from scenarios.planning.rail_isolation import rail_crossings
from scenarios.scenario import Scenario

Alone = tuple[FabricKind, int, str]
"""A job that is alone: the fabric, the number of its workload, its name."""

# Columns of `plan` with their least widths: each case has a table of its own, below its name.
PLAN_COLUMNS = (
    ("busiest second", 28),
    ("packets/s", 9),
    ("MB/s", 5),
    ("possible/s", 10),
    ("of all cores", 12),
    ("fits", 9),
)
# Packet sizes in `doctor`'s table: segments of TCP at a low rate, and at a high one.
SMALL_BYTES, LARGE_BYTES = 1_500.0, 30_000.0


def print_machine(machine: Machine, console: Console) -> None:
    """Print the costs and packet rates of the machine, for small and large packets."""
    columns = "per packet", "per kB", "small/s", "large/s", "large Gbit/s"
    table = figures_table("kind of hop", *columns)
    for kind in HopKind:
        cost = machine.hop_cost(kind)
        small = machine.most_packets_per_s(kind, SMALL_BYTES)
        large = machine.most_packets_per_s(kind, LARGE_BYTES)
        table.add_row(
            kind.value,
            f"{cost.packet_s * 1e6:.1f} us",
            f"{cost.byte_s * 1e9:.2f} us",
            shown(small),
            shown(large),
            shown(large * LARGE_BYTES * 8 / 1e9),
        )
    console.print(table)
    console.print(
        f"{machine.key.cores} cores; small packets have {SMALL_BYTES:g} bytes, large ones "
        f"{LARGE_BYTES:g}; all switches share one ovs-vswitchd. A wake-up of its thread takes "
        f"{machine.threads.wake_s * 1e6:.0f} us and {machine.threads.port_s * 1e6:.2f} us a port.\n"
        f"A transfer costs the agents {machine.transfer_s * 1e6:.0f} us. Timers are "
        f"{machine.timer_median_s * 1e6:.0f} us late (99th percentile "
        f"{machine.timer_p99_s * 1e6:.0f} us).\n{machine.pauses}",
        soft_wrap=True,
    )


def print_plan(plans: Iterable[CasePlan], machine: Machine | None, console: Console) -> None:
    """Print the busiest second of every case."""
    console.print(_plan_table(show_header=True))
    alone_s: dict[Alone, float] = {}
    for plan in plans:
        console.print(f"{plan.case.name} ({', '.join(_facts(plan))})", soft_wrap=True)
        for line in _interference(plan, alone_s):
            console.print(f"  {line}", soft_wrap=True)
        table = _plan_table()
        _add(plan, machine, table)
        console.print(table)
    if machine is None:
        console.print(f"Possible rates and needs are not known: {NOT_MEASURED}.")
        return
    console.print(
        "Possible/s: packets that one kind of hop could carry alone. Fits: yes if data needs at "
        f"most {CPU_BUDGET:.0%} of all cores and a switch's thread {THREAD_BUDGET:.0%} of one, no "
        f"above {REFUSED_ABOVE:.0%} of either, else barely.\n"
        "Estimated: as if no flows shared a link; the real load is no higher.\n"
        "Overlap: the part of the time in which HB domains and NICs carry data at once."
    )


def _facts(plan: CasePlan) -> Iterator[str]:
    """Say what the model knows about a case beside its load."""
    yield f"{plan.completion_s:.3g} s"
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
        yield f"{job}: {seconds:.3g} s, {seconds / alone_s[of_job[job]]:.2f} times as long as alone"


def print_chosen(scenario: Scenario, console: Console) -> None:
    """Print the values chosen for `auto`, and why."""
    for key, chosen in scenario.chosen.items():
        line = f"  {key}: auto is {chosen.value:g}: {chosen.why}"
        console.print(line, soft_wrap=True)


def print_crossings(scenario: Scenario, console: Console) -> None:
    """Print which cases cross rails on a rail-only fabric."""
    for sentence in rail_crossings(scenario):
        console.print(f"  {sentence}.", soft_wrap=True)


def _add(plan: CasePlan, machine: Machine | None, table: Table) -> None:
    share = "" if plan.need is None else f"{plan.need.data:.1%}"
    table.add_row("  data", "", "", "", share, plan.verdict)
    for kind in HopKind:
        packets, size = plan.load.packets[kind], plan.load.size_bytes[kind]
        if not packets:
            continue
        possible = share = ""
        if machine is not None and plan.need is not None:
            most = machine.most_packets_per_s(kind, size / packets)
            possible, share = shown(most), f"{plan.need.by_hop[kind]:.1%}"
        table.add_row(f"  {kind}", f"{packets:,.0f}", f"{size / 1e6:.3g}", possible, share, "")
    if plan.need is not None:
        table.add_row("  agents, per transfer", "", "", "", f"{plan.need.transfers:.1%}", "")
        thread = f"{plan.need.thread:.1%}"
        table.add_row("  switch thread, of one core", "", "", "", thread, "")


def shown(number: float) -> str:
    """Format a number; `-` if it is infinite, as where a cost is too small to measure."""
    return f"{number:,.0f}" if isfinite(number) else "-"


def _plan_table(*, show_header: bool = False) -> Table:
    table = Table(
        box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", show_header=show_header
    )
    for heading, width in PLAN_COLUMNS:
        ends = heading in ("busiest second", "fits")
        table.add_column(
            heading, justify="left" if ends else "right", no_wrap=True, min_width=width
        )
    return table
