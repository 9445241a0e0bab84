"""The command `plan`."""

from commands.options import AsJson, Overrides, ScenarioPath, load_scenario
from commands.output import print_result
from results.store.records import plain
from scenarios.planning import machine_profile
from scenarios.planning.plan import notes, plan_section
from scenarios.planning.plan import plan as planned


def plan(
    scenario: ScenarioPath,
    overrides: Overrides = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Print the load of each fabric, the values chosen for `auto`, and crossings of rails."""
    machine, loaded = machine_profile.known_machine(), load_scenario(scenario, overrides)
    plans, told = [*planned(loaded, machine)], [*notes(loaded)]
    cases = [{"case": one.case.name, **plain(one), "fits": one.verdict} for one in plans]
    result = {"schema": "railbed.plan/1", "cases": cases, "notes": told}
    print_result(result, as_json, lambda _: [plan_section(plans, machine, told)])
