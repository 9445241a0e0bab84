"""Starts the controller: host routes first, then the OpenFlow channel, on the loopback only."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from controller.desired import desired_routes
from controller.journal import Journal
from controller.routes import HostRoutes
from model.fabric import FabricKind, FabricSpec
from model.topology import Topology, build_topology

OPENFLOW_PORT = 6653
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Files:
    """What the controller is told, and where it says what it did."""

    fabric: Path
    proxies: Path
    journal: Path


def read_topology(fabric: Path) -> Topology:
    """The topology of the fabric whose specification is in a file."""
    fields = json.loads(fabric.read_text())
    return build_topology(FabricSpec(**{**fields, "kind": FabricKind(fields["kind"])}))


def install_routes(topology: Topology, proxies: Path, journal: Journal) -> None:
    """Give every proxy its host routes."""
    added = removed = 0
    for name, process_id in json.loads(proxies.read_text()).items():
        desired = desired_routes(topology, topology.gpu_by_name[name])
        more, fewer = HostRoutes(process_id).reconcile(desired)
        added, removed = added + more, removed + fewer
    journal.write("routes", added=added, removed=removed)


def serve(topology: Topology, journal: Journal) -> None:
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
    manager.instantiate(RailbedController, topology=topology, journal=journal).start()
    journal.write("listening", address=LOOPBACK, port=OPENFLOW_PORT)
    hub.joinall([channel.start()])


def main() -> None:
    """Read the files, install the routes, serve the switches."""
    parser = argparse.ArgumentParser(prog="controller", description=__doc__)
    for name in ("fabric", "proxies", "journal"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    files = Files(**vars(parser.parse_args()))
    journal = Journal(files.journal)
    topology = read_topology(files.fabric)
    install_routes(topology, files.proxies, journal)
    serve(topology, journal)


if __name__ == "__main__":
    main()
