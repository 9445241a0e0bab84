"""The command `demo`."""

from commands.options import AsJson, Clock, Datapath, Fresh, Proxies
from commands.run import run
from scenarios.library_files import LIBRARY


def demo(
    as_json: AsJson = False,
    proxies: Proxies = None,
    datapath: Datapath = None,
    clock: Clock = "real",
    fresh: Fresh = False,
) -> bool:
    """Run the quickstart of the library; return whether its verdict is fail."""
    quickstart = LIBRARY / "quickstart.yaml"
    return run(quickstart, as_json, proxies, datapath=datapath, clock=clock, fresh=fresh)
