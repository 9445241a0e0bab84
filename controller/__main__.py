"""Starts the controller: an OpenFlow channel on the loopback only, without a REST server.

    python -m controller FABRIC PROXIES JOURNAL

FABRIC has the specification, pickled, PROXIES process ids by GPU, as JSON. What is done is written
to JOURNAL, as JSON lines.
"""

import json
import pickle
import resource
import sys
import warnings
from pathlib import Path

from controller.journal import Journal
from model.fabric.build import build_topology
from model.fabric.topology import Topology

OPENFLOW_PORT = 6653
LOOPBACK = "127.0.0.1"


def serve(topology: Topology, process_ids: dict[str, int], journal: Journal) -> None:
    """Listen, and run Ryu's event loop until the process ends."""
    # Ryu needs eventlet, whose advice to migrate would stand in every log.
    warnings.filterwarnings("ignore", r"\s*Eventlet is deprecated")
    import eventlet.wsgi

    # Ryu imports this name, which eventlet has dropped; its REST server is never loaded.
    eventlet.wsgi.ALREADY_HANDLED = None

    from ryu import cfg
    from ryu.base.app_manager import AppManager, RyuApp
    from ryu.controller.controller import datapath_connection_factory
    from ryu.controller.ofp_handler import OFPHandler
    from ryu.lib import hub

    from controller.app import RailbedController

    cfg.CONF([], project="ryu", default_config_files=[])
    manager = AppManager.get_instance()
    # Skip OFPHandler's own start: it binds later, in a thread whose errors Ryu only logs, and with
    # SO_REUSEPORT, so that two controllers would share the switches unnoticed.
    RyuApp.start(manager.instantiate(OFPHandler))
    manager.instantiate(RailbedController, topology, process_ids, journal).start()
    server = eventlet.listen((LOOPBACK, OPENFLOW_PORT), reuse_port=False)
    journal.write("listening", address=LOOPBACK, port=OPENFLOW_PORT)
    while True:
        hub.spawn(datapath_connection_factory, *server.accept())


def main(fabric: Path, proxies: Path, journal_file: Path) -> None:
    """Read the files, then serve the switches."""
    journal = Journal(journal_file)
    try:
        # 400 proxies with four descriptors each need more than the usual 1024.
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        topology = build_topology(pickle.loads(fabric.read_bytes()))
        serve(topology, json.loads(proxies.read_text()), journal)
    except Exception:
        journal.end_with_error("main")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
