"""The command `up`."""

import os

from commands import options
from commands.output import err, out


def up(
    scenario: options.ScenarioPath,
    proxies: options.Proxies = None,
    overrides: options.Overrides = [],  # noqa: B006  (typer wants a plain default)
    datapath: options.Datapath = None,
    live: options.Live = False,
    live_at: options.LiveAt = None,
) -> None:
    """Bring a fabric up, with its page if asked, until its command line ends."""
    loaded = options.load_scenario(scenario, overrides, datapath)
    kind = options.ready(proxies)
    options.require_fabrics(loaded)
    from execution.cases.emulation import experiment
    from execution.live.feed import PageAudience
    from execution.session.command_line import Audience, serve
    from model.prediction.timeouts import with_timeout

    run_id, first = f"up-{loaded.name}-{os.getpid()}", loaded.fabrics[0]
    spec = with_timeout(first, loaded.faults.get(first.kind, ()), err.print)
    with options.page(live, live_at) as feed, experiment(spec, kind, run_id) as fabric:
        fabric.bed.links.impair()
        serve(fabric, loaded, out, PageAudience(feed) if feed else Audience())
