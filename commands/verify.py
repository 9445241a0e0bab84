"""The command `verify`."""

from commands import options
from commands.output import err, print_result
from execution.cases.progress import Lines
from results.sections.machine import verify_sections
from results.store.runs import DEFAULT_STORE
from results.verdicts.path_check import verify_object


def verify(
    scenario: options.ScenarioPath,
    as_json: options.AsJson = False,
    proxies: options.Proxies = None,
    overrides: options.Overrides = [],  # noqa: B006  (typer wants a plain default)
    datapath: options.Datapath = None,
    clock: options.Clock = "real",
    fresh: options.Fresh = False,
) -> bool:
    """Check paths by one of the clocks, print the result; return whether its verdict is fail."""
    virtual = options.is_virtual(clock, proxies, fresh=fresh)
    loaded = options.load_scenario(scenario, overrides, datapath, clock)
    if virtual:
        from execution.virtual_clock.command import verify_virtually

        result = verify_virtually(loaded, DEFAULT_STORE, fresh=fresh)
    else:
        kind = options.ready(proxies, options.NEEDS_NO_ROOT)
        options.require_datapaths(loaded)
        from execution.path_check import verify as verified

        result = verify_object(loaded.name, list(verified(loaded, kind, Lines(err))))
    print_result(result, as_json, verify_sections)
    return bool(result["verdict"] == "fail")
