"""Host routes of the proxies: one netlink socket in each proxy's namespace (rtnetlink(7))."""

import errno
import socket
import struct
from ipaddress import IPv4Address, IPv4Network

from controller.planner import Route, difference
from linux.network.namespaces import namespace_of
from linux.network.netlink import (
    NLM_F_ACK,
    RTAX_LOCK,
    RTAX_RTO_MIN,
    NetlinkSocket,
    Request,
    attribute,
    attributes_in,
    request,
)

ROUTE = struct.Struct("=BBBBBBBBI")  # struct rtmsg
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
NLM_F_REPLACE, NLM_F_CREATE = 0x100, 0x400
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PREFSRC, RTA_METRICS = 1, 4, 5, 7, 8
RTN_UNICAST, RTN_UNREACHABLE = 1, 7
RT_TABLE_MAIN = 254
RT_SCOPE_UNIVERSE = 0
RTNH_F_ONLINK = 4  # the gateway needs no route of its own
# Our routes carry this originator (rtnetlink(7), rtm_protocol), so that others stay unchanged.
PROTOCOL = 155


def encode_route(route: Route, index: dict[str, int], timeout_ms: int) -> bytes:
    """The body of RTM_NEWROUTE and RTM_DELROUTE; `timeout_ms` is TCP's least timeout there."""
    network, gateway = route.destination, route.gateway
    cut_off = gateway is None
    kind, flags = (RTN_UNREACHABLE, 0) if cut_off else (RTN_UNICAST, RTNH_F_ONLINK)
    fixed = (socket.AF_INET, network.prefixlen, 0, 0, RT_TABLE_MAIN, PROTOCOL, RT_SCOPE_UNIVERSE)
    body = ROUTE.pack(*fixed, kind, flags) + attribute(RTA_DST, network.network_address.packed)
    if gateway is not None:
        body += attribute(RTA_GATEWAY, gateway.packed)
        body += attribute(RTA_OIF, struct.pack("=I", index[route.interface]))
        # The metric `rto_min` of ip-route(8), which TCP heeds only if it is locked.
        locked = attribute(RTAX_LOCK, struct.pack("=I", 1 << RTAX_RTO_MIN))
        least = attribute(RTAX_RTO_MIN, struct.pack("=I", timeout_ms))
        body += attribute(RTA_METRICS, locked + least)
    if route.source is not None:
        body += attribute(RTA_PREFSRC, route.source.packed)
    return body


def _parse_route(payload: bytes, names: dict[int, str]) -> Route | None:
    """Parse a route; `None` if it is not ours or not in the main table."""
    _f, prefix, _s, _tos, table, protocol, _scope, kind, _flags = ROUTE.unpack_from(payload)
    if table != RT_TABLE_MAIN or protocol != PROTOCOL:
        return None
    attributes = attributes_in(payload[ROUTE.size :])
    destination = IPv4Network((attributes[RTA_DST], prefix))
    if kind == RTN_UNREACHABLE:
        return Route(destination)
    return Route(
        destination=destination,
        gateway=IPv4Address(attributes[RTA_GATEWAY]),
        interface=names[struct.unpack("=I", attributes[RTA_OIF])[0]],
        source=IPv4Address(attributes[RTA_PREFSRC]),
    )


class HostRoutes:
    """The routes of one proxy, read once at the start: nobody else adds or changes our routes.

    `timeout_s` is the least retransmission timeout of TCP on them, in seconds.
    """

    def __init__(self, process_id: int, timeout_s: float) -> None:
        self._timeout_ms = round(timeout_s * 1000)
        with namespace_of(process_id):
            self._netlink = NetlinkSocket()
        self._index = self._read_indexes()
        names = {index: name for name, index in self._index.items()}
        body = ROUTE.pack(socket.AF_INET, 0, 0, 0, 0, 0, 0, 0, 0)
        found = (_parse_route(p, names) for _, p in self._netlink.dumped(RTM_GETROUTE, body))
        self.installed = frozenset(route for route in found if route is not None)

    def _read_indexes(self) -> dict[str, int]:
        return {name: index for name, index, *_ in self._netlink.interfaces()}

    def reconcile(self, desired: frozenset[Route]) -> tuple[int, int]:
        """Change the routes to the desired ones; return how many were added and removed.

        Raises `EmulationError` if the kernel refuses one.
        """
        if desired is self.installed:
            return 0, 0
        additions, removals = difference(self.installed, desired)
        # The proxy may have got its links after the interfaces were last read.
        if not {route.interface for route in additions} - {""} <= self._index.keys():
            self._index = self._read_indexes()
        flags = NLM_F_CREATE | NLM_F_REPLACE
        self._netlink.send(self._request(RTM_NEWROUTE, flags, one) for one in additions)
        # The kernel itself has removed those of an interface that its user took down.
        self._netlink.send((self._request(RTM_DELROUTE, 0, one) for one in removals), errno.ESRCH)
        self.installed = desired
        return len(additions), len(removals)

    def _request(self, kind: int, flags: int, route: Route) -> Request:
        body = encode_route(route, self._index, self._timeout_ms)
        return f"route to {route.destination}", request(kind, flags | NLM_F_ACK, body)

    def close(self) -> None:
        """Release the proxy's namespace."""
        self._netlink.close()
