"""A socket gets frames of one EtherType at a port whose receive handler takes every frame."""

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
from pyroute2 import IPRoute

from controller.detection.probes import ethertype_socket
from linux.network.namespaces import private_namespace
from tests.machine import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

PROBE, OTHER = 0x88B5, 0x88B6
# Unicast: the port's bridge takes these frames, as Open vSwitch takes every frame.
ADDRESSES = bytes.fromhex("020000000002 020000000001")


@pytest.fixture
def sender() -> Iterator[socket.socket]:
    """A socket on a veth link to a port of a bridge, all in a private namespace."""
    with private_namespace(), IPRoute() as netlink:
        netlink.link("add", ifname="wire", kind="veth", peer="port")
        netlink.link("add", ifname="bridge", kind="bridge")
        index = {name: netlink.link_lookup(ifname=name)[0] for name in ("wire", "port", "bridge")}
        netlink.link("set", index=index["port"], master=index["bridge"])
        for number in index.values():
            netlink.link("set", index=number, state="up")
        wait_until(lambda: is_up(netlink, index["wire"]), "the wire is up")
        with closing(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)) as opened:
            opened.bind(("wire", 0))
            yield opened


def is_up(netlink: IPRoute, index: int) -> bool:
    """Whether the kernel reports an interface as up: it drops frames that are sent before."""
    (message,) = netlink.get_links(index)
    return bool(message.get_attr("IFLA_OPERSTATE") == "UP")


def heard(receiver: socket.socket) -> list[bytes]:
    """Frames that have arrived since the last call."""
    frames = []
    while True:
        try:
            frames.append(receiver.recv(100))
        except BlockingIOError:
            return frames


def frame(ethertype: int, text: bytes) -> bytes:
    return ADDRESSES + ethertype.to_bytes(2, "big") + text.ljust(46, b".")


@pytest.mark.parametrize("interface", ["port", None])
def test_only_the_frames_of_the_ethertype_are_heard(
    sender: socket.socket, interface: str | None
) -> None:
    with ethertype_socket(PROBE, interface) as receiver:
        assert receiver.getsockname()[0] == (interface or "")
        for number in range(3):
            sender.send(frame(OTHER, b"other %d" % number))
            sender.send(frame(PROBE, b"probe %d" % number))
        frames: list[bytes] = []

        def all_have_come() -> bool:
            frames.extend(heard(receiver))
            return len(frames) >= 3

        wait_until(all_have_come, "three probes come")
    assert frames == [frame(PROBE, b"probe %d" % number) for number in range(3)]
