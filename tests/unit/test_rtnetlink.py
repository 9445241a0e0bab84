"""Messages of rtnetlink as bytes, against those of pyroute2."""

import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from controller.planner import Route
from controller.southbound import host_routes as rtnetlink
from linux.network.netlink import (
    HEADER,
    IFF_UP,
    RTM_NEWLINK,
    NetlinkSocket,
    link_of,
    messages_in,
    taken_down,
)
from linux.processes.interruptions import interrupt

INDEX = {"hb0": 2, "nic0": 3}
NAMES = {index: name for name, index in INDEX.items()}
TYPES = {"unicast": rtnetlink.RTN_UNICAST, "unreachable": rtnetlink.RTN_UNREACHABLE}
TIMEOUT_MS = 1250

addresses = st.integers(1, 2**32 - 1).map(IPv4Address)
networks = st.builds(
    lambda address, prefix: IPv4Network((address, prefix), strict=False),
    addresses,
    st.integers(1, 32),
)
routes = st.builds(Route, networks) | st.builds(
    Route, networks, addresses, st.sampled_from(sorted(INDEX)), addresses
)


def message(body: bytes, kind: int = rtnetlink.RTM_NEWROUTE) -> bytes:
    """A body with its header."""
    return HEADER.pack(HEADER.size + len(body), kind, 0, 1, 0) + body


def decoded(body: bytes) -> Any:
    """Return a route's message as pyroute2 decodes it."""
    made = rtmsg(message(body))
    made.decode()
    return made


def encoded(fields: dict[str, int], attributes: list[tuple[str, object]]) -> bytes:
    """The body of a route's message as pyroute2 writes it."""
    made = rtmsg()
    for name, value in fields.items():
        made[name] = value
    made["attrs"] = attributes
    made.encode()
    return bytes(made.data[HEADER.size :])


def ours(route: Route) -> dict[str, int]:
    """Header fields of one of Railbed's routes, as the kernel reports them."""
    return {
        "family": socket.AF_INET,
        "dst_len": route.destination.prefixlen,
        "table": rtnetlink.RT_TABLE_MAIN,
        "proto": rtnetlink.PROTOCOL,
        "type": TYPES["unicast" if route.gateway else "unreachable"],
    }


def attributes(route: Route) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = [("RTA_DST", str(route.destination.network_address))]
    if route.gateway is not None:
        found += [("RTA_GATEWAY", str(route.gateway)), ("RTA_OIF", INDEX[route.interface])]
        found += [("RTA_PREFSRC", str(route.source))]
        metrics = [("RTAX_LOCK", 1 << 13), ("RTAX_RTO_MIN", TIMEOUT_MS)]
        found += [("RTA_METRICS", {"attrs": metrics})]
    return found


@given(routes)
def test_a_route_is_read_by_others_as_it_is_meant(route: Route) -> None:
    found = decoded(rtnetlink.encode_route(route, INDEX, TIMEOUT_MS))
    for name, value in ours(route).items():
        assert found[name] == value, name
    assert str(sorted(map(tuple, found["attrs"]))) == str(sorted(attributes(route)))
    assert found["flags"] == (rtnetlink.RTNH_F_ONLINK if route.gateway else 0)


@given(routes)
def test_a_route_that_others_write_is_read_as_it_is_meant(route: Route) -> None:
    body = encoded(ours(route), attributes(route))
    assert rtnetlink._parse_route(body, NAMES) == route


@given(routes)
def test_a_route_comes_back_as_it_was_sent(route: Route) -> None:
    assert rtnetlink._parse_route(rtnetlink.encode_route(route, INDEX, TIMEOUT_MS), NAMES) == route


@given(routes, st.sampled_from(["table", "proto"]))
def test_routes_of_others_are_not_seen(route: Route, field: str) -> None:
    body = encoded({**ours(route), field: 2}, attributes(route))
    assert rtnetlink._parse_route(body, NAMES) is None


@given(st.lists(st.tuples(st.integers(0, 100), st.binary(max_size=20)), max_size=5))
def test_a_datagram_is_split_into_its_messages(messages: list[tuple[int, bytes]]) -> None:
    parts = [message(body, kind) for kind, body in messages]
    data = b"".join(part + b"\0" * (-len(part) % 4) for part in parts)
    assert list(messages_in(data)) == messages


@pytest.mark.parametrize("flags", [0, IFF_UP])
@pytest.mark.parametrize("state", ["DOWN", "LOWERLAYERDOWN", "UP"])
def test_a_link_is_up_if_it_is_meant_to_be_and_operates(flags: int, state: str) -> None:
    made = ifinfmsg()
    made["index"], made["flags"] = 7, flags
    made["attrs"] = [("IFLA_IFNAME", "hb0-g12"), ("IFLA_MTU", 9000), ("IFLA_OPERSTATE", state)]
    made.encode()
    body = bytes(made.data[HEADER.size :])
    up = state == "UP" and flags == IFF_UP
    assert link_of(body) == ("hb0-g12", 7, up, "")


def test_the_kernel_tells_of_the_loopback() -> None:
    """Reading needs no privilege."""
    netlink = NetlinkSocket()
    assert ("lo", 1) in [(name, index) for name, index, *_ in netlink.interfaces()]
    netlink.close()


@pytest.mark.parametrize(
    "exchange",
    [
        lambda netlink: list(netlink.interfaces()),
        lambda netlink: netlink.send([("no interface", taken_down(0))]),
    ],
)
def test_an_interruption_waits_for_the_answer(
    exchange: Callable[[NetlinkSocket], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer left unread would be the next request's; an unread dump forbids the next."""
    netlink = NetlinkSocket()
    answer = netlink._answer

    def interrupted() -> bytes:
        monkeypatch.undo()
        interrupt(KeyboardInterrupt())
        return answer()

    monkeypatch.setattr(netlink, "_answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        exchange(netlink)
    assert ("lo", 1) in [(name, index) for name, index, *_ in netlink.interfaces()]
    netlink.close()


def test_a_request_takes_an_interface_down_and_changes_nothing_else() -> None:
    made = ifinfmsg(taken_down(7))
    made.decode()
    assert made["header"]["type"] == RTM_NEWLINK
    assert (made["index"], made["flags"], made["change"]) == (7, 0, IFF_UP)
    assert made["attrs"] == []
