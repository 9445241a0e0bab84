"""GPUs that share a NIC send their part of its rate each, however many packets one has queued."""

import socket
import struct

import pytest

from linux.network.socket_options import SO_SNDBUFFORCE
from model.fabric.addressing import nic_address, rail_network
from model.fabric.topology import Gpu
from testbed.fabric.queues import take_turns
from testbed.fabric.shaping import DATA_CLASS, TRIAL_NAME, TRIAL_SHAPER, trial_link

pytestmark = pytest.mark.integration

OWN, OTHER = Gpu(0, 0), Gpu(0, 1)
TYPE_IPV4, FRAME_BYTES = 0x0800, 1500
# Own packets come behind as many of another sender as leave in 0.1 s, besides the full bucket.
QUEUED = (TRIAL_SHAPER.burst_bytes + TRIAL_SHAPER.rate_bps // 80) // FRAME_BYTES
SENT = 20


def test_own_packets_take_turns_with_those_that_were_queued_before() -> None:
    with trial_link() as (netlink, index):
        for name in (TRIAL_NAME, f"{TRIAL_NAME}-peer"):
            netlink.link("set", index=netlink.link_lookup(ifname=name)[0], state="up")
        take_turns(netlink, index, DATA_CLASS, [rail_network(OTHER.rail)], FRAME_BYTES)
        with packet_socket(TRIAL_NAME) as sender, packet_socket(f"{TRIAL_NAME}-peer") as receiver:
            for gpu, count in ((OTHER, QUEUED), (OWN, SENT)):
                for _ in range(count):
                    sender.send(frame(gpu))
            came = [receiver.recv(FRAME_BYTES)[26:30] for _ in range(QUEUED)]
    own = [place for place, address in enumerate(came) if address == nic_address(OWN).packed]
    assert len(own) == SENT
    assert own[-1] - own[0] <= 2 * SENT


def frame(gpu: Gpu) -> bytes:
    """Return an IPv4 packet from a GPU, in a frame."""
    addresses = int(nic_address(gpu)), int(nic_address(Gpu(1, 0)))
    header = struct.pack("!BBHHHBBHII", 0x45, 0, FRAME_BYTES - 14, 0, 0, 64, 254, 0, *addresses)
    return struct.pack("!12xH", TYPE_IPV4) + header + bytes(FRAME_BYTES - 34)


def packet_socket(interface: str) -> socket.socket:
    """Return a packet socket with room for all packets."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(TYPE_IPV4))
    sock.bind((interface, TYPE_IPV4))
    sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 4 * QUEUED * FRAME_BYTES)
    sock.settimeout(1.0)
    return sock
