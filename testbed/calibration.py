"""Measures one link alone: frames from its one end to the other, past switches and proxies.

They are for the next device only (IEEE 802.1Q, table 8-1: no bridge forwards 01-80-C2-00-00-0E) and
have an EtherType for experiments (IEEE 802, section 9.2.3), so they wait with the data. The kernel
notes when they arrive.
"""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from model.calibration import FRAME_BYTES, Arrival, LinkCalibration, Train, calibration
from model.errors import EmulationError
from model.topology import Hop, Link, Port
from testbed.namespace import namespace_of
from testbed.testbed import Testbed

NEAREST_BRIDGE = bytes.fromhex("0180c200000e")
OUR_ADDRESS = bytes.fromhex("020300000002")
ETHERTYPE = 0x88B6
HEADER = struct.Struct("!6s6sHI")
SHORTEST_FRAME_BYTES = 60  # IEEE 802.3, without the check sequence
LATENCY_PROBES = 11
PATIENCE_S = 1.0

# packet(7), socket(7) and the kernel's headers; Python has no names for these.
ETH_P_ALL = 0x0003
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23
SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_TIMESTAMPNS = 32, 33, 35
TIMESPEC = struct.Struct("@qq")
# The sender sleeps when its frames fill this: about 400, fewer than the shaper's queue holds.
SEND_BUFFER_BYTES = 512 * 1024
# A whole train.
RECEIVE_BUFFER_BYTES = 8 * 1024 * 1024


def measure(bed: Testbed, link: Link) -> tuple[LinkCalibration, LinkCalibration]:
    """Measure a link, up and then down; raises `EmulationError` if it does not carry frames."""
    with _open(bed, link.lower) as lower, _open(bed, link.upper) as upper:
        up = _measure(Hop(link, link.lower.node), lower, upper)
        return up, _measure(Hop(link, link.upper.node), upper, lower)


def _measure(hop: Hop, sender: socket.socket, receiver: socket.socket) -> LinkCalibration:
    line = _Line(hop.link.rate_bps, sender, receiver)
    try:
        line.rest()
        return calibration(hop, line.latencies_s(), line.train())
    except OSError as error:
        raise EmulationError(
            f"{hop.link.name}: what {hop.sender} sends on it alone does not arrive: {error}"
        ) from error


@contextmanager
def _open(bed: Testbed, port: Port) -> Iterator[socket.socket]:
    """A socket at one end of a link; the present namespace is the switches'."""
    proxy = bed.proxies.get(port.node)
    with namespace_of(proxy.process_id) if proxy else nullcontext():
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    with opened:
        opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        opened.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, SEND_BUFFER_BYTES)
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
        opened.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        opened.settimeout(PATIENCE_S)
        opened.bind((port.interface, ETH_P_ALL))
        yield opened


class _Line:
    """One direction of a link, with a socket at each end."""

    def __init__(self, rate_bps: int, sender: socket.socket, receiver: socket.socket) -> None:
        self._rate_bps, self._sender, self._receiver = rate_bps, sender, receiver
        self._number = 0

    def rest(self) -> None:
        """Wait until the bucket is in no debt and has tokens for short frames."""
        time.sleep(2 * Train(self._rate_bps).frame_s)

    def latencies_s(self) -> list[float]:
        """How long short frames take, one at a time, from the sender's call to their arrival."""
        return [self._latency_s() for _ in range(LATENCY_PROBES)]

    def _latency_s(self) -> float:
        frame = self._next_frame(SHORTEST_FRAME_BYTES)
        sent_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)  # the clock of the kernel's notes
        self._sender.send(frame)
        return (self._arrivals(1)[-1].at_ns - sent_ns) / 1e9

    def train(self) -> list[Arrival]:
        """Send full frames back to back; all that arrived on the link meanwhile."""
        count = Train(self._rate_bps).frames
        frame = self._next_frame(FRAME_BYTES)
        for _ in range(count):
            self._sender.send(frame)
        return self._arrivals(count)

    def _next_frame(self, size_bytes: int) -> bytes:
        self._number += 1
        self._header = HEADER.pack(NEAREST_BRIDGE, OUR_ADDRESS, ETHERTYPE, self._number)
        return self._header.ljust(size_bytes, b"\0")

    def _arrivals(self, count: int) -> list[Arrival]:
        """What has arrived, and arrives, until so many of the present frames have."""
        arrivals, missing = [], count
        end_s = time.monotonic() + PATIENCE_S + 2 * Train(self._rate_bps).frame_s * count
        while missing > 0:
            if time.monotonic() > end_s:
                raise TimeoutError(f"{missing} of {count} frames are missing")
            arrivals.append(self._next_arrival())
            missing -= arrivals[-1].ours
        return arrivals

    def _next_arrival(self) -> Arrival:
        head = bytearray(HEADER.size)
        size, notes, *_ = self._receiver.recvmsg_into(
            [head], socket.CMSG_SPACE(TIMESPEC.size), socket.MSG_TRUNC
        )
        seconds, nanoseconds = TIMESPEC.unpack(notes[0][2])
        return Arrival(seconds * 1_000_000_000 + nanoseconds, size, head == self._header)
