"""Traffic generators, and the bytes that each adds to a transfer on the wire."""

from dataclasses import dataclass
from enum import StrEnum

from model.fabric.shaping import PACKET_HEADER_BYTES
from model.fabric.transport import ANSWER_BYTES, DEFAULT_ROCE, IMMEDIATE_BYTES, Roce

# The number and the length of a transfer travel with its payload, by the agents' protocol.
TRANSFER_HEADER_BYTES = 8
# A connection's SYN and its answer have 8 bytes of options more than other packets (RFC 9293: MSS
# 4, window scale 3, SACK permitted 2, with padding).
SYN_BYTES = 8
# The path MTU of InfiniBand that fits into Ethernet's 1500 bytes (InfiniBand Architecture
# Specification, volume 1, section 10.5.1: 256 to 4096).
PATH_MTU_BYTES = 1024
CRAFTED = Roce(mtu=PATH_MTU_BYTES)


class Generator(StrEnum):
    """The program that sends the transfers of a schedule."""

    AGENT = "agent"
    IPERF3 = "iperf3"
    SCAPY = "scapy"

    @property
    def is_timed(self) -> bool:
        """Whether its completion times are held against the model; crafted packets are slow."""
        return self is not Generator.SCAPY


@dataclass(frozen=True)
class Overhead:
    """Bytes beside a transfer's own, in packets without their TCP headers.

    `header` precedes each transfer; `confirmation` and `ready` come back, the latter in a
    rendezvous. `opening` and `answer` are the most that a pair of ranks sends forth and back
    outside transfers.
    """

    header: int = 0
    confirmation: int = 0
    ready: int = 0
    opening: int = SYN_BYTES
    answer: int = SYN_BYTES

    def forth(self, size_bytes: int, *, has_rendezvous: bool = False) -> int:
        """Bytes that a transfer of `size_bytes` puts on its path."""
        del has_rendezvous
        return size_bytes + self.header

    def back(self, size_bytes: int, *, has_rendezvous: bool) -> tuple[int, int]:
        """The least and the most bytes that come back for a transfer."""
        size = self.confirmation + self.ready * has_rendezvous
        return size, size


@dataclass(frozen=True)
class QueuePairs(Overhead):
    """Packets of RoCE, with other headers than TCP's: the difference counts as payload."""

    opening: int = 0
    answer: int = 0
    roce: Roce = DEFAULT_ROCE

    def forth(self, size_bytes: int, *, has_rendezvous: bool = False) -> int:
        """Bytes of all frames of a transfer, less a TCP header for each.

        Ready-to-receive is acknowledged on this path.
        """
        packets = self.roce.packets(size_bytes) + has_rendezvous
        frames = self.roce.wire_bytes(size_bytes) + has_rendezvous * ANSWER_BYTES
        return int(frames - PACKET_HEADER_BYTES * packets)

    def back(self, size_bytes: int, *, has_rendezvous: bool) -> tuple[int, int]:
        """The same of acknowledgements: at least one, at most one for each packet.

        Ready-to-receive is as long as an acknowledgement.
        """
        each = ANSWER_BYTES - PACKET_HEADER_BYTES
        packets = self.roce.packets(size_bytes) + has_rendezvous
        return int(each * packets), each * (1 + has_rendezvous)


class _CraftedPackets(Overhead):
    """Packets of RoCE without immediates, and without answers."""

    def forth(self, size_bytes: int, *, has_rendezvous: bool = False) -> int:
        """Bytes of all frames of a transfer, less a TCP header for each."""
        del has_rendezvous
        return QueuePairs(roce=CRAFTED).forth(size_bytes) - IMMEDIATE_BYTES


OVERHEADS = {
    # By the protocol in `traffic_gen/agents/agent.py`: beside the header a transfer's confirmation,
    # and its ready-to-receive message; the rank of the sender when a connection opens.
    Generator.AGENT: Overhead(
        TRANSFER_HEADER_BYTES, confirmation=4, ready=4, opening=4 + SYN_BYTES
    ),
    # It has a second connection for cookies, parameters and results: up to 3 kB of JSON each way.
    Generator.IPERF3: Overhead(opening=4096, answer=4096),
    Generator.SCAPY: _CraftedPackets(opening=0, answer=0),
}
