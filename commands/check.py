"""The command `check`: a scenario's mistakes, or what it describes."""

import os

from rich.console import Console

from commands.options import Overrides, ScenarioPath, load_for_this_machine, require_possible
from commands.output import out
from model.fabric.spec import PLATFORMS
from scenarios.planning.plan_table import print_notes
from scenarios.scenario import Scenario


def check(scenario: ScenarioPath, overrides: Overrides = []) -> None:  # noqa: B006
    """Load a scenario, ask whether this kernel can execute it, and describe it."""
    checked = load_for_this_machine(scenario, overrides)
    require_possible(checked)
    out.print(f"{scenario}: ok", soft_wrap=True)
    describe(checked, out)


def describe(scenario: Scenario, console: Console) -> None:
    """Print the fabrics, cases and faults of a scenario, and the values chosen for `auto`."""
    for spec in scenario.fabrics:
        rates = (
            f"HB {spec.emulated_hb_bps / 1e6:g} Mbit/s, NIC {spec.emulated_nic_bps / 1e6:g} Mbit/s"
        )
        shape = f"{spec.domains} domains x {spec.domain_size} GPUs"
        platform = spec.platform if spec.platform in PLATFORMS else "own rates"
        console.print(f"  {spec.kind}: {shape}, {platform}, {rates}")
    for case in scenario.cases:
        described = f"{case.emulated_bytes} bytes {case.task.origin}".rstrip()
        console.print(f"  {case.name}: {described}", soft_wrap=True)
        for line in case.task.details:
            console.print(f"    {line}", soft_wrap=True)
    print_notes(scenario, console)
    for kind, faults in scenario.faults.items():
        for fault in faults:
            console.print(f"  {kind}: {fault.component}: {fault.name}")
    if scenario.has_faults and os.geteuid() != 0:
        console.print("  Only root can check whether this kernel supports these faults.")
