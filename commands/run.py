"""The command `run`."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commands import options
from commands.output import err, show_run
from execution.cases.progress import Bar, Lines, Listener
from results.store.runs import DEFAULT_STORE

if TYPE_CHECKING:
    from execution.live.feed import LiveFeed
    from scenarios.scenario import Scenario

Capture = Annotated[
    list[str], typer.Option("--capture", metavar="LINK", help="pcap files of a link; repeatable")
]


def run(
    scenario: options.ScenarioPath,
    as_json: options.AsJson = False,
    proxies: options.Proxies = None,
    overrides: options.Overrides = [],  # noqa: B006  (typer wants a plain default)
    store: options.Store = DEFAULT_STORE,
    datapath: options.Datapath = None,
    clock: options.Clock = "real",
    fresh: options.Fresh = False,
    live: options.Live = False,
    live_at: options.LiveAt = None,
    capture: Capture = [],  # noqa: B006
) -> bool:
    """Run a scenario by one of the clocks, print its result; return whether its verdict is fail."""
    if options.is_virtual(clock, proxies, fresh=fresh):
        refuse_outside(live, capture, live_at)
        from execution.virtual_clock.command import run_virtually

        loaded = options.load_scenario(scenario, overrides, datapath, clock)
        result = run_virtually(loaded, store, fresh=fresh)
    else:
        with options.page(live, live_at) as feed:
            loaded = options.load_scenario(scenario, overrides, datapath)
            result = _run(loaded, proxies, store, feed, capture)
    show_run(result, as_json)
    return bool(result["verdict"] == "fail")


def refuse_outside(live: bool, capture: list[str], live_at: str | None = None) -> None:
    """Raise `InputError` for options of the real clock, which look at the fabric from outside."""
    what = "cannot be combined with --clock virtual"
    options.refuse_idle(what, capture=capture)
    what = f"{what}: the page cannot read the virtual machine"
    options.refuse_idle(what, live=live, live_at=live_at)


def _run(
    scenario: "Scenario",
    proxies: str | None,
    store: Path,
    feed: "LiveFeed | None",
    capture: Sequence[str],
) -> dict[str, Any]:
    kind = options.ready(proxies, options.NEEDS_NO_ROOT)
    options.require_possible(scenario)
    # Importing the testbed's libraries takes a second: mistakes are reported before.
    from execution.run import run as run_scenario

    told: AbstractContextManager[Listener] = nullcontext(Lines(err))
    with Bar(err, scenario.executions) if err.is_terminal else told as listener:
        if feed is not None:
            from execution.live.feed import LiveRun

            listener = LiveRun(feed, listener, scenario.executions)
        return run_scenario(scenario, kind, store, listener, capture)
