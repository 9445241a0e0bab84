"""The fabric as a Mininet network.

Mininet's own nodes start a shell each, and its links run `ip` and `tc` for every step. These
classes do the same over netlink, and start a shell only when Mininet's command line wants one.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from mininet.link import Intf, Link
from mininet.log import output
from mininet.net import Mininet
from mininet.node import Node, Switch
from mininet.topo import Topo

from model.fabric import addressing
from model.fabric import topology as fabric
from testbed.fabric.links import Links
from testbed.nodes.openvswitch import Bridge, OpenVSwitch

NO_ROUTE = "No route to host"
# What Mininet parses of a ping that nobody answers: sent, received, and times in ms.
LOST = (1, 0, 0.0, 0.0, 0.0, 0.0)


class FabricTopo(Topo):  # type: ignore[misc]
    """The topology as Mininet nodes and links, with the class that implements each."""

    def build(self, links: Links, switch: OpenVSwitch) -> None:
        """Add the nodes and links; Mininet calls this with the constructor's arguments."""
        topology = links.topology
        for gpu in topology.gpus:
            self.addHost(gpu.name, cls=GpuProxyNode, gpu=gpu, pid=links.process_ids[gpu.name])
        for name in (*topology.hb_switches, *topology.hb_leaves):
            self.addSwitch(name, cls=HbSwitch, links=links, dpid="0")
        for number, name in enumerate(topology.openflow_switches, start=1):
            self.addSwitch(name, cls=OpenFlowSwitch, open_vswitch=switch, dpid=f"{number:x}")
        for link in topology.links:
            self.addLink(
                link.lower.node,
                link.upper.node,
                port1=link.lower.number,
                port2=link.upper.number,
                cls=FabricLink,
                link=link,
                links=links,
            )


class ShellOnDemand(Node):  # type: ignore[misc]
    """A node that starts its shell with the first command."""

    inNamespace: bool  # Mininet's name

    def startShell(self, mnopts: str | None = None) -> None:
        """Do nothing: `sendCmd` starts the shell."""

    def sendCmd(self, *command: Any, **options: Any) -> None:
        """Start the shell if there is none, and send it a command."""
        self._start_shell_once()
        super().sendCmd(*command, **options)

    def cmd(self, *command: Any, **options: Any) -> Any:
        """Start the shell if there is none, send it a command, and return its output."""
        self._start_shell_once()
        return super().cmd(*command, **options)

    def _start_shell_once(self) -> None:
        """Start the shell; it joins the process `pid`, or stays in the run's own namespace."""
        if self.shell is None:
            place, pid = self.inNamespace, self.pid
            self.inNamespace = False
            super().startShell(f"-ca{pid}" if pid else "-c")
            self.inNamespace = place

    def _popen(self, command: list[str], **options: Any) -> Any:
        """Start a process in this process's folder, or in `/` if the node has no such folder.

        Without the folder, mnexec ends at once, and Mininet waits for a shell for ever. A shell
        gets its terminal here: in a container it would not find it by name, and hear no Ctrl-C.
        """
        here = Path.cwd()
        is_there = not self.pid or Path(f"/proc/{self.pid}/root{here}").is_dir()
        with_terminal = self.slave is not None and options.get("stdin") == self.slave
        if with_terminal:
            command = ["setsid", "--ctty", *command]
        return super()._popen(command, **{"cwd": here if is_there else "/", **options})

    def popen(self, *command: Any, **options: Any) -> Any:
        """Start a program in the namespaces of the shell, beside it."""
        here = ["mnexec", "-da", str(self.pid)] if self.pid else ["mnexec", "-d"]
        return super().popen(*command, **{"mncmd": here, **options})


class GpuProxyNode(ShellOnDemand):
    """A GPU proxy; a shell for it joins the proxy's namespaces."""

    def __init__(self, name: str, gpu: fabric.Gpu, pid: int, **params: Any) -> None:
        super().__init__(name, **params)
        self.gpu = gpu
        self.pid = pid

    def IP(self, intf: Any = None) -> str:
        """The address of the NIC, which every GPU reaches; of `intf`, if one is given."""
        return str(self.address(intf if intf in self.nameToIntf else "nic0"))

    def address(self, interface: str) -> IPv4Address:
        """The address of the proxy's interface: `hb0`, or `nic0` and on, one for each lane."""
        if interface == "hb0":
            return addressing.hb_address(self.gpu)
        return addressing.nic_address(self.gpu.by(int(interface.removeprefix("nic"))))

    def configDefault(self, **params: Any) -> None:
        """Give the proxy its addresses."""
        self.intfs[1].link.links.configure_proxy(self.gpu)


class FabricSwitch(ShellOnDemand, Switch):  # type: ignore[misc]
    """A switch without the control interface that Mininet would add."""

    controlIntf = None

    def __init__(self, name: str, **params: Any) -> None:
        super().__init__(name, **{**params, "inNamespace": True})


class HbSwitch(FabricSwitch):
    """An HB switch: a kernel bridge, as no OpenFlow controller programs an NVSwitch."""

    def __init__(self, name: str, links: Links, **params: Any) -> None:
        super().__init__(name, **params)
        self.links = links

    def start(self, controllers: list[Any]) -> None:
        """Make the bridge with its ports."""
        self.links.make_bridge(self.name)

    def dpctl(self, *arguments: str) -> str:
        """Say why there is nothing to show."""
        return "a kernel bridge, which knows no OpenFlow\n"


class OpenFlowSwitch(FabricSwitch):
    """A rail or spine switch in the run's own Open vSwitch."""

    def __init__(self, name: str, open_vswitch: OpenVSwitch, **params: Any) -> None:
        super().__init__(name, **params)
        self.open_vswitch = open_vswitch

    def start(self, controllers: list[Any]) -> None:
        """Do nothing: `batchStartup` starts all switches at once."""

    @classmethod
    def batchStartup(cls, switches: tuple["OpenFlowSwitch", ...]) -> tuple["OpenFlowSwitch", ...]:
        """Make all switches in one transaction."""
        switches[0].open_vswitch.add_bridges([switch.bridge() for switch in switches])
        return switches

    def dpctl(self, *arguments: str) -> str:
        """Execute ovs-ofctl(8) for this switch: a command and its further arguments."""
        command, *further = arguments
        return str(self.cmd(*self.open_vswitch.openflow_command(self.name, command, *further)))

    def bridge(self) -> Bridge:
        """Return the switch's name, datapath id and ports for Open vSwitch."""
        ports = {number: i.name for number, i in self.intfs.items() if i.link is not None}
        return Bridge(self.name, int(self.dpid, 16), ports)


class FabricIntf(Intf):  # type: ignore[misc]
    """An interface that is configured over netlink."""

    def config(self, **params: Any) -> dict[str, Any]:
        """Do nothing: `Links` configures interfaces."""
        return {}

    def updateIP(self) -> str | None:
        """The address of a GPU proxy's interface; a switch's interfaces have none."""
        node = self.node
        self.ip = str(node.address(self.name)) if isinstance(node, GpuProxyNode) else None
        return self.ip

    def IP(self) -> str | None:
        """The interface's address, or `None`."""
        return self.updateIP()


class FabricLink(Link):  # type: ignore[misc]
    """A link of the fabric."""

    def __init__(
        self,
        node1: Node,
        node2: Node,
        port1: int,
        port2: int,
        link: fabric.Link,
        links: Links,
        **params: Any,
    ) -> None:
        self.link = link
        self.links = links
        links.connect(link)
        names = {"intfName1": link.lower.interface, "intfName2": link.upper.interface}
        super().__init__(node1, node2, port1, port2, intf=FabricIntf, **names)

    @classmethod
    def makeIntfPair(cls, *names: Any, **params: Any) -> None:
        """Do nothing: `Links` makes the veth pair."""

    def __str__(self) -> str:
        return self.link.name

    def status(self) -> str:
        """Say whether the link is up, or at which end it is not."""
        ends = (self.link.lower, self.link.upper)
        down = [port.node for port in ends if not self.links.is_up(port)]
        return f"(down at {' and '.join(down)})" if down else "(up)"


class FabricNetwork(Mininet):  # type: ignore[misc]
    """Mininet's network, whose pings ask for the address at which the sender reaches a GPU."""

    def ping(
        self, hosts: Sequence[GpuProxyNode] | None = None, timeout: str | None = None
    ) -> float:
        """Ping between all hosts, print who is reached, and return the lost packets in percent."""
        pings = self._pings(hosts or self.hosts, timeout)
        lost = sum(sent - received for _, _, (sent, received, *_) in pings)
        output(f"*** Results: {lost}/{len(pings)} lost\n")
        return 100 * lost / len(pings) if pings else 0.0

    def pingFull(
        self, hosts: Sequence[GpuProxyNode] | None = None, timeout: str | None = None
    ) -> list[Any]:
        """Ping between all hosts, print the round-trip times, and return everything parsed."""
        pings = self._pings(hosts or self.hosts, timeout)
        for source, destination, (sent, received, _, average_ms, *_) in pings:
            output(f" {source}->{destination}: {received}/{sent}, {average_ms:.3f} ms\n")
        return pings

    def _pings(self, hosts: Sequence[GpuProxyNode], timeout: str | None) -> list[Any]:
        """Ping each pair once; return source, destination, and what Mininet parses of ping(8)."""
        wait = f"-W {timeout}" if timeout else "-W 1"
        pings = []
        for source in hosts:
            output(f"{source} -> ")
            for destination in (host for host in hosts if host is not source):
                target = addressing.address_of(destination.gpu, source.gpu)
                said = source.cmd(f"ping -c1 {wait} {target}")
                # ping(8) sends nothing where a route says that nobody is there.
                parsed = LOST if NO_ROUTE in said else self._parsePingFull(said)
                pings.append((source, destination, parsed))
                output(f"{destination if parsed[1] else 'X'} ")
            output("\n")
        return pings


def build_network(links: Links, switch: OpenVSwitch) -> Mininet:
    """Make nodes and links.

    Mininet's initialization is skipped: it would raise limits of the whole machine.
    """
    Mininet.inited = True
    network = FabricNetwork(FabricTopo(links, switch), controller=None, link=FabricLink)
    links.flush()
    return network


def start_network(network: Mininet, links: Links) -> None:
    """Start the switches and shape the links.

    Links must be up first: bridges and the controller treat all others as failed. Shapers come
    last: Open vSwitch removes the queues of a port that is added to it.
    """
    links.wait_until_up()
    network.start()
    for link in links.topology.links:
        links.shape(link)
    links.flush()
    for link in links.topology.links:
        links.check_shaped(link)
