"""A shaped link carries its rate, whatever packets there are."""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from linux.network.namespaces import private_namespace
from linux.network.route_socket import RouteSocket
from model.fabric.shaping import DEFAULT_DEPTH_S, Shaper
from testbed.fabric.shaping import shape

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

SHAPER = Shaper(20_000_000, DEFAULT_DEPTH_S)
BYTES_A_SECOND = SHAPER.rate_bps / 8
# As large as a segment of TCP, and as short as an acknowledgement.
SEGMENT_BYTES, SHORT_BYTES = 60_000, 60
SHORT_SHARE = 0.05
DURATION_S = 1.0


@contextmanager
def shaped_link() -> Iterator[None]:
    """A veth pair `near` and `far`, shaped at `near`, in a namespace of its own."""
    with private_namespace(), RouteSocket() as netlink:
        netlink.link("add", ifname="near", kind="veth", peer="far")
        indexes = [netlink.link_lookup(ifname=name)[0] for name in ("near", "far")]
        for index in indexes:
            netlink.link("set", index=index, mtu=SEGMENT_BYTES, state="up")
        shape(netlink, indexes[0], SHAPER)
        yield


def packet(size_bytes: int) -> bytes:
    """An Ethernet frame with as much of an IPv4 packet as shapers look at: its length."""
    ethernet = bytes(12) + struct.pack("!H", 0x0800)
    return ethernet + struct.pack("!BBH", 0x45, 0, size_bytes) + bytes(size_bytes - 4)


def arrived_bytes() -> int:
    """Bytes that have arrived at `far`."""
    lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
    (far,) = [line for line in lines if "far:" in line]
    return int(far.split()[1])


def test_short_packets_take_their_bytes_from_the_rate_of_a_link() -> None:
    """What has arrived is never ahead of the rate by more than a burst and one segment.

    A segment leaves on credit, and short packets do not wait until it is paid.
    """
    segment, short = packet(SEGMENT_BYTES), packet(SHORT_BYTES)
    most_ahead = sent_short = last_s = pause_s = 0.0
    with shaped_link(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind(("near", 0))
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * SEGMENT_BYTES)
        begin_s = time.monotonic()
        while (passed_s := time.monotonic() - begin_s) < DURATION_S:
            pause_s, last_s = max(pause_s, passed_s - last_s), passed_s
            with suppress(OSError):  # the buffer is full
                while sent_short < SHORT_SHARE * BYTES_A_SECOND * passed_s:
                    sent_short += sock.send(short)
                sock.send(segment)
            # A pause of this process between the two readings makes the link look slower.
            arrived = arrived_bytes()
            most_ahead = max(most_ahead, arrived - BYTES_A_SECOND * (time.monotonic() - begin_s))
    assert arrived > BYTES_A_SECOND * DURATION_S / 2
    # After a pause of this process, the short packets of all of it leave at once.
    of_pause = SHORT_SHARE * BYTES_A_SECOND * pause_s
    credit = (1 + SHORT_SHARE) * len(segment) + len(short) + of_pause
    assert most_ahead <= SHAPER.burst_bytes + credit
