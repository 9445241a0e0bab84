"""The command `doctor`."""

from typing import Annotated

import typer
from rich.text import Text

from commands.options import Proxies, proxy_kind
from commands.output import err, out
from model.errors import NotReady
from model.prediction.machine import Machine
from results.render.terminal import print_sections
from scenarios.planning import machine_profile
from scenarios.planning.plan import machine_section
from testbed.host import preflight
from testbed.nodes.datapath import datapath_in_words, default_datapath


def doctor(
    proxies: Proxies = None,
    measure: Annotated[bool, typer.Option("--measure", help="measure the machine again")] = False,
) -> None:
    """Print requirements, then costs; raises `NotReady` if a run's requirement is missing."""
    needed = preflight.checks(proxy_kind(proxies))
    for item in (*preflight.unneeded_checks(), *needed):
        lacking = Text("missing", "red") if item in needed else Text("note   ", "yellow")
        sign = Text("ok     ", "green") if item.ready else lacking
        out.print(sign, str(item), soft_wrap=True)
    switches = datapath_in_words(default_datapath())
    out.print(f"        rail and spine switches: {switches}", soft_wrap=True)
    missing = [item for item in needed if not item.ready]
    if missing:
        raise NotReady(f"{len(missing)} of {len(needed)} checks failed; each says how to fix it")
    print_sections([machine_section(_measured(again=measure))], out)


def _measured(*, again: bool) -> Machine:
    """Return this machine's measured costs; measure them now if `again`, or if none are stored."""
    machine = None if again else machine_profile.known_machine()
    if machine is None:
        # Imports Mininet, which takes a second.
        from execution.machine_costs import measure as measure_machine

        err.print("Measuring this machine for about 20 s; keep it idle.")
        machine = measure_machine(machine_profile.this_machine())
        err.print(f"Kept in {machine_profile.keep(machine)}.", soft_wrap=True)
    return machine
