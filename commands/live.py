"""The command `live`."""

from commands.options import Datapath, LiveAt, Overrides, Proxies, ScenarioPath
from commands.up import up


def live(
    scenario: ScenarioPath,
    proxies: Proxies = None,
    overrides: Overrides = [],  # noqa: B006  (typer wants a plain default)
    datapath: Datapath = None,
    live_at: LiveAt = None,
) -> None:
    """Do what `up --live` does."""
    up(scenario, proxies, overrides, datapath, live=True, live_at=live_at)
