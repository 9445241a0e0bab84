"""Encode and parse the few rtnetlink(7) messages that must be fast.

A failure changes dozens of routes in dozens of namespaces at once, and each millisecond counts: the
changes of a namespace are sent in batches of `BATCH`. pyroute2 needs a third of a millisecond per
route, and four descriptors per namespace.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network

from controller.forwarding.planner import Route

HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
ATTRIBUTE = struct.Struct("=HH")  # struct rtattr
ROUTE = struct.Struct("=BBBBBBBBI")  # struct rtmsg
LINK = struct.Struct("=BxHiII")  # struct ifinfomsg
NLMSG_ERROR, NLMSG_DONE = 2, 3
RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP, NLM_F_REPLACE, NLM_F_CREATE = 1, 4, 0x300, 0x100, 0x400
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PREFSRC, RTA_TABLE = 1, 4, 5, 7, 15
IFLA_IFNAME, IFLA_OPERSTATE = 3, 16
RTNLGRP_LINK = 1
RTN_UNICAST, RTN_UNREACHABLE = 1, 7
RT_TABLE_MAIN = 254
RT_SCOPE_UNIVERSE = 0
RTNH_F_ONLINK = 4  # the gateway needs no route of its own
IFF_UP = 1
IF_OPER_UP = 6  # if.h: "up" in RFC 2863
# Our routes carry this originator (rtnetlink(7), rtm_protocol), so that others stay unchanged.
PROTOCOL = 155
BATCH = 64  # messages per call: their replies must fit into the socket's buffer
RECEIVE_BYTES = 1 << 18
# A starting fabric causes thousands of notifications, faster than the controller reads them.
SO_RCVBUFFORCE = 33
NEWS_BUFFER_BYTES = 16 * 1024 * 1024

Message = tuple[int, bytes]


class Netlink:
    """A netlink socket in the current network namespace."""

    def __init__(self, groups: int = 0) -> None:
        self.sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        if groups:
            self.sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, NEWS_BUFFER_BYTES)
        self.sock.bind((0, groups))
        self._sequence = 0

    def close(self) -> None:
        """Release the namespace."""
        self.sock.close()

    def interfaces(self) -> dict[str, tuple[int, bool]]:
        """Interfaces by name: index, and whether the interface is up (RFC 2863)."""
        body = LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        links = (link_of(payload) for kind, payload in self.dump(RTM_GETLINK, body))
        return {name: (index, up) for name, index, up in links}

    def routes(self, names: dict[int, str]) -> frozenset[Route]:
        """Read our routes; `names` are the interfaces' names by index."""
        body = ROUTE.pack(socket.AF_INET, 0, 0, 0, 0, 0, 0, 0, 0)
        messages = (payload for _, payload in self.dump(RTM_GETROUTE, body))
        return frozenset(route for m in messages if (route := _parse_route(m, names)) is not None)

    def change(
        self, added: Iterable[Route], removed: Iterable[Route], index: dict[str, int]
    ) -> None:
        """Add routes, then remove routes; raise `OSError` if the kernel refuses one."""
        replace = NLM_F_CREATE | NLM_F_REPLACE
        messages = [(RTM_NEWROUTE, replace, encode_route(route, index)) for route in added]
        messages += [(RTM_DELROUTE, 0, encode_route(route, index)) for route in removed]
        for start in range(0, len(messages), BATCH):
            self._send(messages[start : start + BATCH])

    def _send(self, batch: list[tuple[int, int, bytes]]) -> None:
        """Send a batch in one call, and wait until the kernel has confirmed each message."""
        parts = []
        for kind, flags, body in batch:
            self._sequence += 1
            flags |= NLM_F_REQUEST | NLM_F_ACK
            parts.append(
                HEADER.pack(HEADER.size + len(body), kind, flags, self._sequence, 0) + body
            )
        self.sock.send(b"".join(parts))
        confirmed = 0
        while confirmed < len(batch):
            for kind, payload in self.receive():
                if kind == NLMSG_ERROR:
                    confirmed += 1
                    check_error(payload)

    def dump(self, kind: int, body: bytes) -> Iterator[Message]:
        """Yield all replies to a dump request of type `kind`; raise `OSError` if refused."""
        self._sequence += 1
        flags = NLM_F_REQUEST | NLM_F_DUMP
        self.sock.send(HEADER.pack(HEADER.size + len(body), kind, flags, self._sequence, 0) + body)
        while True:
            for answer, payload in self.receive():
                if answer == NLMSG_DONE:
                    return
                if answer == NLMSG_ERROR:
                    check_error(payload)
                yield answer, payload

    def receive(self) -> list[Message]:
        """The messages of one datagram."""
        return list(messages_in(self.sock.recv(RECEIVE_BYTES)))

    def news(self) -> list[Message] | None:
        """Wait for the multicast group's next notifications, and return them.

        `None` if the socket's buffer overflowed (netlink(7), ENOBUFS): all queued notifications
        are dropped, and the caller must read the current state, which is newer.
        """
        try:
            return self.receive()
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
        self._drop_news()
        return None

    def _drop_news(self) -> None:
        while True:
            try:
                self.sock.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise


class GroupReader:
    """A socket for notifications of a multicast group, and one to read the current state."""

    def __init__(self, groups: int) -> None:
        self._news = Netlink(groups=groups)
        self._reader = Netlink()

    @property
    def sock(self) -> socket.socket:
        """The notification socket: readable when something has changed."""
        return self._news.sock

    def close(self) -> None:
        """Release the namespace."""
        self._news.close()
        self._reader.close()


def check_error(payload: bytes) -> None:
    """Raise `OSError` unless a message of type NLMSG_ERROR has code 0, an acknowledgement."""
    (code,) = struct.unpack_from("=i", payload)
    if code:
        raise OSError(-code, f"rtnetlink: {os.strerror(-code)}")


def messages_in(data: bytes) -> Iterator[Message]:
    """Split a datagram into the types and contents of its messages."""
    while len(data) >= HEADER.size:
        length, kind, _flags, _sequence, _port = HEADER.unpack_from(data)
        yield kind, data[HEADER.size : length]
        data = data[_aligned(length) :]


def attributes_in(data: bytes) -> dict[int, bytes]:
    """Parse the attributes after a message's fixed part, by type."""
    found = {}
    while len(data) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(data)
        found[kind] = data[ATTRIBUTE.size : length]
        data = data[_aligned(length) :]
    return found


def link_of(payload: bytes) -> tuple[str, int, bool]:
    """Name and index of an interface, and whether it is up (RFC 2863), from RTM_NEWLINK.

    Carrier alone is not enough: a bridge forwards to a port only some time after it has carrier.
    """
    _family, _kind, index, flags, _change = LINK.unpack_from(payload)
    found = attributes_in(payload[LINK.size :])
    name = found[IFLA_IFNAME].rstrip(b"\0").decode()
    return name, index, bool(flags & IFF_UP) and found[IFLA_OPERSTATE][0] == IF_OPER_UP


def encode_route(route: Route, index: dict[str, int]) -> bytes:
    """The body of RTM_NEWROUTE and RTM_DELROUTE."""
    network, gateway = route.destination, route.gateway
    cut_off = gateway is None
    kind, flags = (RTN_UNREACHABLE, 0) if cut_off else (RTN_UNICAST, RTNH_F_ONLINK)
    fixed = (socket.AF_INET, network.prefixlen, 0, 0, RT_TABLE_MAIN, PROTOCOL, RT_SCOPE_UNIVERSE)
    body = ROUTE.pack(*fixed, kind, flags) + _attribute(RTA_DST, network.network_address.packed)
    if gateway is not None:
        body += _attribute(RTA_GATEWAY, gateway.packed)
        body += _attribute(RTA_OIF, struct.pack("=I", index[route.interface]))
    if route.source is not None:
        body += _attribute(RTA_PREFSRC, route.source.packed)
    return body


def _parse_route(payload: bytes, names: dict[int, str]) -> Route | None:
    """Parse a route; `None` if it is not ours or not in the main table."""
    _f, prefix, _s, _tos, table, protocol, _scope, kind, _flags = ROUTE.unpack_from(payload)
    if table != RT_TABLE_MAIN or protocol != PROTOCOL:
        return None
    found = attributes_in(payload[ROUTE.size :])
    destination = IPv4Network((found[RTA_DST], prefix))
    if kind == RTN_UNREACHABLE:
        return Route(destination)
    return Route(
        destination=destination,
        gateway=IPv4Address(found[RTA_GATEWAY]),
        interface=names[struct.unpack("=I", found[RTA_OIF])[0]],
        source=IPv4Address(found[RTA_PREFSRC]),
    )


def _attribute(kind: int, value: bytes) -> bytes:
    length = ATTRIBUTE.size + len(value)
    return ATTRIBUTE.pack(length, kind) + value + b"\0" * (_aligned(length) - length)


def _aligned(length: int) -> int:
    return length + 3 & ~3
