"""The command `up`."""

import os

from commands.options import (
    DEFAULT_AT,
    Datapath,
    Live,
    LiveAt,
    Overrides,
    Proxies,
    ScenarioPath,
    load_scenario,
    page,
    ready,
    require_fabrics,
)
from commands.output import out


def up(
    scenario: ScenarioPath,
    proxies: Proxies = None,
    overrides: Overrides = [],  # noqa: B006  (typer wants a plain default)
    datapath: Datapath = None,
    live: Live = False,
    live_at: LiveAt = DEFAULT_AT,
) -> None:
    """Bring a fabric up, with its page if asked, until its command line ends."""
    loaded = load_scenario(scenario, overrides, datapath)
    kind = ready(proxies)
    require_fabrics(loaded)
    from execution.cases.emulation import experiment
    from execution.live.feed import PageAudience
    from execution.session.command_line import Audience, serve

    run_id = f"up-{loaded.name}-{os.getpid()}"
    with page(live, live_at) as feed, experiment(loaded.fabrics[0], kind, run_id) as fabric:
        fabric.bed.links.impair()
        serve(fabric, loaded, out, PageAudience(feed) if feed else Audience())
