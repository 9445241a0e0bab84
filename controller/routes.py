"""Host routes of the proxies, over one netlink socket for each proxy's namespace."""

import ctypes
import os
import socket
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from pyroute2 import IPRoute

from controller.desired import Route
from controller.reconcile import difference, vacated

CLONE_NEWNET = 0x40000000
# Our routes carry this originator (rtnetlink(7), rtm_protocol), so that no other is touched.
PROTOCOL = 155
ON_LINK = 4  # RTNH_F_ONLINK: the gateway needs no route of its own
MAIN_TABLE = 254


class HostRoutes:
    """The routes of one proxy."""

    def __init__(self, process_id: int) -> None:
        self._netlink = open_in_namespace(process_id)
        self._index = {
            link.get_attr("IFLA_IFNAME"): link["index"] for link in self._netlink.get_links()
        }

    def reconcile(self, desired: frozenset[Route]) -> tuple[int, int]:
        """Make our routes the desired ones; return how many were added and removed."""
        change = difference(self.installed(), desired)
        for route in change.additions:
            self._netlink.route("replace", **self._message(route))
        for route in vacated(change):
            self._netlink.route("del", **self._message(route))
        return len(change.additions), len(vacated(change))

    def installed(self) -> frozenset[Route]:
        """Our routes as the kernel has them."""
        names = {index: name for name, index in self._index.items()}
        messages = self._netlink.get_routes(family=socket.AF_INET, table=MAIN_TABLE, proto=PROTOCOL)
        return frozenset(_route(message, names) for message in messages)

    def _message(self, route: Route) -> dict[str, Any]:
        return {
            "dst": str(route.destination),
            "gateway": str(route.gateway),
            "oif": self._index[route.interface],
            "prefsrc": str(route.source),
            "proto": PROTOCOL,
            "flags": ON_LINK,
        }


def _route(message: Any, names: Mapping[int, str]) -> Route:
    return Route(
        destination=IPv4Network((message.get_attr("RTA_DST"), message["dst_len"])),
        gateway=IPv4Address(message.get_attr("RTA_GATEWAY")),
        interface=names[message.get_attr("RTA_OIF")],
        source=IPv4Address(message.get_attr("RTA_PREFSRC")),
    )


def open_in_namespace(process_id: int) -> IPRoute:
    """A netlink socket in the network namespace of a process (setns(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/proc/{process_id}/ns/net", os.O_RDONLY)
    try:
        if libc.setns(there, CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns: {os.strerror(number)}")
        return IPRoute()
    finally:
        libc.setns(here, CLONE_NEWNET)
        os.close(here)
        os.close(there)
