"""A rail-only fabric as a user of plain Mininet writes it, to compare Railbed with.

Mininet's hosts with a shell each, `OVSSwitch` in user space for rail switches and `LinuxBridge` for
HB switches, `TCLink` with the same rates, a learning controller, addresses and static routes by
commands. Everything is in an unnamed network namespace and ends with it.

Open vSwitch and Ryu run in the current network namespace, with their files in the run's folder and
the packages' default settings, so Open vSwitch forwards packet by packet. Railbed's agents on the
hosts send the same traffic as on its own fabrics.
"""

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import Popen
from typing import Any

from mininet.link import TCLink
from mininet.log import lg
from mininet.net import Mininet
from mininet.node import Host, OVSSwitch, RemoteController
from mininet.nodelib import LinuxBridge

from execution.cases.emulation import AGENT, PlacedJob
from linux.network.counters import connections, listens
from linux.network.namespaces import namespace_of, private_namespace
from linux.network.route_socket import RouteSocket
from linux.processes.lifetime import last_words, output_of, running, wait_for, wait_until_begun
from linux.processes.run_lock import RunLock
from model.errors import EmulationError
from model.fabric import addressing
from model.fabric.spec import FabricSpec
from model.fabric.topology import Gpu, Link, LinkKind, Topology
from model.job.placement import job_placement
from testbed.nodes.gpu_proxies import ARCHIVE, SYSCTLS, pack_agent
from testbed.nodes.openvswitch import SCHEMA
from traffic_gen.agents.client import agent_client

MBIT = 1_000_000
CONNECT_DEADLINE_S = 60
# TCP has the same settings on both testbeds.
TCP = {name: value for name, value in SYSCTLS.items() if name.startswith("net.ipv4.tcp_")}
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
def learning_controller(lock: RunLock, log: Path) -> Iterator[Popen[bytes]]:
    """Start Ryu with its learning switch, on the loopback."""
    command = [sys.executable, "-P", "-c", RYU_MANAGER]
    command += ["--ofp-listen-host", LOOPBACK, "--ofp-tcp-listen-port", str(OPENFLOW_PORT)]
    with running([*command, LEARNING_SWITCH], log, lock.environment) as ryu:
        is_listening = partial(listens, ryu.pid, OPENFLOW_PORT)
        wait_until_begun(ryu, is_listening, "ryu-manager", log, DEADLINE_S)
        yield ryu


@dataclass(frozen=True)
class PlainFabric:
    """A fabric that plain Mininet reports as up. `process_ids` are the hosts', in rank order.

    All switches were connected after `connected_s`. Mininet notices after `up_s`: it polls Open
    vSwitch's database, where connections are updated every five seconds.
    """

    network: Mininet
    lock: RunLock
    process_ids: tuple[int, ...]
    connected_s: float
    up_s: float


@contextmanager
def plain_job(fabric: PlainFabric, spec: FabricSpec) -> Iterator[PlacedJob]:
    """Run Railbed's agent in each host's namespace; yield what executes schedules with them."""
    folder = fabric.lock.folder / "plain-agents"
    folder.mkdir()
    archive = folder / ARCHIVE
    pack_agent(AGENT, archive)
    sockets = [folder / f"{rank}.sock" for rank in range(len(fabric.process_ids))]
    with ExitStack() as stack:
        for process_id, path in zip(fabric.process_ids, sockets, strict=True):
            command = [sys.executable, "-IS", str(archive), str(path)]
            agent = running(command, path.with_suffix(".log"), fabric.lock.environment)
            with namespace_of(process_id):
                stack.enter_context(agent)
        for path in sockets:
            wait_for(path.exists, f"start of the agent at {path.name}", DEADLINE_S)
        agents = stack.enter_context(agent_client(sockets, spec, lambda: None))
        yield PlacedJob(agents, job_placement(spec))


class KernelBridge(LinuxBridge):  # type: ignore[misc]
    """Mininet's `LinuxBridge`, made by `ip`: Debian's mininet does not bring `brctl`."""

    @classmethod
    def setup(cls) -> None:
        """Do nothing; Mininet would look for `brctl`."""

    def start(self, _controllers: list[Any]) -> None:
        """Make the bridge with its ports; called by Mininet."""
        self.cmd(f"ip link add {self.name} type bridge")
        for interface in self.intfList():
            if self.name in interface.name:
                self.cmd(f"ip link set {interface} master {self.name}")
        self.cmd(f"ip link set {self.name} up")


@contextmanager
def plain_mininet(topology: Topology, lock: RunLock, deadline_s: float) -> Iterator[PlainFabric]:
    """Bring up a rail-only fabric; raise `EmulationError` if it is not built in `deadline_s`.

    The clock starts once Open vSwitch and the controller run. Mininet's initialization is skipped:
    it would raise limits of the whole machine.
    """
    Mininet.inited = True
    log = lock.folder / "ryu-manager.log"
    with _surroundings(lock, log) as ryu:
        begun_s = time.monotonic()
        network = Mininet(controller=None, build=False)
        try:
            _start(network, topology, deadline_s)
            connected_s = _wait_until_connected(network, ryu, log) - begun_s
            up_s = time.monotonic() - begun_s
            process_ids = tuple(host.pid for host in network.hosts)
            yield PlainFabric(network, lock, process_ids, connected_s, up_s)
        finally:
            for node in network.hosts + network.switches + network.controllers:
                node.terminate()


@contextmanager
def _surroundings(lock: RunLock, log: Path) -> Iterator[int]:
    """Start Open vSwitch and the controller in a namespace; yield the controller's process id.

    Mininet is silenced: it logs the kernel's HTB quantum hints as errors, two per fast link.
    """
    with ExitStack() as stack:
        stack.enter_context(private_namespace())
        with RouteSocket() as netlink:
            netlink.link("set", index=1, state="up")
        variables = stack.enter_context(plain_open_vswitch(lock))
        ryu = stack.enter_context(learning_controller(lock, log))
        # for the shells that Mininet starts
        stack.callback(os.environ.update, dict(os.environ))
        stack.callback(os.environ.clear)
        os.environ.update(variables)
        stack.callback(lg.setLevel, lg.level)
        lg.setLevel(logging.CRITICAL)
        yield ryu.pid


class _ListeningController(RemoteController):  # type: ignore[misc]
    """A controller that is known to listen: Mininet asks telnet, and OpenFlow is no UTF-8 text."""

    def isListening(self, _ip: str, _port: int) -> bool:
        """Return true."""
        return True


def _start(network: Mininet, topology: Topology, deadline_s: float) -> None:
    end_s = time.monotonic() + deadline_s
    try:
        for _ in _added(network, topology):
            if time.monotonic() > end_s:
                what = f"plain Mininet: network start did not end within {deadline_s:g} s"
                raise EmulationError(what)
        network.build()
        network.addController(_ListeningController("c0", ip=LOOPBACK, port=OPENFLOW_PORT))
        for gpu in topology.gpus:
            for name, value in TCP.items():
                network[gpu.name].cmd(f"sysctl -w {name}='{value}'")
            _add_routes(network[gpu.name], gpu, topology)
        network.start()
    except SystemExit as error:
        raise EmulationError(
            "plain Mininet: start of its network failed; see the messages above"
        ) from error


def _added(network: Mininet, topology: Topology) -> Iterator[object]:
    """Add hosts, switches and shaped links; yield each, when Mininet knows all its shells.

    An alarm could go off while a shell is being started. `txo=False` makes hosts compute checksums:
    otherwise user-space Open vSwitch forwards packets whose checksum was never computed, and no TCP
    connection opens.
    """
    for gpu in topology.gpus:
        yield network.addHost(gpu.name, ip=None)
    for name in topology.hb_switches:
        yield network.addSwitch(name, cls=KernelBridge, dpid="0")
    switch = {"cls": OVSSwitch, "datapath": "user", "protocols": "OpenFlow13", "batch": True}
    for number, name in enumerate(topology.openflow_switches, start=1):
        yield network.addSwitch(name, dpid=f"{number:016x}", **switch)
    for link in topology.links:
        ends = link.lower.node, link.upper.node
        address = _address(link, topology.gpu_by_name[link.lower.node])
        rate = link.rate_bps / MBIT
        yield network.addLink(*ends, cls=TCLink, bw=rate, txo=False, params1={"ip": address})


def _address(link: Link, gpu: Gpu) -> str:
    if link.kind is LinkKind.HB:
        return f"{addressing.hb_address(gpu)}/{addressing.DOMAIN_PREFIX}"
    return f"{addressing.nic_address(gpu)}/{addressing.RAIL_PREFIX}"


def _wait_until_connected(network: Mininet, controller: int, log: Path) -> float:
    """Wait until Mininet sees all switches connected; return when they were, in monotonic s."""
    switches = sum(isinstance(switch, OVSSwitch) for switch in network.switches)
    wait_for(
        lambda: connections(controller, OPENFLOW_PORT) >= switches,
        f"plain Mininet: connection of its {switches} switches",
        CONNECT_DEADLINE_S,
    )
    connected_s = time.monotonic()
    if not network.waitConnected(timeout=CONNECT_DEADLINE_S):
        raise EmulationError(
            f"plain Mininet: not all switches are connected after {CONNECT_DEADLINE_S} s; "
            f"the controller's log ends with:\n{last_words(log)}"
        )
    return connected_s


def _add_routes(host: Host, gpu: Gpu, topology: Topology) -> None:
    """Route packets for another rail through the HB domain, to the peer on that rail."""
    host.cmd("sysctl -w net.ipv4.ip_forward=1")
    for peer in topology.domain(gpu.domain):
        if peer != gpu:
            network = addressing.rail_network(peer.rail)
            own = addressing.nic_address(gpu)
            host.cmd(f"ip route add {network} via {addressing.hb_address(peer)} src {own}")
