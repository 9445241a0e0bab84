"""Services that a user of plain Mininet starts first: Open vSwitch as packaged, and Ryu.

Both run in the current network namespace, with their files in the run's folder. All settings are
the packages' defaults, so Open vSwitch forwards packet by packet.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from linux.network.proc_net import connections, listens
from linux.processes.lifetime import output_of, running, wait_until_begun
from linux.processes.run_lock import RunLock

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
LOOPBACK = "127.0.0.1"
OPENFLOW_PORT = 6653
DEADLINE_S = 30
# `ryu-manager`, with a name restored that Ryu's REST server imports and eventlet has dropped.
RYU_MANAGER = """
import eventlet.wsgi
eventlet.wsgi.ALREADY_HANDLED = None
from ryu.cmd.manager import main
main()
"""
LEARNING_SWITCH = "ryu.app.simple_switch_13"


@dataclass(frozen=True)
class LearningController:
    """A running controller."""

    process_id: int
    log: Path

    def switches(self) -> int:
        """How many switches are connected."""
        return connections(self.process_id, OPENFLOW_PORT)


@contextmanager
def plain_open_vswitch(lock: RunLock) -> Iterator[dict[str, str]]:
    """Start Open vSwitch; yield the variables by which `ovs-vsctl` without options finds it."""
    folder = lock.folder / "plain-ovs"
    folder.mkdir()
    places = ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR")
    variables = {**lock.environment, **dict.fromkeys(places, str(folder))}
    database, remote = folder / "conf.db", folder / "db.sock"
    output_of("ovsdb-tool", "create", str(database), str(SCHEMA))
    server = ["ovsdb-server", f"--remote=punix:{remote}", str(database)]
    log = folder / "ovsdb-server.log"
    with running(server, log, variables) as process:
        wait_until_begun(process, remote.exists, "plain Open vSwitch's database", log, DEADLINE_S)
        output_of(
            "ovs-vsctl", "--retry", "--timeout=10", "--no-wait", f"--db=unix:{remote}", "init"
        )
        daemon = ["ovs-vswitchd", f"unix:{remote}"]
        with running(daemon, folder / "ovs-vswitchd.log", variables):
            yield variables


@contextmanager
def learning_controller(lock: RunLock) -> Iterator[LearningController]:
    """Start Ryu with its learning switch, on the loopback."""
    log = lock.folder / "ryu-manager.log"
    command = [sys.executable, "-P", "-c", RYU_MANAGER]
    command += ["--ofp-listen-host", LOOPBACK, "--ofp-tcp-listen-port", str(OPENFLOW_PORT)]
    with running([*command, LEARNING_SWITCH], log, lock.environment) as ryu:

        def listening() -> bool:
            return listens(ryu.pid, OPENFLOW_PORT)

        wait_until_begun(ryu, listening, "ryu-manager", log, DEADLINE_S)
        yield LearningController(ryu.pid, log)
