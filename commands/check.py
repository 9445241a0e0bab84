"""The output of `check` for a scenario without mistakes."""

import os
from collections.abc import Iterator

from rich.console import Console

from model.fabric.platforms import PLATFORMS
from results.tables.measured.breakdown import reduction_in_words
from scenarios.planning.plan_table import print_chosen, print_crossings
from scenarios.scenario import Case, Scenario
from traffic_gen.traces.replay import Replay
from traffic_gen.workloads.jobs import Jobs
from traffic_gen.workloads.training_iteration import Iteration


def describe(scenario: Scenario, out: Console) -> None:
    """Print the fabrics, cases and faults of a scenario, and the values chosen for `auto`."""
    for spec in scenario.fabrics:
        rates = (
            f"HB {spec.emulated_hb_bps / 1e6:g} Mbit/s, NIC {spec.emulated_nic_bps / 1e6:g} Mbit/s"
        )
        shape = f"{spec.domains} domains x {spec.domain_size} GPUs"
        platform = spec.platform if spec.platform in PLATFORMS else "own rates"
        out.print(f"  {spec.kind}: {shape}, {platform}, {rates}")
    for case in scenario.cases:
        out.print(f"  {case.name}: {case.emulated_bytes} bytes{_trace(case)}", soft_wrap=True)
        for line in _details(case):
            out.print(f"    {line}", soft_wrap=True)
    print_chosen(scenario, out)
    print_crossings(scenario, out)
    for kind, faults in scenario.faults.items():
        for fault in faults:
            out.print(f"  {kind}: {fault.component}: {fault.name}")
    if scenario.has_faults and os.geteuid() != 0:
        out.print("  Whether this kernel can make these faults, only root can check.")


def _details(case: Case) -> Iterator[str]:
    """Yield lines about a reduced iteration, about slices, and about each of several jobs."""
    if isinstance(case.task, Iteration):
        yield reduction_in_words(case.task.iteration.plain_changes)
    if case.slices > 1:
        yield f"{case.slices} slices of each chunk, which overlap in different steps"
    if isinstance(case.task, Jobs) and len(case.task.jobs) > 1:
        for job in case.task.jobs:
            yield f"{job.name}: {job.task.name} on {job.partition}"
            if isinstance(job.task, Iteration):
                yield f"  {reduction_in_words(job.task.iteration.plain_changes)}"


def _trace(case: Case) -> str:
    """Describe the trace of a case; empty without one."""
    if not isinstance(case.task, Replay):
        return ""
    trace = case.task.trace
    size = f"{trace.ranks} ranks, {len(trace)} nodes, {trace.total_bytes} bytes"
    return f" of a trace: {trace.format}, {size}"
