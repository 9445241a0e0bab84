"""Interfaces, addresses and bridges over netlink, in the run's namespace and in the proxies'."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from pyroute2.netlink.rtnl import ndmsg

from linux.network.namespaces import namespace_of, set_sysctl
from linux.network.netlink import (
    RTAX_RTO_MIN,
    NetlinkSocket,
    Queue,
    Request,
    read_queues,
    requests_in_batch,
)
from linux.network.route_socket import RouteBatch, RouteSocket
from linux.processes.lifetime import wait_for
from model.errors import EmulationError
from model.fabric import addressing
from model.fabric.shaping import (
    ETHERNET_HEADER_BYTES,
    LINUX_QUEUE,
    Impairment,
    SwitchQueue,
    segment_bytes,
    wire_bytes,
)
from model.fabric.topology import Gpu, Link, LinkKind, Port, Topology, lane_of
from testbed.fabric.queues import (
    RELEASED_S,
    forwards_in_kernel,
    other_senders,
    set_queue,
    take_turns,
)
from testbed.fabric.shaping import DATA_CLASS, QUEUE_PACKETS, check_shaped, impair, shape_requests
from testbed.nodes.gpu_proxies import Proxy

# If both ends of a veth pair have the same index, the kernel does not recognize the pair and
# reports their carrier up to a second late (linkwatch_urgent_event in net/core/link_watch.c).
FIRST_INDEX = 1000
UP_DEADLINE_S = 10
# Open vSwitch in user space takes 54 bytes off a port's MTU for the payload of a segment's packets
# (netdev_linux_prepend_vnet_hdr of 3.1): the Ethernet header, which no MTU counts, but none of the
# 12 bytes of TCP's options. A GPU that hands the segment on to a peer would then count one packet
# more than `gso_max_segs`, and cut it: a peer acknowledges packets, not segments.
MISCOUNTED_BYTES = ETHERNET_HEADER_BYTES - 12
# Settings of br_netfilter for the network namespace of the process that reads them.
BRIDGE_SETTINGS = Path("/proc/sys/net/bridge")
IPV6_SETTINGS = Path("/proc/sys/net/ipv6/conf")


class LinkEndGone(EmulationError):
    """Raised for a link end that is gone with its GPU proxy, or with the whole fabric."""


@dataclass(frozen=True)
class Counters:
    """Counters of a link since its creation, in bytes and packets.

    `dropped_packets` counts the drops of both ends; all others are of the interface at one end.
    """

    sent_bytes: int
    sent_packets: int
    received_bytes: int
    received_packets: int
    dropped_packets: int


@dataclass(frozen=True)
class Reading:
    """The counters of links by name, read between two moments of CLOCK_MONOTONIC, in ns."""

    counters: dict[str, Counters]
    between_ns: tuple[int, int]


@dataclass
class Links:
    """Interfaces of a fabric, in the switches' namespace and in each proxy's.

    `sockets` are for bulk requests and dumps, one for each namespace; the switches' key is "".
    Requests are encoded by `compiler` and collected until `flush` sends them.
    """

    topology: Topology
    switches: RouteSocket
    process_ids: dict[str, int]
    sockets: dict[str, NetlinkSocket]
    compiler: RouteBatch
    interfaces: dict[tuple[str, str], int] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    _made: int = field(default=0, init=False)
    _asked: dict[str, list[Request]] = field(default_factory=dict, init=False)
    _impairments: dict[Port, tuple[Impairment, SwitchQueue, tuple[IPv4Network, ...]]] = field(
        default_factory=dict, init=False
    )
    _last_counters: dict[str, Counters] = field(default_factory=dict, init=False)

    def connect(self, link: Link) -> None:
        """Request the veth pair of a link, and that both ends are set up."""
        lower, upper = link.lower, link.upper
        gpu = self.topology.gpu_by_name.get(lower.node)
        for port in (lower, upper):
            self.interfaces[self._place(port), port.interface] = self._next_index()
        attributes: list[tuple[str, str | int]] = [
            ("IFLA_IFNAME", lower.interface),
            ("IFLA_MTU", self._mtu_bytes(lower)),
        ]
        if gpu:
            # Of a GPU's own segments: switches and peers hand on what they receive.
            attributes.append(("IFLA_GSO_MAX_SEGS", self.topology.spec.grain_packets))
            is_nic = link.kind is LinkKind.NIC
            mac = addressing.nic_mac(gpu.by(lane_of(link))) if is_nic else addressing.hb_mac(gpu)
            attributes.append(("IFLA_NET_NS_PID", self.process_ids[lower.node]))
            attributes.append(("IFLA_ADDRESS", mac))
        peer = {"index": self.index_of(lower), "attrs": attributes}
        with self._asking("", link.name) as netlink:
            netlink.link(
                "add",
                index=self.index_of(upper),
                ifname=upper.interface,
                mtu=self._mtu_bytes(upper),
                txqlen=QUEUE_PACKETS,
                # pyroute2's own form of a veth(4) pair cannot set the peer's index.
                IFLA_LINKINFO={
                    "attrs": [
                        ("IFLA_INFO_KIND", "veth"),
                        ("IFLA_INFO_DATA", {"attrs": [("VETH_INFO_PEER", peer)]}),
                    ]
                },
            )
        for port in (lower, upper):
            with self._asking(self._place(port), link.name) as netlink:
                # A GPU has static neighbours, which the kernel forgets when its user takes the
                # interface down; without ARP, it sends to itself then, and switches route.
                by_arp = {"arp": False} if gpu and port == lower and is_nic else {}
                netlink.link("set", index=self.index_of(port), state="up", **by_arp)

    def _mtu_bytes(self, port: Port) -> int:
        is_port = port.node in self.topology.switch_by_name
        return self.topology.spec.link_mtu_bytes + is_port * MISCOUNTED_BYTES

    @contextmanager
    def _asking(self, place: str, what: str) -> Iterator[RouteBatch]:
        """Collect requests for the namespace `place`; `what` names them in errors."""
        yield self.compiler
        self._asked.setdefault(place, []).extend(
            requests_in_batch(what, bytes(self.compiler.batch))
        )
        self.compiler.reset()

    def flush(self) -> None:
        """Send the collected requests, the switches' first: links are created there."""
        for place in sorted(self._asked):
            self.sockets[place].send(self._asked.pop(place))

    def _next_index(self) -> int:
        self._made += 1
        return FIRST_INDEX + self._made

    @contextmanager
    def netlink_of(self, port: Port) -> Iterator[RouteSocket]:
        """A netlink socket in the namespace of a port's interface; raises `LinkEndGone` without it.

        A socket of pyroute2 takes four descriptors, and belongs to one thread: one for each proxy,
        open all the time, would use up the open files of this process.
        """
        if not self._place(port):
            yield self.switches
            return
        try:
            with namespace_of(self.process_ids[port.node]):
                netlink = RouteSocket()
        except (KeyError, EmulationError):
            what = f"GPU proxy is dead; interface {port.interface} is gone"
            raise LinkEndGone(f"{port.node}: {what}") from None
        with netlink:
            yield netlink

    def index_of(self, port: Port) -> int:
        """The kernel's index of a port's interface."""
        key = self._place(port), port.interface
        if key not in self.interfaces:
            raise EmulationError(f"{port.node}: interface {port.interface} not found")
        return self.interfaces[key]

    def _place(self, port: Port) -> str:
        """The key of a port's namespace: the GPU's name, or "" for the switches' namespace."""
        return port.node if port.node in self.process_ids or port.node in self.lost else ""

    def key_of(self, port: Port) -> tuple[str, int]:
        """A port's namespace, as `sockets` names it, and its interface's index there."""
        return self._place(port), self.index_of(port)

    def lose_proxy(self, gpu: str) -> None:
        """Close the sockets of a dead proxy's namespace; its links keep their last counters."""
        if self.process_ids.pop(gpu, None):
            self.sockets.pop(gpu).close()
        self.lost.add(gpu)

    def configure_proxy(self, gpu: Gpu) -> None:
        """Request a proxy's addresses and its permanent neighbour entries.

        A lane's address belongs to its NIC link, or to the HB link of a GPU that shares a NIC. The
        rail's next hop is a virtual gateway: switches route. Neighbours are static, as an ARP
        request would wait behind data, and packets sent meanwhile would be lost.
        """
        hb_index = self.index_of(self.topology.link_of(gpu, LinkKind.HB).lower)
        nics = [self.index_of(link.lower) for link in self.topology.nic_links(gpu)]
        with self._asking(gpu.name, f"{gpu.name}: its addresses") as netlink:
            netlink.link("set", index=1, state="up")
            _add_address(netlink, hb_index, addressing.hb_address(gpu), addressing.DOMAIN_PREFIX)
            for lane in range(self.topology.spec.lanes):
                index = nics[lane] if nics else hb_index
                _add_address(netlink, index, addressing.nic_address(gpu.by(lane)), 32)
            self._set_timeout(netlink, hb_index, gpu)
            for index in nics:
                _add_neighbour(netlink, index, addressing.GATEWAY, addressing.GATEWAY_MAC)
            for peer in self.topology.domain(gpu.domain):
                if peer != gpu:
                    mac = addressing.hb_mac(peer)
                    _add_neighbour(netlink, hb_index, addressing.hb_address(peer), mac)

    def _set_timeout(self, netlink: RouteBatch, hb_index: int, gpu: Gpu) -> None:
        """Replace the kernel's own route to an HB domain by the same with TCP's least timeout."""
        timeout_ms = round(self.topology.tcp_timeout_s * 1000)
        netlink.route(
            "replace",
            dst=str(addressing.domain_network(gpu.domain)),
            oif=hb_index,
            prefsrc=str(addressing.hb_address(gpu)),
            scope="link",
            proto="kernel",
            metrics={"lock": 1 << RTAX_RTO_MIN, "rto_min": timeout_ms},
        )

    def make_bridge(self, name: str) -> None:
        """Request a kernel bridge that sends nothing of its own: the crossbar of an HB switch.

        All entries are static: a learning bridge floods frames for a GPU that has sent nothing yet.
        """
        bridge = self._next_index()
        with self._asking("", name) as netlink:
            # A bridge that snoops on multicast reports its own membership: RFC 4286's all-snoopers.
            # One with a forward delay reports all its ports 15 s later, also without a spanning
            # tree (br_make_forwarding in net/bridge/br_stp.c), and Open vSwitch, which listens,
            # then asks the kernel about every port: 20 ms of a slow processor.
            silent = {"br_stp_state": 0, "br_mcast_snooping": 0, "br_forward_delay": 0}
            netlink.link("add", index=bridge, ifname=name, kind="bridge", **silent)
            netlink.link("set", index=bridge, state="up")
            for port, gpus in self.topology.hb_ports(name).items():
                index = self.index_of(port)
                netlink.link("set", index=index, master=bridge)
                for gpu in gpus:
                    # bridge(8): an entry that is neither learned nor the bridge's is "static".
                    mac = addressing.hb_mac(gpu)
                    netlink.fdb("add", ifindex=index, lladdr=mac, state=ndmsg.NUD_NOARP)

    def wait_until_up(self) -> None:
        """Wait until all links are operationally up; new links have carrier before that."""
        wanted = {link.upper.interface for link in self.topology.links}

        def are_up() -> bool:
            messages = self.switches.get_links()
            up = (m for m in messages if m.get_attr("IFLA_OPERSTATE") == "UP")  # RFC 2863
            return wanted <= {message.get_attr("IFLA_IFNAME") for message in up}

        wait_for(are_up, "carrier on all links", UP_DEADLINE_S)

    def is_up(self, port: Port) -> bool:
        """Whether an interface is operationally up (RFC 2863); false if it went with its GPU."""
        if port.node in self.lost:
            return False
        with self.netlink_of(port) as netlink:
            (message,) = netlink.get_links(self.index_of(port))
        return bool(message.get_attr("IFLA_OPERSTATE") == "UP")

    def shape(self, link: Link) -> None:
        """Request shapers for both directions of a link, each at its sending end."""
        for port in (link.lower, link.upper):
            what, (place, index) = f"{link.name}, {port.node}'s end: its shaper", self.key_of(port)
            self._asked.setdefault(place, []).extend(shape_requests(what, index, link.shaper))

    def check_shaped(self, link: Link) -> None:
        """Read both shapers of a link back; raise `EmulationError` if one is not as asked."""
        for port in (link.lower, link.upper):
            name = f"{link.name}, {port.node}'s end"
            with self.netlink_of(port) as netlink:
                check_shaped(netlink, self.index_of(port), name, link.shaper)

    def impair(self) -> None:
        """Apply delays, losses and queues beside Linux's to all links, after calibration."""
        for link in self.topology.links:
            for end in (link.lower, link.upper):
                self.impair_end(link, end)

    def impair_end(self, link: Link, end: Port) -> None:
        """Apply delay and loss, a switch's queue and a NIC's turns to what this end sends."""
        is_port = end.node in self.topology.switch_by_name
        queue = self.topology.spec.nic.queue if is_port else LINUX_QUEUE
        impairment = link.impairment
        if queue and forwards_in_kernel(self.topology.spec):
            impairment = replace(impairment, delay_s=max(RELEASED_S, impairment.delay_s))
        others = other_senders(self.topology, link, end)
        if impairment or queue or others:
            self._impairments[end] = impairment, queue, others
            self.impair_again(end)

    def impair_again(self, end: Port) -> None:
        """Restore an end's delay, loss and queue, if it had any, after its queues were replaced."""
        if end in self._impairments:
            impairment, queue, others = self._impairments[end]
            parent, interface = DATA_CLASS, self.index_of(end)
            with self.netlink_of(end) as netlink:
                if impairment:
                    parent = impair(netlink, interface, impairment)
                if queue:
                    set_queue(netlink, interface, parent, queue)
                if others:
                    turn_bytes = segment_bytes(self.topology.spec.grain_packets)
                    take_turns(netlink, interface, parent, others, round(wire_bytes(turn_bytes)))

    def switch_ports(self) -> dict[int, tuple[str, str]]:
        """Return links and the nodes they lead to by the index of a switch's interface."""
        return {
            self.index_of(link.port_of(node)): (link.name, link.other_end(node))
            for node in self.topology.switch_by_name
            for link in self.topology.links_of(node)
        }

    def queues(self) -> Iterator[tuple[tuple[str, int], Queue]]:
        """Yield the queues of all link ends as they are now, each with the end's key (`key_of`)."""
        for place, netlink in self.sockets.items():
            yield from (((place, queue.interface), queue) for queue in read_queues(netlink))

    def read_counters(self) -> Reading:
        """Return the counters of all links' upper ends, with the drops of both ends.

        A link has its name at start-up. One that went with its GPU keeps its last known counters.
        """
        links = self.topology.links
        begun_ns = time.monotonic_ns()
        messages = self.switches.get_links()
        statistics = {message["index"]: message.get_attr("IFLA_STATS64") for message in messages}
        between_ns = begun_ns, time.monotonic_ns()
        drops = {key: queue.dropped_packets for key, queue in self.queues()}
        for link in links:
            index = self.index_of(link.upper)
            if index in statistics:
                dropped = sum(drops.get(self.key_of(port), 0) for port in (link.lower, link.upper))
                now = statistics[index]
                sent = now["tx_bytes"], now["tx_packets"]
                received = now["rx_bytes"], now["rx_packets"]
                self._last_counters[link.name] = Counters(*sent, *received, dropped)
            elif link.lower.node not in self.lost:
                raise EmulationError(f"{link.name}: interface {link.upper.interface} not found")
        none = Counters(0, 0, 0, 0, 0)
        return Reading({k.name: self._last_counters.get(k.name, none) for k in links}, between_ns)


def _add_address(netlink: RouteBatch, interface: int, address: IPv4Address, prefix: int) -> None:
    netlink.addr("add", index=interface, address=str(address), prefixlen=prefix)


def _add_neighbour(netlink: RouteBatch, interface: int, address: IPv4Address, mac: str) -> None:
    netlink.neigh("add", dst=str(address), lladdr=mac, ifindex=interface, state="permanent")


@contextmanager
def open_links(proxies: Mapping[str, Proxy], topology: Topology) -> Iterator[Links]:
    """Open the netlink sockets; call this in the switches' namespace."""
    with ExitStack() as stack:
        switches = stack.enter_context(RouteSocket())
        switches.link("set", index=1, state="up")
        # Where br_netfilter is loaded, bridged frames are kept from iptables.
        for setting in BRIDGE_SETTINGS.glob("bridge-nf-call-*"):
            setting.write_text("0")
        if IPV6_SETTINGS.exists():  # the kernel would send neighbour discovery into links
            for interfaces in ("all", "default"):
                set_sysctl(f"net.ipv6.conf.{interfaces}.disable_ipv6", "1")
        sockets = {"": stack.enter_context(closing(NetlinkSocket()))}
        for proxy in proxies.values():
            with namespace_of(proxy.process_id):
                sockets[proxy.gpu] = stack.enter_context(closing(NetlinkSocket()))
        process_ids = {proxy.gpu: proxy.process_id for proxy in proxies.values()}
        compiler = stack.enter_context(RouteBatch())
        yield Links(topology, switches, process_ids, sockets, compiler)
