"""The fabric as a Mininet network.

Mininet's own nodes start a shell each, and its links run `ip` and `tc` for every step. These
classes do the same over netlink, and start a shell only when Mininet's command line wants one.
"""

from collections.abc import Sequence
from typing import Any

from mininet.cli import CLI
from mininet.link import Intf, Link
from mininet.net import Mininet
from mininet.node import Node, Switch
from mininet.topo import Topo

from model.fabric import addressing
from model.fabric import topology as fabric
from testbed.fabric.links import Links
from testbed.nodes.gpu_proxies import Proxy
from testbed.nodes.openvswitch import Bridge, OpenVSwitch


class FabricTopo(Topo):  # type: ignore[misc]
    """The topology as Mininet nodes and links, with the class that implements each."""

    def build(
        self,
        topology: fabric.Topology,
        proxies: dict[str, Proxy],
        links: Links,
        switch: OpenVSwitch,
    ) -> None:
        """Add the nodes and links; Mininet calls this with the constructor's arguments."""
        for gpu in topology.gpus:
            pid = proxies[gpu.name].process_id
            domain = topology.domain(gpu.domain)
            self.addHost(gpu.name, cls=GpuProxyNode, gpu=gpu, domain=domain, pid=pid)
        for name in topology.hb_switches:
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
                gpus=topology.gpu_by_name,
            )


class ShellOnDemand(Node):  # type: ignore[misc]
    """A node that starts its shell with the first command."""

    inNamespace: bool  # Mininet's name

    def startShell(self, mnopts: str | None = None) -> None:
        """Do nothing: `sendCmd` starts the shell."""

    def sendCmd(self, *command: Any, **options: Any) -> None:
        """Start the shell if there is none, and send it a command."""
        if self.shell is None:
            place, pid = self.inNamespace, self.pid
            self.inNamespace = False
            super().startShell(f"-cda{pid}" if pid else None)
            self.inNamespace = place
        super().sendCmd(*command, **options)


class GpuProxyNode(ShellOnDemand):
    """A GPU proxy; a shell for it joins the proxy's namespaces."""

    def __init__(
        self, name: str, gpu: fabric.Gpu, domain: Sequence[fabric.Gpu], pid: int, **params: Any
    ) -> None:
        super().__init__(name, **params)
        self.gpu = gpu
        self.domain = domain
        self.pid = pid

    def configDefault(self, **params: Any) -> None:
        """Give the proxy its addresses."""
        hb, nic = self.intfs[1], self.intfs[2]
        peers = [gpu for gpu in self.domain if gpu != self.gpu]
        hb.link.links.configure_proxy(self.gpu, hb.link.link.lower, nic.link.link.lower, peers)


class FabricSwitch(ShellOnDemand, Switch):  # type: ignore[misc]
    """A switch without the control interface that Mininet would add."""

    def __init__(self, name: str, **params: Any) -> None:
        super().__init__(name, **{**params, "inNamespace": True})


class HbSwitch(FabricSwitch):
    """An HB domain's switch: a kernel bridge, as no OpenFlow controller programs an NVSwitch."""

    def __init__(self, name: str, links: Links, **params: Any) -> None:
        super().__init__(name, **params)
        self.links = links

    def start(self, controllers: list[Any]) -> None:
        """Make the bridge with its ports."""
        links = [interface.link for interface in self.intfs.values() if interface.link]
        ports = {link.link.upper: addressing.hb_mac(link.intf1.node.gpu) for link in links}
        self.links.make_bridge(self.name, ports)


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

    def bridge(self) -> Bridge:
        """Return the switch's name, datapath id and ports for Open vSwitch."""
        ports = {number: i.name for number, i in self.intfs.items() if i.link is not None}
        return Bridge(self.name, int(self.dpid, 16), ports)


class FabricIntf(Intf):  # type: ignore[misc]
    """An interface that is configured over netlink."""

    def config(self, **params: Any) -> dict[str, Any]:
        """Do nothing: `Links` configures interfaces."""
        return {}


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
        gpus: dict[str, fabric.Gpu],
        **params: Any,
    ) -> None:
        self.link = link
        self.links = links
        links.connect(link, gpus)
        names = {"intfName1": link.lower.interface, "intfName2": link.upper.interface}
        super().__init__(node1, node2, port1, port2, intf=FabricIntf, **names)

    @classmethod
    def makeIntfPair(cls, *names: Any, **params: Any) -> None:
        """Do nothing: `Links` makes the veth pair."""


def build_network(
    topology: fabric.Topology, proxies: dict[str, Proxy], links: Links, switch: OpenVSwitch
) -> Mininet:
    """Make nodes and links.

    Mininet's initialization is skipped: it would raise limits of the whole machine.
    """
    Mininet.inited = True
    topo = FabricTopo(topology, proxies, links, switch)
    network = Mininet(topo, controller=None, link=FabricLink)
    links.flush()
    return network


def start_network(network: Mininet, topology: fabric.Topology, links: Links) -> None:
    """Start the switches and shape the links.

    Links must be up first: bridges and the controller treat all others as failed. Shapers come
    last: Open vSwitch removes the queues of a port that is added to it.
    """
    links.wait_until_up(topology.links)
    network.start()
    for link in topology.links:
        links.shape(link)
    links.flush()
    for link in topology.links:
        links.check_shaped(link)


def open_command_line(network: Mininet) -> None:
    """Serve Mininet's command line until its user leaves it."""
    CLI(network)
