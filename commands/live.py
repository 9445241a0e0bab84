"""The command `live`."""

from commands.options import DEFAULT_AT, Datapath, LiveAt, Overrides, Proxies, ScenarioPath
from commands.up import up


def live(
    scenario: ScenarioPath,
    proxies: Proxies = None,
    overrides: Overrides = [],  # noqa: B006  (typer wants a plain default)
    datapath: Datapath = None,
    live_at: LiveAt = DEFAULT_AT,
) -> None:
    """Do what `up --live` does."""
    up(scenario, proxies, overrides, datapath, live=True, live_at=live_at)
