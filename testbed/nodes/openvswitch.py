"""A private Open vSwitch: its own database, its own daemon, in the run's own network namespace.

The datapath of its switches is the kernel's if its module is available, else the user-space one.
The latter has segmentation offload (`userspace-tso-enable`): it forwards 64 KiB segments instead of
single packets.
"""

import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from linux.network.borrowed_sockets import borrowed_sockets, closing_together
from linux.network.namespaces import namespace_of
from linux.network.socket_options import SO_SNDBUFFORCE
from linux.processes.lifetime import (
    BEFORE_PROXIES,
    LAST_WORDS_LINES,
    Watch,
    end,
    output_of,
    running,
    start,
    wait_for,
    wait_until_begun,
)
from linux.processes.run_lock import RunLock
from model.errors import EmulationError
from model.fabric.spec import Datapath

NAME, LOG = "Open vSwitch", "ovs-vswitchd.log"
DATABASE = "Open vSwitch's database"
DATABASE_DEADLINE_S = CONTROL_TIMEOUT_S = 10
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
CONTROLLER, NOBODY = "tcp:127.0.0.1:6653", "unix:nobody"
# Longest wait of a bridge between attempts to reconnect to its controller: least 1 s, default 8 s.
RECONNECT_MS = 1000
# Open vSwitch drops packets that the kernel does not accept at once: accept a whole queue of them.
SEND_BUFFER_BYTES = 16 * 1024 * 1024
DISCARD_PORT = 9  # RFC 863
DATAPATH_TYPES = {Datapath.KERNEL: "system", Datapath.USER_SPACE: "netdev"}
SEGMENTATION_OFFLOAD = ("other_config:userspace-tso-enable=true",)
# Open vSwitch begins with a limit of 10000 flows, and lowers it after slow rounds of its
# revalidators; beyond the limit, it removes flows that are in use. A fabric has at most one flow
# for each pair of GPUs and switch.
MOST_FLOWS = 1_000_000_000
SETTINGS = (
    # Nobody reads the statistics in the database: write them once a day, not every five seconds.
    "other_config:stats-update-interval=86400000",
    # Keep the flows of connections that are idle for more than ten seconds: where all GPUs begin at
    # once without them, more packets go to the daemon than its sockets take, and some are lost.
    "other_config:max-idle=86400000",
    f"other_config:flow-limit={MOST_FLOWS}",
)
# A round of the revalidators looks at every flow. Many ports have many flows: fewer rounds.
REVALIDATION_MS, REVALIDATION_MS_A_PORT = 500, 16
COMPLAINT = re.compile(r"\|(WARN|ERR|EMER)\|")
ANYWHERE = IPv4Network("0.0.0.0/0")
_RULE = re.compile(r"n_packets=\d+, n_bytes=(?P<bytes>\d+),(?P<rest>.*)")
_DESTINATION = re.compile(r"nw_dst=([\d./]+)")


@dataclass(frozen=True)
class Bridge:
    """An OpenFlow switch: its name, its datapath id, and its interfaces by port number."""

    name: str
    datapath_id: int
    ports: dict[int, str]


@dataclass
class OpenVSwitch:
    """A running Open vSwitch: its database, its daemon with a process id, and commands for both."""

    folder: Path
    datapath: Datapath
    watch: Watch
    process_id: int
    revalidation_ms: int = field(default=REVALIDATION_MS, init=False)

    def openflow_command(self, bridge: str, command: str, *arguments: str) -> tuple[str, ...]:
        """The command line of ovs-ofctl(8) for a switch of this instance."""
        management = f"unix:{self.folder}/{bridge}.mgmt"
        return ("ovs-ofctl", "-OOpenFlow13", command, management, *arguments)

    @property
    def log(self) -> Path:
        """The log file of the switch daemon."""
        return self.folder / LOG

    def complaints(self) -> str:
        """The last warnings and errors of the daemon; empty if there are none."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join([line for line in lines if COMPLAINT.search(line)][-LAST_WORDS_LINES:])

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Add the daemon's warnings and errors to the error of a failed start."""
        try:
            yield
        except EmulationError as error:
            complaints = self.complaints()
            if not complaints:
                raise
            raise EmulationError(f"{error}; Open vSwitch's log:\n{complaints}") from error

    def command(self, *arguments: str) -> str:
        """Run `ovs-vsctl` on this instance and return its output."""
        database = f"--db=unix:{self.folder}/db.sock"
        return output_of("ovs-vsctl", database, *arguments, check=self.watch.check)

    def control(self, *arguments: str, timeout_s: float = CONTROL_TIMEOUT_S) -> str:
        """Run `ovs-appctl` on the daemon and return its output."""
        target = f"{self.folder}/ovs-vswitchd.{self.process_id}.ctl"
        command = ("ovs-appctl", "-t", target, *arguments)
        return output_of(*command, timeout_s=timeout_s, check=self.watch.check)

    def add_bridges(self, bridges: Sequence[Bridge]) -> None:
        """Create bridges with their ports in one transaction and connect them to the controller."""
        ports = sum(len(bridge.ports) for bridge in bridges)
        self.revalidation_ms = max(self.revalidation_ms, REVALIDATION_MS_A_PORT * ports)
        words = [word for bridge in bridges for word in self._bridge_words(bridge)]
        words += ["--", "set", "Open_vSwitch", "."]
        words += [f"other_config:max-revalidator={self.revalidation_ms}"]
        self.command(*words[1:])
        # Raise the present limit of flows, which a datapath has from its first bridge on.
        self.control("upcall/set-flow-limit", str(MOST_FLOWS))

    def disconnect(self, name: str) -> None:
        """Take away a switch's controller; its bridge stays.

        Without the bridge, or any controller, Open vSwitch would forget the flows of all switches
        (`udpif_synchronize` and `flush` in ofproto/ofproto-dpif.c).
        """
        self.command("set", "controller", name, f'target="{NOBODY}"')

    def restart(self, name: str) -> None:
        """Let a switch connect to the controller without groups and rules, as after a start."""
        self.disconnect(name)
        for command in ("del-groups", "del-flows"):
            output_of(*self.openflow_command(name, command), check=self.watch.check)
        self.command("set", "controller", name, f'target="{CONTROLLER}"')

    def move_ports(self, removed: Sequence[str], added: Sequence[tuple[str, int, str]]) -> None:
        """Remove interfaces from their bridges; add ports: (bridge, port number, interface)."""
        if words := [word for name in removed for word in ("--", "del-port", name)]:
            with closing_together(self.process_id):  # all other switches would stop for 0.1 s
                self.command(*words[1:])
        if words := [word for port in added for word in self._port_words(*port)]:
            self.command(*words[1:])

    def _port_words(self, bridge: str, number: int, interface: str) -> list[str]:
        add = ["--", "add-port", bridge, interface]
        return [*add, "--", "set", "interface", interface, f"ofport_request={number}"]

    def _bridge_words(self, bridge: Bridge) -> list[str]:
        words = ["--", "add-br", bridge.name, "--", "set", "bridge", bridge.name]
        words += [f"datapath_type={DATAPATH_TYPES[self.datapath]}"]
        words += ["fail_mode=secure", "protocols=OpenFlow13"]
        words += [f"other_config:datapath-id={bridge.datapath_id:016x}"]
        words += ["other_config:disable-in-band=true"]
        words += ["--", f"--id=@{bridge.name}", "create", "controller", f'target="{CONTROLLER}"']
        # No echo requests: a controller that dies closes its connections, and one that hangs has no
        # successor. The answers of eight switches take 3 ms of a slow processor.
        words += [f"max_backoff={RECONNECT_MS}", "inactivity_probe=0"]
        words += ["--", "set", "bridge", bridge.name, f"controller=@{bridge.name}"]
        for number, interface in bridge.ports.items():
            words += self._port_words(bridge.name, number, interface)
        return words

    def widen_send_buffers(self) -> int:
        """Let the daemon's packet sockets buffer a whole queue; return how many there are.

        The sockets are duplicated by pidfd_getfd(2), so no setting of the machine is changed.
        """
        widened = 0
        for descriptor in borrowed_sockets(self.process_id):
            with socket.socket(fileno=descriptor) as borrowed:
                if borrowed.family == socket.AF_PACKET:
                    borrowed.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, SEND_BUFFER_BYTES)
                    widened += 1
        return widened

    def open_send_buffers(self, sender: int, receiver: IPv4Address) -> None:
        """Send a packet so that the user-space daemon opens its sending socket; widen its buffer.

        `sender` is a process in a GPU proxy's network namespace.
        """
        if self.datapath is not Datapath.USER_SPACE:
            return
        before = self.widen_send_buffers()
        with namespace_of(sender):
            probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with probe:
            probe.sendto(b"", (str(receiver), DISCARD_PORT))
            wait_for(
                lambda: self.widen_send_buffers() > before,
                "Open vSwitch: creation of its sending socket",
                deadline_s=10,
                check=self.watch.check,
            )


@contextmanager
def open_vswitch(lock: RunLock, watch: Watch, datapath: Datapath) -> Iterator[OpenVSwitch]:
    """Start Open vSwitch with its state in the run's folder, in the current network namespace.

    Call `require_datapath` before: it loads the kernel module of the datapath.
    """
    folder = lock.folder / "ovs"
    folder.mkdir()
    places = dict.fromkeys(("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR"), str(folder))
    environment = {**lock.environment, **places}
    database, remote, log = folder / "conf.db", folder / "db.sock", folder / "ovsdb-server.log"
    output_of("ovsdb-tool", "create", str(database), str(SCHEMA))
    server = ["ovsdb-server", f"--remote=punix:{remote}", str(database)]
    with running(server, log, environment) as database_server:
        watch.add(DATABASE, database_server.pid, log)
        wait_until_begun(database_server, remote.exists, DATABASE, log, DATABASE_DEADLINE_S)
        settings = SEGMENTATION_OFFLOAD if datapath is Datapath.USER_SPACE else ()
        # The socket file exists before the server listens on it.
        initialize = ["--retry", "--timeout=10", "--no-wait", f"--db=unix:{remote}", "init"]
        initialize += ["--", "set", "Open_vSwitch", ".", "external_ids:system-id=railbed"]
        output_of("ovs-vsctl", *initialize, *SETTINGS, *settings, check=watch.check)
        command = ["ovs-vswitchd", f"unix:{remote}"]
        daemon = start(command, folder / LOG, environment, BEFORE_PROXIES)
        try:
            watch.add(NAME, daemon.pid, folder / LOG)
            yield OpenVSwitch(folder, datapath, watch, daemon.pid)
        finally:
            watch.forget(NAME)
            with closing_together(daemon.pid):
                end(daemon)


@dataclass(frozen=True)
class RuleCount:
    """Bytes that a rule has forwarded; `ANYWHERE` for a rule that matches no destination."""

    destination: IPv4Network
    bytes: int


def rule_counters(switch: OpenVSwitch, bridges: Sequence[str]) -> dict[str, list[RuleCount]]:
    """Return the current counters of each switch's rules, by bridge name."""
    # The data path's own counters reach the rules with the next round of its revalidators.
    wait_for_revalidators(switch)
    commands = {bridge: switch.openflow_command(bridge, "dump-flows") for bridge in bridges}
    return {
        bridge: parse_rules(output_of(*command, timeout_s=CONTROL_TIMEOUT_S))
        for bridge, command in commands.items()
    }


def wait_for_revalidators(switch: OpenVSwitch) -> None:
    """Wait until a round of the revalidators has ended; it may have begun before."""
    # Open vSwitch waits for two rounds.
    timeout_s = CONTROL_TIMEOUT_S + 2 * switch.revalidation_ms / 1000
    switch.control("revalidator/wait", timeout_s=timeout_s)


def parse_rules(dump: str) -> list[RuleCount]:
    """Parse the rules that ovs-ofctl(8) prints; rules that drop are left out."""
    counts = []
    for rule in _RULE.finditer(dump):
        if not rule["rest"].endswith("actions=drop"):
            to = _DESTINATION.search(rule["rest"])
            counts.append(RuleCount(IPv4Network(to[1]) if to else ANYWHERE, int(rule["bytes"])))
    return counts
