"""Starts the controller: an OpenFlow channel on the loopback only, without a REST server."""

import argparse
import json
from pathlib import Path

from controller.journal import Journal
from model.fabric import FabricKind, FabricSpec
from model.topology import Topology, build_topology

OPENFLOW_PORT = 6653
LOOPBACK = "127.0.0.1"


def read_topology(fabric: Path) -> Topology:
    """The topology of the fabric whose specification is in a file."""
    fields = json.loads(fabric.read_text())
    return build_topology(FabricSpec(**{**fields, "kind": FabricKind(fields["kind"])}))


def serve(topology: Topology, process_ids: dict[str, int], journal: Journal) -> None:
    """Run Ryu's event loop until the process ends."""
    import eventlet.wsgi

    # Ryu imports this name, which eventlet has dropped; its REST server is never loaded.
    eventlet.wsgi.ALREADY_HANDLED = None

    from ryu import cfg
    from ryu.base.app_manager import AppManager
    from ryu.controller.ofp_handler import OFPHandler
    from ryu.lib import hub

    from controller.app import RailbedController

    cfg.CONF([], project="ryu", default_config_files=[])
    cfg.CONF.set_override("ofp_listen_host", LOOPBACK)
    cfg.CONF.set_override("ofp_tcp_listen_port", OPENFLOW_PORT)
    manager = AppManager.get_instance()
    channel = manager.instantiate(OFPHandler)
    manager.instantiate(RailbedController, topology, process_ids, journal).start()
    serving = channel.start()
    journal.write("listening", address=LOOPBACK, port=OPENFLOW_PORT)
    hub.joinall([serving])


def main() -> None:
    """Read the files, then serve the switches."""
    parser = argparse.ArgumentParser(prog="controller", description=__doc__)
    parser.add_argument("--fabric", type=Path, required=True, help="the specification, as JSON")
    parser.add_argument("--proxies", type=Path, required=True, help="process ids by GPU, as JSON")
    parser.add_argument("--journal", type=Path, required=True, help="what was done, as JSON lines")
    files = parser.parse_args()
    process_ids = json.loads(files.proxies.read_text())
    serve(read_topology(files.fabric), process_ids, Journal(files.journal))


if __name__ == "__main__":
    main()
