"""The command `verify`."""

from typing import Any

from commands.clock import NEEDS_NO_ROOT, Clock, Fresh, by_clock, load_for_virtual_machine
from commands.options import (
    CONTAINER,
    AsJson,
    Datapath,
    Overrides,
    Proxies,
    ScenarioPath,
    datapath_override,
    load_for_this_machine,
    ready,
)
from commands.output import err, exit_with, print_result
from execution.cases.progress import Lines
from results.sections.machine import verify_sections
from results.store.runs import DEFAULT_STORE
from results.verdicts.path_check import verify_object
from scenarios.planning.kernel_support import require_datapaths


def verify(
    scenario: ScenarioPath,
    as_json: AsJson = False,
    proxies: Proxies = None,
    overrides: Overrides = [],  # noqa: B006  (typer wants a plain default)
    datapath: Datapath = None,
    clock: Clock = "real",
    fresh: Fresh = False,
) -> None:
    """Check the paths by one of the clocks, print the result, and exit with its verdict."""
    changes = [*overrides, *datapath_override(datapath)]

    def really() -> dict[str, Any]:
        loaded = load_for_this_machine(scenario, changes)
        kind = ready(proxies or CONTAINER, NEEDS_NO_ROOT)
        require_datapaths(loaded)
        from execution.path_check import verify as verified

        return verify_object(loaded.name, list(verified(loaded, kind, Lines(err))))

    def virtually() -> dict[str, Any]:
        from execution.virtual_clock.run import verify_virtually

        loaded = load_for_virtual_machine(scenario, changes)
        return verify_virtually(loaded, DEFAULT_STORE, fresh=fresh)

    result = by_clock(clock, proxies, fresh=fresh, real=really, virtual=virtually)
    print_result(result, as_json, verify_sections)
    exit_with(failed=result["verdict"] == "fail")
