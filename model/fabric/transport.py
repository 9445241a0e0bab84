"""The transport of what crosses NICs: TCP, or RoCEv2 (`traffic_gen/agents/roce/`), and its framing.

RDMA WRITE with immediate: InfiniBand Architecture Specification, volume 1, sections 9.2 to 9.4;
annex A17 (RoCEv2).
"""

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import gcd

from model.fabric.shaping import ETHERNET_HEADER_BYTES, MTU_BYTES, Sizes

IP_HEADER_BYTES, UDP_HEADER_BYTES, BTH_BYTES, RETH_BYTES, ICRC_BYTES = 20, 8, 12, 16, 4
IMMEDIATE_BYTES = AETH_BYTES = 4
# Payloads are padded to whole words (section 9.2.6).
WORD_BYTES = 4
# Headers of every packet; the first one of a message has the RETH, the last one the immediate.
HEADERS_BYTES = IP_HEADER_BYTES + UDP_HEADER_BYTES + BTH_BYTES + ICRC_BYTES
MESSAGE_BYTES = RETH_BYTES + IMMEDIATE_BYTES
ANSWER_BYTES = ETHERNET_HEADER_BYTES + HEADERS_BYTES + AETH_BYTES
# A notification of congestion has 16 reserved bytes (annex A17.9.3).
NOTIFICATION_BYTES = ETHERNET_HEADER_BYTES + HEADERS_BYTES + 16
# A receiver answers this many packets at once, and the last one of a message.
ACKNOWLEDGED_EVERY = 8
MTUS = (1024, 2048, 4096)
# Half of the 24-bit packet sequence numbers may be under way (section 9.7.1).
MOST_WINDOW = 1 << 23
MOST_QUEUE_PAIRS = MOST_ENTROPIES = 16
# Acknowledgements that are missing for 4.096 us times two to the power of `timeout` (section
# 9.7.6.1.3; ibv_modify_qp(3)).
TIMEOUT_UNIT_S, MOST_TIMEOUT, MOST_RETRIES = 4.096e-6, 31, 7


class Transport(StrEnum):
    """The transport between GPUs of different HB domains."""

    TCP = "tcp"
    ROCE = "roce"


class Congestion(StrEnum):
    """The congestion control of a queue pair: none but a window, by marks, by delay."""

    WINDOW = "window"
    DCQCN = "dcqcn"
    SWIFT = "swift"


class Recovery(StrEnum):
    """What a queue pair repeats: all from a lost packet on, or what is missing."""

    GO_BACK_N = "go-back-n"
    SELECTIVE_REPEAT = "selective-repeat"


@dataclass(frozen=True)
class Roce:
    """RoCEv2 between two GPUs: `queue_pairs` that take transfers in turn, or a part of each.

    `mtu` is the most payload of a packet in bytes, `window` the most packets of a queue pair that
    are sent and not acknowledged. A queue pair breaks when it has repeated `retries` times without
    progress, `timeout_s` of emulated time each; `None`: a round trip, with full queues.
    """

    mtu: int = 4096
    queue_pairs: int = 1
    split: bool = False
    congestion: Congestion = Congestion.WINDOW
    recovery: Recovery = Recovery.GO_BACK_N
    window: int = 32
    timeout_s: float | None = None
    retries: int = MOST_RETRIES

    @property
    def frame_bytes(self) -> int:
        """Bytes of the frame of a full packet in the middle of a message."""
        return ETHERNET_HEADER_BYTES + HEADERS_BYTES + self.mtu

    @property
    def link_mtu_bytes(self) -> int:
        """The longest IP packet that links must carry."""
        return max(MTU_BYTES, HEADERS_BYTES + MESSAGE_BYTES + self.mtu)

    @property
    def mean_packet_bytes(self) -> float:
        """Bytes of a mean packet of a long message, acknowledgements included."""
        answered = self.acknowledged_packets * self.frame_bytes + ANSWER_BYTES
        return answered / (self.acknowledged_packets + 1)

    @property
    def acknowledgement_share(self) -> float:
        """Bytes of acknowledgements for each byte of full packets."""
        return ANSWER_BYTES / (self.acknowledged_packets * self.frame_bytes)

    @property
    def acknowledged_packets(self) -> int:
        """The packets that an acknowledgement is for, the fewest while windows are full.

        The packet that fills a window asks for one, too: what an answer frees, the next one is for.
        """
        return gcd(ACKNOWLEDGED_EVERY, self.window)

    def parts(self, size_bytes: Sizes) -> list[Sizes]:
        """Return the sizes of the messages of each transfer; 0 where there is none."""
        count = self.queue_pairs if self.split else 1
        places = [size_bytes * number // count for number in range(count + 1)]
        return [end - begin for begin, end in pairwise(places)]

    def packets(self, size_bytes: Sizes) -> Sizes:
        """Return the number of packets of each transfer."""
        return sum(-(-part // self.mtu) for part in self.parts(size_bytes))

    def wire_bytes(self, size_bytes: Sizes) -> Sizes:
        """Return the bytes of all frames of each transfer, headers and padding included."""
        messages = sum(
            part + -part % WORD_BYTES + MESSAGE_BYTES * (part > 0)
            for part in self.parts(size_bytes)
        )
        return messages + (ETHERNET_HEADER_BYTES + HEADERS_BYTES) * self.packets(size_bytes)

    def last_bytes(self, size_bytes: Sizes) -> Sizes:
        """Return the bytes of the last frame of each transfer's largest message."""
        largest = -(-size_bytes // (self.queue_pairs if self.split else 1))
        payload = (largest - 1) % self.mtu + 1
        extended = IMMEDIATE_BYTES + RETH_BYTES * (largest <= self.mtu)
        return payload + -payload % WORD_BYTES + ETHERNET_HEADER_BYTES + HEADERS_BYTES + extended


DEFAULT_ROCE = Roce()
