"""The queue of a switch's port on a real link: what it holds, drops and marks."""

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import pytest

from commands.options import require_possible
from model.errors import InputError
from model.fabric.shaping import Impairment, SwitchQueue
from scenarios.library_files import LIBRARY
from scenarios.load import load
from testbed.fabric.queues import RELEASED_S, missing_red, set_queue
from testbed.fabric.shaping import (
    DATA_CLASS,
    TRIAL_NAME,
    TRIAL_SHAPER,
    impair,
    missing_netem,
    trial_link,
)

FRAME_BYTES, BURST_FRAMES, ROUNDS = 1000, 300, 4
ROOM_BYTES, SO_SNDBUFFORCE, SO_RCVBUFFORCE = 2**24, 32, 33  # asm-generic/socket.h
MOST_QUIET_S = 1.0
# IPv4, version and header length; codepoints of RFC 3168 in the last bits of the type of service.
FIRST_BYTE, ECN_CAPABLE, MARKED = 0x45, 2, 3
# For experiments (RFC 3692); Ethernet's addresses are any, as the peer hears everything.
PROTOCOL, ANY_ADDRESSES, TYPE_IPV4 = 253, b"\xff" * 12, 0x0800
BUFFER_BYTES, KMIN_BYTES, KMAX_BYTES, PMAX = 200_000, 20_000, 120_000, 0.5
NEEDS_RED = pytest.mark.skipif(missing_red() is not None, reason="kernel without RED")

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]


def test_a_buffer_holds_its_bytes_and_drops_what_is_more() -> None:
    for arrived in bursts(SwitchQueue(BUFFER_BYTES)):
        assert BUFFER_BYTES <= len(arrived) * FRAME_BYTES < BUFFER_BYTES + slack_bytes()
        assert set(arrived) == {ECN_CAPABLE}


@NEEDS_RED
@pytest.mark.parametrize("delay_s", [0.0, 0.005])
def test_marks_follow_the_length_of_the_queue(delay_s: float) -> None:
    if delay_s and missing_netem():
        pytest.skip("kernel without netem")
    queue = SwitchQueue(BUFFER_BYTES, True, KMIN_BYTES, KMAX_BYTES, PMAX)
    marked = 0
    begin, end = KMIN_BYTES // FRAME_BYTES, (KMAX_BYTES + slack_bytes()) // FRAME_BYTES
    for arrived in bursts(queue, delay_s):
        assert BUFFER_BYTES <= len(arrived) * FRAME_BYTES < BUFFER_BYTES + slack_bytes()
        assert set(arrived[:begin]) == {ECN_CAPABLE}
        assert set(arrived[end:]) == {MARKED}
        marked += arrived[begin:].count(MARKED)
    certain = (BUFFER_BYTES - KMAX_BYTES) // FRAME_BYTES
    ramp = (KMAX_BYTES - KMIN_BYTES) // FRAME_BYTES
    assert marked / ROUNDS == pytest.approx(certain + ramp * PMAX / 2, abs=ramp * PMAX / 4)


@pytest.mark.skipif(missing_netem() is not None, reason="kernel without netem")
@pytest.mark.parametrize(("delay_s", "held"), [(0.0, False), (RELEASED_S, True)])
def test_a_delayed_packet_leaves_its_senders_buffer(delay_s: float, *, held: bool) -> None:
    """Without a delay, a small send buffer is full long before the switch's queue is."""
    (arrived, *_) = bursts(SwitchQueue(BUFFER_BYTES), delay_s, room_bytes=8 * FRAME_BYTES)
    assert (len(arrived) * FRAME_BYTES >= BUFFER_BYTES) is held


def test_a_kernel_without_red_is_told() -> None:
    if missing_red() is None:
        return
    with pytest.raises(InputError, match=r"needs sch_red.*--clock virtual"):
        require_possible(load(LIBRARY / "quickstart.yaml", ["fabric.switch_queue={ecn: true}"]))


def slack_bytes() -> int:
    """Return bytes that leave while a burst is sent: the bucket, and a few milliseconds more."""
    return TRIAL_SHAPER.burst_bytes + round(0.015 * TRIAL_SHAPER.rate_bps / 8)


def bursts(
    queue: SwitchQueue, delay_s: float = 0.0, room_bytes: int = ROOM_BYTES
) -> Iterator[list[int]]:
    """Send bursts over a trial link; yield the codepoints of the packets that arrive of each."""
    frame = ANY_ADDRESSES + struct.pack("!HBBHHHBBHII", TYPE_IPV4, *header())
    frame += bytes(FRAME_BYTES - len(frame))
    with trial_link() as (netlink, index):
        for name in (TRIAL_NAME, f"{TRIAL_NAME}-peer"):
            netlink.link("set", index=netlink.link_lookup(ifname=name)[0], state="up")
        parent = impair(netlink, index, Impairment(delay_s)) if delay_s else DATA_CLASS
        set_queue(netlink, index, parent, queue)
        with packet_socket(TRIAL_NAME) as sender, packet_socket(f"{TRIAL_NAME}-peer") as receiver:
            sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, room_bytes)
            sender.setblocking(False)
            for _ in range(ROUNDS):
                for _ in range(BURST_FRAMES):
                    send(sender, frame)
                yield list(codepoints(receiver))


def header() -> tuple[int, ...]:
    """Return an IPv4 header's fields; nobody checks its sum."""
    length = FRAME_BYTES - len(ANY_ADDRESSES) - 2
    return FIRST_BYTE, ECN_CAPABLE, length, 0, 0, 64, PROTOCOL, 0, 0x0A000001, 0x0A000002


def packet_socket(interface: str) -> socket.socket:
    """Return a packet socket with room for all bursts."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(TYPE_IPV4))
    sock.bind((interface, TYPE_IPV4))
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, ROOM_BYTES)
    sock.settimeout(MOST_QUIET_S)
    return sock


def send(sock: socket.socket, frame: bytes) -> None:
    """Send a frame; a full queue drops it, which is told."""
    with suppress(OSError):
        sock.send(frame)


def codepoints(sock: socket.socket) -> Iterator[int]:
    """Yield the codepoint of each packet that arrives, until none does for a while."""
    while True:
        try:
            packet = sock.recv(2 * FRAME_BYTES)
        except TimeoutError:
            return
        yield packet[len(ANY_ADDRESSES) + 3] & 3
