"""The command `run`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commands.clock import NEEDS_NO_ROOT, Clock, Fresh, by_clock, load_for_virtual_machine
from commands.live_page import DEFAULT_AT, Live, LiveAt, page, refuse_virtual
from commands.options import (
    CONTAINER,
    AsJson,
    Datapath,
    Overrides,
    Proxies,
    ScenarioPath,
    Store,
    datapath_override,
    load_for_this_machine,
    ready,
)
from commands.output import err, exit_with
from commands.show import show_run
from execution.cases.progress import Bar, Lines
from model.errors import InputError, Problem
from results.store.runs import DEFAULT_STORE
from scenarios.planning.kernel_support import require_possible

if TYPE_CHECKING:
    from execution.live.feed import LiveFeed

Capture = Annotated[
    list[str],
    typer.Option("--capture", metavar="LINK", help="keep a link's frames as pcap files"),
]


def run(
    scenario: ScenarioPath,
    as_json: AsJson = False,
    proxies: Proxies = None,
    overrides: Overrides = [],  # noqa: B006  (typer wants a plain default)
    store: Store = DEFAULT_STORE,
    datapath: Datapath = None,
    clock: Clock = "real",
    fresh: Fresh = False,
    live: Live = False,
    live_at: LiveAt = DEFAULT_AT,
    capture: Capture = [],  # noqa: B006
) -> None:
    """Run a scenario by one of the clocks, print its result, and exit with its verdict."""
    changes = [*overrides, *datapath_override(datapath)]

    def really() -> dict[str, Any]:
        with page(live, live_at) as feed:
            return _run(scenario, changes, proxies or CONTAINER, store, feed, capture)

    def virtually() -> dict[str, Any]:
        if capture:
            raise InputError(Problem("--capture", "cannot be combined with --clock virtual"))
        refuse_virtual(live)
        from execution.virtual_clock.run import run_virtually

        return run_virtually(load_for_virtual_machine(scenario, changes), store, fresh=fresh)

    result = by_clock(clock, proxies, fresh=fresh, real=really, virtual=virtually)
    show_run(result, as_json)
    exit_with(failed=result["verdict"] == "fail")


def _run(
    path: Path,
    overrides: list[str],
    proxies: str,
    store: Path,
    feed: "LiveFeed | None",
    capture: list[str],
) -> dict[str, Any]:
    scenario = load_for_this_machine(path, overrides)
    kind = ready(proxies, NEEDS_NO_ROOT)
    require_possible(scenario)
    # Importing the testbed's libraries takes a second: mistakes are reported before.
    from execution.run import run as run_scenario

    with Bar(err, scenario.executions) if err.is_terminal else Lines(err) as listener:
        if feed is None:
            return run_scenario(scenario, kind, store, listener, capture=capture)
        from execution.live.feed import LiveRun

        shown = LiveRun(feed, listener, scenario.executions)
        return run_scenario(scenario, kind, store, shown, shown, capture)
