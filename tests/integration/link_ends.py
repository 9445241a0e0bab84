"""Send and receive frames at the two ends of a link of a running fabric.

No switch forwards the frames' protocol, so routing plays no part.
"""

import itertools
import socket
import time
from contextlib import nullcontext, suppress

from execution.cases.emulation import Experiment
from linux.network.namespaces import namespace_of
from model.fabric import addressing
from model.fabric.topology import Link, Port

ALL_PROTOCOLS = 3  # ETH_P_ALL: sockets for one protocol miss frames that a bridge takes
OUTGOING = 4  # PACKET_OUTGOING
# IEEE 802, EtherType for local experiments: no switch has a rule for it, no host uses it.
HEADER = bytes.fromhex("02ffffffffff 020000000001 88b5")
NUMBERS = itertools.count()
PATIENCE_S = 0.1


def raw_socket(fabric: Experiment, port: Port) -> socket.socket:
    """A socket at an end of a link, in the namespace of that end."""
    proxy = fabric.bed.proxies.get(port.node)
    with namespace_of(proxy.process_id) if proxy else nullcontext():
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        opened.bind((port.interface, ALL_PROTOCOLS))
    opened.settimeout(PATIENCE_S)
    return opened


def works(fabric: Experiment, link: Link) -> tuple[bool, bool]:
    """Whether a link delivers frames from its lower end, and from its upper end."""
    with raw_socket(fabric, link.lower) as lower, raw_socket(fabric, link.upper) as upper:
        return delivers(lower, upper), delivers(upper, lower)


def delivers(sender: socket.socket, receiver: socket.socket) -> bool:
    """Whether a frame that is sent at one end arrives at the other."""
    frame = HEADER + next(NUMBERS).to_bytes(50, "big")
    with suppress(OSError):  # no carrier
        sender.send(frame)
    return receives(receiver, frame)


def receives(receiver: socket.socket, frame: bytes) -> bool:
    """Whether a frame arrives within `PATIENCE_S` seconds."""
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        try:
            received, address = receiver.recvfrom(2000)
        except OSError:
            return False
        if received == frame and address[2] != OUTGOING:
            return True
    return False


def carrier(fabric: Experiment, port: Port) -> bool:
    """Whether an end of a link has carrier."""
    links = fabric.bed.links
    with links.netlink_of(port) as netlink:
        (message,) = netlink.get_links(links.index_of(port))
    return bool(message.get_attr("IFLA_CARRIER"))


def carriers(fabric: Experiment, links: list[Link]) -> set[bool]:
    """Set of the carrier states at both ends of these links."""
    return {carrier(fabric, port) for link in links for port in (link.lower, link.upper)}


def datagram_arrives(fabric: Experiment, source: str, destination: str) -> bool:
    """Whether a UDP datagram from one GPU arrives at another's NIC address."""
    address = str(addressing.nic_address(fabric.topology.gpu_by_name[destination]))
    opened = []
    for gpu in (source, destination):
        with namespace_of(fabric.bed.proxies[gpu].process_id):
            opened.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with opened[0] as sender, opened[1] as receiver:
        receiver.bind((address, 0))
        receiver.settimeout(PATIENCE_S)
        try:
            sender.sendto(b"probe", receiver.getsockname())
            return receiver.recv(10) == b"probe"
        except OSError:  # nothing arrives, or the sender has no route
            return False
