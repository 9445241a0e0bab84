"""The output of `check` for a scenario without mistakes."""

import os

from rich.console import Console

from model.fabric.platforms import PLATFORMS
from scenarios.planning.plan_table import print_chosen, print_crossings
from scenarios.scenario import Case, Scenario


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
        out.print(f"  {case.name}: {_described(case)}", soft_wrap=True)
        for line in case.task.details:
            out.print(f"    {line}", soft_wrap=True)
    print_chosen(scenario, out)
    print_crossings(scenario, out)
    for kind, faults in scenario.faults.items():
        for fault in faults:
            out.print(f"  {kind}: {fault.component}: {fault.name}")
    if scenario.has_faults and os.geteuid() != 0:
        out.print("  Whether this kernel can make these faults, only root can check.")


def _described(case: Case) -> str:
    return f"{case.emulated_bytes} bytes {case.task.origin}".rstrip()
