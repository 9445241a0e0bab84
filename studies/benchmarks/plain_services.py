"""Services beside plain Mininet: Open vSwitch as packaged, Ryu, and Railbed's agents on the hosts.

Open vSwitch and Ryu run in the current network namespace, with their files in the run's folder. All
settings are the packages' defaults, so Open vSwitch forwards packet by packet. The agents send the
same traffic as on Railbed's own fabrics.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from linux.network.namespaces import namespace_of
from linux.network.proc_net import connections, listens
from linux.processes.lifetime import output_of, running, wait_for, wait_until_begun
from linux.processes.run_lock import RunLock
from testbed.nodes.gpu_proxies import ARCHIVE, pack_agent

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
        """The number of connected switches."""
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


@contextmanager
def plain_agents(process_ids: Sequence[int], agent: Path, lock: RunLock) -> Iterator[list[Path]]:
    """Run the program `agent` in each host's namespace; yield the agents' sockets, by rank."""
    folder = lock.folder / "plain-agents"
    folder.mkdir()
    archive = folder / ARCHIVE
    pack_agent(agent, archive)
    sockets = [folder / f"{rank}.sock" for rank in range(len(process_ids))]
    with ExitStack() as stack:
        for process_id, path in zip(process_ids, sockets, strict=True):
            command = [sys.executable, "-IS", str(archive), str(path)]
            with namespace_of(process_id):
                stack.enter_context(running(command, path.with_suffix(".log"), lock.environment))
        for path in sockets:
            wait_for(path.exists, f"the agent at {path.name} starts", DEADLINE_S)
        yield sockets
