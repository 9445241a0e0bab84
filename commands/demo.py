"""The command `demo`."""

from commands.options import AsJson, Clock, Datapath, Fresh, Proxies, Store
from commands.run import run
from results.store.runs import DEFAULT_STORE
from scenarios.library_files import LIBRARY


def demo(
    as_json: AsJson = False,
    proxies: Proxies = None,
    store: Store = DEFAULT_STORE,
    datapath: Datapath = None,
    clock: Clock = "real",
    fresh: Fresh = False,
) -> bool:
    """Run the quickstart of the library; return whether its verdict is fail."""
    quickstart = LIBRARY / "quickstart.yaml"
    return run(quickstart, as_json, proxies, [], store, datapath, clock, fresh=fresh)
