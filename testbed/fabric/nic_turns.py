"""The turns of GPUs that send by one NIC, where flows contend: each has its part of the rate.

In one queue, packets that a GPU forwards for others would outnumber its own: TCP keeps two segments
of a flow in its own queue, and as many as the flow's window has in that of another. So each sender
has a queue, and the queues take turns by bytes (deficit round robin, tc-htb(8)), as a NIC
arbitrates its queue pairs.
"""

from collections.abc import Sequence
from ipaddress import IPv4Network

from linux.network.route_socket import RouteSocket
from model.errors import EmulationError
from model.fabric.addressing import rail_network
from model.fabric.topology import Link, LinkKind, Port, Topology
from testbed.fabric.shaping import ETHERTYPE_IPV4

TURNS = 0x4_0000
OWN = TURNS | 1
# Bytes/s, and bytes at once, that no shaper above lets through.
UNLIMITED, UNLIMITED_BURST = 1_000_000_000, 1 << 20


def other_senders(topology: Topology, link: Link, end: Port) -> tuple[IPv4Network, ...]:
    """Return the addresses of the GPUs that send by a NIC which is not theirs, at this end."""
    gpu = topology.gpu_by_name.get(end.node)
    if gpu is None or link.kind is not LinkKind.NIC or not topology.spec.is_fine_grained:
        return ()
    peers = (peer for peer in topology.domain(gpu.domain) if peer != gpu)
    return tuple(rail_network(peer.rail) for peer in peers)


def take_turns(
    netlink: RouteSocket,
    interface: int,
    parent: int,
    others: Sequence[IPv4Network],
    turn_bytes: int,
) -> None:
    """Give own packets, and those from each of the `others`, a queue of their own under `parent`.

    In a turn, a queue sends `turn_bytes`, at least one segment. Raises `EmulationError` if the
    queues are not in place.
    """
    netlink.tc("replace", "htb", interface, TURNS, parent=parent, default=OWN & 0xFFFF)
    for number, sender in enumerate((None, *others)):
        netlink.tc(
            "add-class",
            "htb",
            interface,
            OWN + number,
            parent=TURNS,
            rate=UNLIMITED,
            burst=UNLIMITED_BURST,
            cburst=UNLIMITED_BURST,
            quantum=turn_bytes,
        )
        if sender:
            netlink.tc(
                "add-filter",
                "u32",
                interface,
                parent=TURNS,
                prio=1,
                protocol=ETHERTYPE_IPV4,
                target=OWN + number,
                keys=[f"{int(sender.network_address):#x}/{int(sender.netmask):#x}+12"],
            )
    wanted = {OWN + number for number in range(1 + len(others))}
    classes = {found["handle"] for found in netlink.get_classes(index=interface)}
    if not wanted <= classes:
        raise EmulationError(f"classes under {parent:#x} must be {wanted}, got {classes}")
