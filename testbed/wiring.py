"""Interfaces, addresses and bridges over netlink, in the run's namespace and in the proxies'."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.rtnl import ndmsg

from model import addressing
from model.errors import EmulationError
from model.shaping import MTU_BYTES, Shaper
from model.topology import Gpu, Link, LinkKind, Port
from testbed.namespace import namespace_of
from testbed.processes import wait_for
from testbed.proxies import Proxy
from testbed.queues import Queues
from testbed.shapers import check_shaped, shape

QUEUE_PACKETS = 1000
# Both ends with the same index, in two namespaces, look to the kernel like no pair, and it tells of
# their carrier up to a second late (linkwatch_urgent_event in net/core/link_watch.c).
FIRST_INDEX = 1000
UP_DEADLINE_S = 10


@dataclass(frozen=True)
class Counters:
    """What an end of a link has counted since it was made: bytes and packets of its interface."""

    sent_bytes: int
    sent_packets: int
    received_bytes: int
    received_packets: int
    dropped_packets: int


@dataclass
class Wiring:
    """Netlink sockets: one for the switches' namespace, one for each proxy's.

    `queues` has them once more, for what must be read fast; the switches' have the name "".
    """

    switches: IPRoute
    proxies: dict[str, IPRoute]
    process_ids: dict[str, int]
    queues: dict[str, Queues]
    interfaces: dict[tuple[str, str], int] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    _made: int = field(default=0, init=False)
    _last_counters: dict[str, Counters] = field(default_factory=dict, init=False)

    def connect(self, link: Link, gpus: Mapping[str, Gpu]) -> None:
        """Make the pair of interfaces of a link and bring both up."""
        lower, upper = link.lower, link.upper
        peer: dict[str, str | int] = {"ifname": lower.interface, "mtu": MTU_BYTES}
        if lower.node in gpus:
            peer["net_ns_fd"] = f"/proc/{self.process_ids[lower.node]}/ns/net"
            peer["address"] = _hardware_address(link.kind, gpus[lower.node])
        self._made += 1
        self.switches.link(
            "add",
            index=FIRST_INDEX + self._made,
            ifname=upper.interface,
            kind="veth",
            mtu=MTU_BYTES,
            txqlen=QUEUE_PACKETS,
            peer=peer,
        )
        for port in (lower, upper):
            self.netlink_of(port).link("set", index=self.index_of(port), state="up")

    def netlink_of(self, port: Port) -> IPRoute:
        """The netlink socket of the namespace that a port's interface is in."""
        if port.node in self.lost:
            raise EmulationError(
                f"{port.node}: this GPU proxy is dead, and {port.interface} with it"
            )
        return self.proxies.get(port.node, self.switches)

    def index_of(self, port: Port) -> int:
        """The kernel's index of a port's interface."""
        key = (port.node if port.node in self.proxies else "", port.interface)
        if key not in self.interfaces:
            found = self.netlink_of(port).link_lookup(ifname=port.interface)
            if not found:
                raise EmulationError(f"{port.node}: interface {port.interface} is not there")
            self.interfaces[key] = found[0]
        return self.interfaces[key]

    def lose_proxy(self, gpu: str) -> None:
        """Let go of the namespace of a proxy that is dead; its links' counters stay as they are."""
        netlink = self.proxies.pop(gpu, None)
        if netlink is not None:
            netlink.close()
            self.queues.pop(gpu).close()
        self.process_ids.pop(gpu, None)
        self.lost.add(gpu)

    def configure_proxy(self, gpu: Gpu, hb: Port, nic: Port, peers: Iterable[Gpu]) -> None:
        """Addresses, and the next hop of the rail, which is no machine: switches route.

        All neighbours are known from the start: to ask for one would wait behind data, and what is
        sent meanwhile would be lost.
        """
        netlink = self.proxies[gpu.name]
        netlink.link("set", index=1, state="up")
        hb_index, nic_index = self.index_of(hb), self.index_of(nic)
        netlink.addr(
            "add",
            index=hb_index,
            address=str(addressing.hb_address(gpu)),
            prefixlen=addressing.DOMAIN_PREFIX,
        )
        netlink.addr("add", index=nic_index, address=str(addressing.nic_address(gpu)), prefixlen=32)
        _add_neighbour(netlink, nic_index, addressing.GATEWAY, addressing.GATEWAY_MAC)
        for peer in peers:
            _add_neighbour(netlink, hb_index, addressing.hb_address(peer), addressing.hb_mac(peer))

    def make_bridge(self, name: str, ports: Mapping[Port, str]) -> None:
        """A kernel bridge without spanning tree: the crossbar of an HB domain.

        `ports` has the hardware address behind each. All are known from the start: a bridge that
        has to learn them sends to all GPUs what is for one that has sent nothing yet.
        """
        self.switches.link("add", ifname=name, kind="bridge", br_stp_state=0, state="up")
        bridge = self.switches.link_lookup(ifname=name)[0]
        for port, address in ports.items():
            index = self.index_of(port)
            self.switches.link("set", index=index, master=bridge)
            # bridge(8) calls an entry that is neither learned nor the bridge's own "static".
            self.switches.fdb("add", ifindex=index, lladdr=address, state=ndmsg.NUD_NOARP)

    def wait_until_up(self, links: Iterable[Link]) -> None:
        """Wait until the kernel has found all links to be up; new ones have carrier before."""
        wanted = {link.upper.interface for link in links}
        wait_for(lambda: wanted <= self._interfaces_up(), "all links come up", UP_DEADLINE_S)

    def _interfaces_up(self) -> set[str]:
        """What of the switches' interfaces is up, and known to be (RFC 2863: its state)."""
        return {
            message.get_attr("IFLA_IFNAME")
            for message in self.switches.get_links()
            if message.get_attr("IFLA_OPERSTATE") == "UP"
        }

    def shape(self, link: Link) -> None:
        """Shape both directions of a link, each where it is sent."""
        for port in (link.lower, link.upper):
            shape(self.netlink_of(port), self.index_of(port), Shaper(link.rate_bps))

    def check_shaped(self, link: Link) -> None:
        """Read both shapers of a link back; raise `EmulationError` if one is not as asked."""
        for port in (link.lower, link.upper):
            name = f"{link.name}, {port.node}'s end"
            netlink, index = self.netlink_of(port), self.index_of(port)
            check_shaped(netlink, index, name, Shaper(link.rate_bps))

    def longest_queue_bytes(self) -> int:
        """What the longest queue of any end of a link holds now."""
        queues = (queue for place in self.queues.values() for queue in place.read())
        return max((queue.backlog_bytes for queue in queues), default=0)

    def counters(self, links: Sequence[Link]) -> dict[str, Counters]:
        """What the upper ends of links have counted, by name.

        Of a link that went with its GPU it is what was known last.
        """
        statistics, drops = self._statistics(), self._drops()
        for link in links:
            index = self.index_of(link.upper)
            if index in statistics:
                dropped = sum(drops.get(self._place(port), 0) for port in (link.lower, link.upper))
                self._last_counters[link.name] = _counters(statistics[index], dropped)
            elif link.lower.node not in self.lost:
                raise EmulationError(f"{link.name}: interface {link.upper.interface} is gone")
        return {k.name: self._last_counters.get(k.name, Counters(0, 0, 0, 0, 0)) for k in links}

    def _statistics(self) -> dict[int, Any]:
        """The counters of all interfaces of the switches, by index."""
        messages = self.switches.get_links()
        return {message["index"]: message.get_attr("IFLA_STATS64") for message in messages}

    def _drops(self) -> dict[tuple[str, int], int]:
        """Packets that each shaper has dropped; none are known of a dead proxy."""
        return {
            (place, queue.interface): queue.dropped_packets
            for place, queues in self.queues.items()
            for queue in queues.read()
        }

    def _place(self, port: Port) -> tuple[str, int]:
        """The namespace of a port, which only proxies have of their own, and its index there."""
        if port.node in self.lost:
            return port.node, 0
        return (port.node if port.node in self.proxies else ""), self.index_of(port)


def _counters(statistics: Any, dropped_packets: int) -> Counters:
    return Counters(
        sent_bytes=statistics["tx_bytes"],
        sent_packets=statistics["tx_packets"],
        received_bytes=statistics["rx_bytes"],
        received_packets=statistics["rx_packets"],
        dropped_packets=dropped_packets,
    )


def _add_neighbour(netlink: IPRoute, interface: int, address: IPv4Address, mac: str) -> None:
    netlink.neigh("add", dst=str(address), lladdr=mac, ifindex=interface, state="permanent")


def _hardware_address(kind: LinkKind, gpu: Gpu) -> str:
    return addressing.hb_mac(gpu) if kind is LinkKind.HB else addressing.nic_mac(gpu)


@contextmanager
def wiring(proxies: Mapping[str, Proxy]) -> Iterator[Wiring]:
    """Open the netlink sockets; the present namespace is the switches'."""
    with ExitStack() as stack:
        switches = stack.enter_context(IPRoute())
        switches.link("set", index=1, state="up")
        sockets, queues = {}, {"": stack.enter_context(closing(Queues()))}
        for proxy in proxies.values():
            with namespace_of(proxy.process_id):
                sockets[proxy.gpu] = stack.enter_context(IPRoute())
                queues[proxy.gpu] = stack.enter_context(closing(Queues()))
        process_ids = {proxy.gpu: proxy.process_id for proxy in proxies.values()}
        yield Wiring(switches, sockets, process_ids, queues)
