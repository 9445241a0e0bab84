"""The command `plan`."""

from commands.options import Overrides, ScenarioPath, load_scenario
from commands.output import out
from results.render.terminal import print_sections
from scenarios.planning import machine_profile
from scenarios.planning.plan import notes, plan_section
from scenarios.planning.plan import plan as planned


def plan(scenario: ScenarioPath, overrides: Overrides = []) -> None:  # noqa: B006
    """Print the load of each fabric, the values chosen for `auto`, and crossings of rails."""
    machine, loaded = machine_profile.known_machine(), load_scenario(scenario, overrides)
    print_sections([plan_section(planned(loaded, machine), machine)], out)
    for line in notes(loaded):
        out.print(f"  {line}", soft_wrap=True)
