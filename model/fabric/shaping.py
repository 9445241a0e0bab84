"""What a shaped link does to bytes: the one source of its constants for testbed and prediction."""

from dataclasses import dataclass

MTU_BYTES = 1500
ETHERNET_HEADER_BYTES = 14
# IPv4 20, TCP 20, timestamp option 12 (RFC 7323).
TCP_IP_HEADER_BYTES = 52

# A packet below this length of IP carries no data worth speaking of: it is an acknowledgement.
ACKNOWLEDGEMENT_BELOW_BYTES = 128
# Part of a link's rate that acknowledgements are assured of, whatever data is queued.
ACKNOWLEDGEMENT_SHARE = 0.1

# How long a link may be idle and make up for it at once: a pause of the machine that is no longer
# takes nothing from the link. What each depth costs and gains: docs/measuring.md, "The bucket".
DEFAULT_DEPTH_S = 0.01
LEAST_DEPTH_S, MOST_DEPTH_S = 0.001, 0.02
MIN_BURST_BYTES = 10_000
# A switch that is a process takes this much of every port at once; of more it loses some.
SWITCH_BURST_BYTES = 64 * 1024
# TCP hands down this much at once, also on slow links: what every bucket lets through at once is
# not stored at each hop, and fewer, larger packets cost the switches less.
SEGMENT_PACKETS = MIN_BURST_BYTES // (MTU_BYTES + ETHERNET_HEADER_BYTES)

# Here one full packet takes 24 ms: below, packets are no longer small against a step.
MIN_RATE_BPS = 500_000
# A link probe must arrive before the next one leaves, and chance must not lose three in a row.
MOST_DELAY_S, MOST_LOSS = 0.01, 0.02


@dataclass(frozen=True)
class Shaper:
    """The token bucket at the sending end of one direction of a link.

    `depth_s` is how many seconds of its rate the bucket holds.
    """

    rate_bps: int
    depth_s: float

    @property
    def burst_bytes(self) -> int:
        """What may leave at once after idleness: the bucket's depth, but a few full packets."""
        return max(MIN_BURST_BYTES, round(self.rate_bps / 8 * self.depth_s))


@dataclass(frozen=True)
class Impairment:
    """What a link does to packets of each direction besides its rate.

    `delay_s` is how long each is held up, and `loss` the part of them that is lost.
    """

    delay_s: float = 0.0
    loss: float = 0.0

    def __bool__(self) -> bool:
        """Whether it does anything."""
        return self != UNIMPAIRED


UNIMPAIRED = Impairment()


def switch_depth_s(depth_s: float, rate_bps: int) -> float:
    """The depth in seconds for a link to or from a switch that is a process, at most `depth_s`."""
    return min(depth_s, SWITCH_BURST_BYTES * 8 / rate_bps)


def wire_bytes(payload_bytes: int) -> float:
    """What HTB counts for a TCP payload: full segments with their Ethernet headers."""
    segment = MTU_BYTES - TCP_IP_HEADER_BYTES
    return payload_bytes * (MTU_BYTES + ETHERNET_HEADER_BYTES) / segment
