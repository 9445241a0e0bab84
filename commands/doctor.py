"""The command `doctor`."""

from collections.abc import Collection, Iterable
from typing import Annotated, Any

import typer
from rich.text import Text

from commands.options import AsJson, Proxies, proxy_kind
from commands.output import err, out, print_result
from model.errors import NotReady
from model.prediction.machine import Machine
from results.store.records import plain
from scenarios.planning import machine_profile
from scenarios.planning.plan import machine_section
from testbed.host import preflight
from testbed.host.preflight import Check
from testbed.nodes.datapath import datapath_in_words, default_datapath


def doctor(
    proxies: Proxies = None,
    measure: Annotated[bool, typer.Option("--measure", help="measure the machine again")] = False,
    as_json: AsJson = False,
) -> None:
    """Print requirements, then costs; raises `NotReady` if a run's requirement is missing."""
    needed = preflight.checks(proxy_kind(proxies))
    checks = [*preflight.unneeded_checks(), *needed]
    switches = datapath_in_words(default_datapath())
    if not as_json:
        _print(checks, needed, switches)
    missing = [item for item in needed if not item.ready]
    machine = None if missing else _measured(again=measure)
    listed = [{**plain(item), "needed": item in needed} for item in checks]
    found: dict[str, Any] = {"schema": "railbed.doctor/1", "checks": listed, "switches": switches}
    found |= {"machine": machine and plain(machine)}
    print_result(found, as_json, lambda _: [machine_section(machine)] if machine else [])
    if missing:
        raise NotReady(f"{len(missing)} of {len(needed)} checks failed; each says how to fix it")


def _print(checks: Iterable[Check], needed: Collection[Check], switches: str) -> None:
    for item in checks:
        lacking = Text("missing", "red") if item in needed else Text("note   ", "yellow")
        sign = Text("ok     ", "green") if item.ready else lacking
        out.print(sign, str(item), soft_wrap=True)
    out.print(f"        rail and spine switches: {switches}", soft_wrap=True)


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
