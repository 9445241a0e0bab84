"""Shaped links: the only source of their constants, for testbed and prediction."""

from dataclasses import dataclass
from math import ceil
from typing import Any

# One size in bytes, or an array of them.
Sizes = Any

MTU_BYTES = 1500
ETHERNET_HEADER_BYTES = 14
# IPv4 20, TCP 20, timestamp option 12 (RFC 7323).
TCP_IP_HEADER_BYTES = 52
PACKET_PAYLOAD_BYTES = MTU_BYTES - TCP_IP_HEADER_BYTES
# Header bytes of every packet of an open connection; an acknowledgement has no other bytes.
PACKET_HEADER_BYTES = ETHERNET_HEADER_BYTES + TCP_IP_HEADER_BYTES

# An IP packet shorter than this carries hardly any data: it counts as an acknowledgement.
ACKNOWLEDGEMENT_BELOW_BYTES = 128
# Share of a link's rate that is guaranteed to acknowledgements, whatever data is queued.
ACKNOWLEDGEMENT_SHARE = 0.1
# Handle of the class of acknowledgements in every link's shaper (tc-htb(8)): class 3 of qdisc 1.
ACKNOWLEDGEMENT_CLASS = 0x1_0003

# Bucket depths in seconds: a link makes up for an idle time of up to this length at once, so a
# shorter pause of the machine costs nothing. Trade-offs: docs/explanation/measuring.md, "The
# bucket".
DEFAULT_DEPTH_S = 0.01
LEAST_DEPTH_S, MOST_DEPTH_S = 0.001, 0.02
MIN_BURST_BYTES = 10_000
# A software switch accepts a burst of this size at every port; of larger bursts, it drops packets.
SWITCH_BURST_BYTES = 64 * 1024
# TCP hands down many packets at once, a segment: at most this much (GSO_LEGACY_MAX_SIZE in
# linux/netdevice.h), and half of it for every 2**ROUND_TRIP_LOG us of the shortest round trip that
# a connection has seen (tcp_tso_rtt_log in the kernel's ip-sysctl.rst). That round trip is chance:
# a connection may never have found its links idle. So it must not count: 2**31 us are half an hour.
MAX_SEGMENT_BYTES = 65536
ROUND_TRIP_LOG = 31
# The fewest packets of a full segment: every bucket lets this burst through, so no hop stores it,
# and fewer, larger packets cost the switches less.
LEAST_SEGMENT_PACKETS = MIN_BURST_BYTES // (MTU_BYTES + ETHERNET_HEADER_BYTES)

# TCP takes a segment for lost if no acknowledgement has come after this time, or a longer one
# (TCP_RTO_MIN in the kernel's include/net/tcp.h).
USUAL_TIMEOUT_S = 0.2
# It waits no longer than this (TCP_RTO_MAX, there).
LONGEST_TIMEOUT_S = 120.0
# At 20 Mbit/s, seven segments take 0.19 s: TCP's time stays usual.
TIMEOUT_SEGMENTS = 7

# A full packet takes 0.12 s at this rate.
MIN_RATE_BPS = 100_000
# Above the rate of any platform's link; far beyond it, arithmetic overflows.
MAX_RATE_BPS = 10_000_000_000_000
# Link probes must arrive before the next one leaves; random loss must not drop three in a row.
MOST_DELAY_S, MOST_LOSS = 0.01, 0.02


@dataclass(frozen=True)
class Shaper:
    """The token bucket at the sending end of one direction of a link.

    `depth_s` is the depth of the bucket, in seconds of its rate.
    """

    rate_bps: int
    depth_s: float

    @property
    def burst_bytes(self) -> int:
        """Bytes that may leave at once after idleness: the bucket's depth, at least 10 kB."""
        return max(MIN_BURST_BYTES, round(self.rate_bps / 8 * self.depth_s))


@dataclass(frozen=True)
class Impairment:
    """Delay and loss of packets in each direction of a link.

    `delay_s` is the delay added to each packet, `loss` the fraction of packets lost.
    """

    delay_s: float = 0.0
    loss: float = 0.0

    def __bool__(self) -> bool:
        """Return whether there is any delay or loss."""
        return self != UNIMPAIRED


UNIMPAIRED = Impairment()


@dataclass(frozen=True)
class SwitchQueue:
    """The queue of a switch's port: the bytes that it holds, and ECN marks by its length.

    `buffer_bytes` is the most that waits, `None`: a Linux queue of 1000 packets. With `ecn`,
    packets are marked (RFC 3168): none while fewer than `kmin_bytes` wait, all above `kmax_bytes`,
    and between them a part that grows up to `pmax` (Zhu et al., SIGCOMM 2015, figure 5). Bytes and
    parts are the real switch's: slow motion stretches rates and times alike, and no queue.
    """

    buffer_bytes: int | None = None
    ecn: bool = False
    kmin_bytes: int = 5_000
    kmax_bytes: int = 200_000
    pmax: float = 0.01

    def __bool__(self) -> bool:
        """Return whether it is other than that of Linux."""
        return self != LINUX_QUEUE


LINUX_QUEUE = SwitchQueue()
# The most bytes of a queue, and of a threshold in it: pyroute2 encodes the limit of bfifo as a
# signed number of 32 bits (`sched_pfifo`).
MOST_QUEUE_BYTES = 2**31 - 1


def wire_bytes(payload_bytes: int) -> float:
    """Return the bytes that HTB counts for a TCP payload in full packets, all headers included."""
    return payload_bytes * (MTU_BYTES + ETHERNET_HEADER_BYTES) / PACKET_PAYLOAD_BYTES


# The largest send buffer to ask for: SK_WMEM_MAX in the kernel's include/net/sock.h, to which
# net.core.wmem_max is set unless somebody, or a later kernel, raises it.
MOST_BUFFER_BYTES = 212_992
# Most packets of a segment; the fewest of which each full one is acknowledged at once.
SEGMENT_PACKETS, LEAST_GRAIN_PACKETS = MAX_SEGMENT_BYTES // PACKET_PAYLOAD_BYTES, 2
# Transfers that a connection sends before the first of them is confirmed. NCCL has as many buffers
# for a connection (NCCL_STEPS, src/include/device.h of 2.20).
DEFAULT_WINDOW = 8


def segment_bytes(packets: int) -> int:
    """Return the payload of a full segment of this many packets: the grain in which flows share."""
    return packets * PACKET_PAYLOAD_BYTES


def buffered_segments(packets: int) -> int:
    """Return the full segments of this many packets in a connection's send buffer.

    Fine ones are as many as TCP lets wait at its own interface (tcp_small_queue_check in
    net/ipv4/tcp_output.c): a queue serves packets in their order, so a flow that another GPU
    forwards must not have more in that GPU's queue than the GPU's own flows. Of large ones, twice
    as many leave no gap when an agent is late.
    """
    return 2 if packets < SEGMENT_PACKETS else 4


def send_buffer_bytes(packets: int, under_way_bytes: float = 0.0) -> int:
    """Return the send buffer to ask for: the kernel grants twice as much (socket(7)).

    What is under way in a round trip stays in it, beside two segments that follow: its bookkeeping
    takes less than the other half.
    """
    segment = packets * MTU_BYTES
    return max(buffered_segments(packets) * segment // 2, segment + ceil(under_way_bytes))


def least_timeout_s(
    slowest_bps: int,
    domains: int,
    gpus: int = 2,
    packets: int = SEGMENT_PACKETS,
    under_way_bytes: float = 0.0,
) -> float:
    """Return TCP's minimum retransmission timeout (RFC 6298) in a fabric of HB domains and GPUs.

    A slow link is a fast one whose time is stretched: TCP's time is stretched with it. On a NIC
    link, a full segment waits for those of the other GPUs of the rail, one in each other domain;
    finer segments wait for the send buffers of all other GPUs. So do all for what these have under
    way in a round trip, if links delay packets.
    """
    waiting_bytes = segment_bytes(SEGMENT_PACKETS) * max(TIMEOUT_SEGMENTS, domains - 1)
    if packets < SEGMENT_PACKETS:
        buffered_bytes = buffered_segments(packets) * segment_bytes(packets)
        waiting_bytes = max(waiting_bytes, buffered_bytes * (gpus - 1))
    waiting_s = (wire_bytes(waiting_bytes) + under_way_bytes * (gpus - 1)) * 8 / slowest_bps
    return min(LONGEST_TIMEOUT_S, max(USUAL_TIMEOUT_S, waiting_s))
