"""Measures one link alone: sends frames from end to end, bypassing switches and proxies.

No bridge forwards their destination 01-80-C2-00-00-0E (IEEE 802.1Q, table 8-1). Their EtherType is
for experiments (IEEE 802, section 9.2.3), so they wait with the data. The kernel timestamps their
arrival. A trial runs on one core, the timers of the shaper included (they are pinned,
net/sched/sch_api.c), so that only the pauses of this core can disturb it.
"""

import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from itertools import pairwise

from linux.machine.clocks import SET_BY_NS, wall_clock_ahead_ns
from linux.network.namespaces import namespace_of
from linux.network.socket_options import (
    ETH_P_ALL,
    PACKET_IGNORE_OUTGOING,
    SO_RCVBUFFORCE,
    SO_SNDBUFFORCE,
    SO_TIMESTAMPNS,
    SOL_PACKET,
)
from model.errors import EmulationError
from model.fabric.addressing import NEAREST_BRIDGE
from model.fabric.shaping import Shaper
from model.fabric.topology import Hop, Port
from model.measurement.link_quality import FRAME_BYTES, Arrival, LinkCalibration, Train, calibration
from testbed.instruments.pauses import PauseWatch
from testbed.testbed import Testbed

OUR_ADDRESS = bytes.fromhex("020300000002")
ETHERTYPE = 0x88B6
HEADER = struct.Struct("!6s6sHI")
SHORTEST_FRAME_BYTES = 60  # IEEE 802.3, without the check sequence
LATENCY_PROBES = 11
PATIENCE_S = 1.0
# Most attempts: a measurement during which the clock is set is repeated.
MEASUREMENTS = 3

# struct timespec.
TIMESPEC = struct.Struct("@qq")
# Buffer charged for a full frame (struct sk_buff and data), halved: the kernel doubles the sizes.
CHARGED_BYTES = 2304 // 2
# Room for a whole train and all frames before it.
RECEIVE_BUFFER_BYTES = 64 * 1024 * 1024


def measure(bed: Testbed, hop: Hop, watch: PauseWatch, trial: int = 1) -> LinkCalibration:
    """Measure one direction of a link; raises `EmulationError` if it does not carry frames."""
    bed.watch.check()
    for _ in range(MEASUREMENTS):
        if measured := _measured(bed, hop, watch, trial):
            return measured
    raise EmulationError(
        f"{hop.link.name}: cannot be measured: the machine's clock was set in {MEASUREMENTS} "
        "measurements in a row; stop the program that sets it"
    )


def _measured(bed: Testbed, hop: Hop, watch: PauseWatch, trial: int) -> LinkCalibration | None:
    """Measure once; `None` if the clock of the kernel's timestamps was set meanwhile."""
    ends = hop.link.port_of(hop.sender), hop.link.port_of(hop.receiver)
    try:
        with (
            _open(bed, ends[0]) as sender,
            _open(bed, ends[1]) as receiver,
            _one_core(trial) as core,
        ):
            line = _Line(hop.link.shaper, sender, receiver)
            latencies_s = line.latencies_s()
            sender_bps, sender_wait_s, arrivals = line.train()
            pauses = watch.log_until(time.monotonic_ns()).of_core(core)
    except OSError as error:
        raise EmulationError(
            f"{hop.link.name}: calibration frames from {hop.sender} did not arrive: {error}"
        ) from error
    if abs(wall_clock_ahead_ns() - line.ahead_ns) > SET_BY_NS:
        return None
    return calibration(hop, latencies_s, arrivals, pauses, trial, sender_bps, sender_wait_s)


@contextmanager
def _one_core(trial: int) -> Iterator[int]:
    """Pin this thread to one core, which each trial changes; yield the core."""
    allowed = os.sched_getaffinity(0)
    core = sorted(allowed)[trial % len(allowed)]
    os.sched_setaffinity(0, {core})
    try:
        yield core
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def _open(bed: Testbed, port: Port) -> Iterator[socket.socket]:
    """Open a packet socket at one end of a link; call this in the switches' namespace."""
    proxy = bed.proxies.get(port.node)
    with namespace_of(proxy.process_id) if proxy else nullcontext():
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    with opened:
        opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
        opened.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        opened.settimeout(PATIENCE_S)
        opened.bind((port.interface, ETH_P_ALL))
        yield opened


class _Line:
    """One direction of a link, with a socket at each end."""

    def __init__(self, shaper: Shaper, sender: socket.socket, receiver: socket.socket) -> None:
        self._plan, self._sender, self._receiver = Train.on(shaper), sender, receiver
        self._number = 0
        queued_bytes = self._plan.queued * CHARGED_BYTES
        sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, queued_bytes)
        # The kernel's timestamps are of CLOCK_REALTIME, all else is of CLOCK_MONOTONIC.
        self.ahead_ns = wall_clock_ahead_ns()

    def latencies_s(self) -> list[float]:
        """Latencies of short frames in seconds, one at a time, from the send call to arrival."""
        time.sleep(2 * self._plan.frame_s)  # the bucket is in no debt then, and has tokens for them
        latencies_s = []
        for _ in range(LATENCY_PROBES):
            frame = self._next_frame(SHORTEST_FRAME_BYTES)
            sent_ns = time.monotonic_ns()
            self._sender.send(frame)
            latencies_s.append((self._arrivals(1)[-1].at_ns - sent_ns) / 1e9)
        return latencies_s

    def train(self) -> tuple[float, float, list[Arrival]]:
        """Send full frames until the bucket is empty, then a train.

        Return the rate in bit/s of the sender's unhindered stretches, its longest time in seconds
        between two frames of the train, and all arrivals.
        """
        frame, window = self._next_frame(FRAME_BYTES), self._plan.window
        begun_ns = time.monotonic_ns()
        for _ in range(window):
            self._sender.send(frame)
        sender_bps = window * FRAME_BYTES * 8e9 / (time.monotonic_ns() - begun_ns)
        sent = window + self._fill(frame) + self._plan.frames
        moments_ns = [time.monotonic_ns()]
        for _ in range(self._plan.frames):
            self._sender.send(frame)
            moments_ns.append(time.monotonic_ns())
        wait_s = max(later - sooner for sooner, later in pairwise(moments_ns)) / 1e9
        return sender_bps, wait_s, self._arrivals(sent)

    def _fill(self, frame: bytes) -> int:
        """Send frames until the queue is full, at most `most_leading`; return their number."""
        sent = 0
        self._sender.setblocking(False)
        with suppress(BlockingIOError):
            while sent < self._plan.most_leading:
                self._sender.send(frame)
                sent += 1
        self._sender.settimeout(PATIENCE_S)
        return sent

    def _next_frame(self, size_bytes: int) -> bytes:
        self._number += 1
        self._header = HEADER.pack(NEAREST_BRIDGE, OUR_ADDRESS, ETHERTYPE, self._number)
        return self._header.ljust(size_bytes, b"\0")

    def _arrivals(self, count: int) -> list[Arrival]:
        """Receive until `count` frames with the current header arrived; return all arrivals."""
        arrivals, missing = [], count
        patience_s = PATIENCE_S + 2 * self._plan.frame_s
        end_s = time.monotonic() + patience_s
        while missing > 0:
            if time.monotonic() > end_s:
                raise TimeoutError(f"{missing} of {count} frames missing after {patience_s:.3g} s")
            arrivals.append(self._next_arrival())
            if arrivals[-1].ours:
                missing -= 1
                # Extend the deadline: a slow processor still reads; a dead link delivers none.
                end_s = time.monotonic() + patience_s
        return arrivals

    def _next_arrival(self) -> Arrival:
        head = bytearray(HEADER.size)
        size, notes, *_ = self._receiver.recvmsg_into(
            [head], socket.CMSG_SPACE(TIMESPEC.size), socket.MSG_TRUNC
        )
        seconds, nanoseconds = TIMESPEC.unpack(notes[0][2])
        at_ns = seconds * 1_000_000_000 + nanoseconds - self.ahead_ns
        return Arrival(at_ns, size, head == self._header)
