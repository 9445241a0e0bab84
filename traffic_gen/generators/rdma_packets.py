"""RDMA WRITE messages over RoCEv2, crafted by scapy; and the check of such packets.

No RDMA adapter receives them: the receivers check every byte by the invariant CRC (ICRC) that an
adapter would check. Source: InfiniBand Architecture Specification, volume 1, sections 9.2 to 9.4,
and annex A17.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

from model.workload.generator import (
    BTH_BYTES,
    ICRC_BYTES,
    IP_HEADER_BYTES,
    RETH_BYTES,
    UDP_HEADER_BYTES,
    padding_bytes,
    payload_bytes,
)
from traffic_gen.probes.packet import roce_packet

# Table 38: opcodes of a reliable connection.
FIRST, MIDDLE, LAST, ONLY = 0x06, 0x07, 0x08, 0x0A
# Source ports of RoCEv2 lie in the dynamic range (RFC 6335), one for each queue pair: the entropy
# by which switches choose among equal paths.
FIRST_SOURCE_PORT, SOURCE_PORTS = 49152, 16384
# Queue pairs 0 and 1 are for management (section 3.9.5).
FIRST_QUEUE_PAIR = 2
PSN_COUNT = 1 << 24
RETH = struct.Struct("!QII")
REMOTE_KEY = 0x1B
BTH_AT = IP_HEADER_BYTES + UDP_HEADER_BYTES


@dataclass
class QueuePair:
    """The connection from one GPU to another, and its next packet sequence number (PSN)."""

    source: IPv4Address
    destination: IPv4Address
    number: int
    next_psn: int = 0

    @property
    def source_port(self) -> int:
        """The UDP source port of all packets of the connection."""
        return FIRST_SOURCE_PORT + self.number % SOURCE_PORTS

    def message(self, content: bytes) -> Iterator[bytes]:
        """Yield the IP packets of an RDMA WRITE of these bytes; the last one asks for an answer."""
        sizes, at = payload_bytes(len(content)), 0
        many = [FIRST, *[MIDDLE] * (len(sizes) - 2), LAST]
        for opcode, size in zip(many if len(sizes) > 1 else [ONLY], sizes, strict=True):
            reth = RETH.pack(0, REMOTE_KEY, len(content)) if opcode in (FIRST, ONLY) else b""
            yield self._packet(opcode, reth, content[at : at + size])
            at += size

    def _packet(self, opcode: int, reth: bytes, payload: bytes) -> bytes:
        padding, psn = padding_bytes(len(payload)), self.next_psn
        self.next_psn = (psn + 1) % PSN_COUNT
        return roce_packet(
            self.source,
            self.destination,
            self.source_port,
            reth + payload + bytes(padding),
            opcode=opcode,
            padcount=padding,
            dqpn=FIRST_QUEUE_PAIR + self.number,
            ackreq=opcode in (LAST, ONLY),
            psn=psn,
        )


@dataclass(frozen=True)
class Received:
    """The fields that a receiver reads from a packet whose ICRC is right."""

    queue_pair: int
    psn: int
    payload: bytes


def read_packet(packet: bytes) -> Received | None:
    """Read a packet as it came, with its IP header; `None` unless its ICRC is right."""
    if len(packet) < BTH_AT + BTH_BYTES + ICRC_BYTES or packet[-ICRC_BYTES:] != icrc(packet):
        return None
    opcode, flags = packet[BTH_AT], packet[BTH_AT + 1]
    queue_pair, psn = (
        int.from_bytes(packet[BTH_AT + at : BTH_AT + at + 3], "big") for at in (5, 9)
    )
    begin = BTH_AT + BTH_BYTES + (RETH_BYTES if opcode in (FIRST, ONLY) else 0)
    end = len(packet) - ICRC_BYTES - (flags >> 4 & 3)
    return Received(queue_pair - FIRST_QUEUE_PAIR, psn, packet[begin:end])


def icrc(packet: bytes) -> bytes:
    """Compute a packet's ICRC (section 7.8.1, annex A17.3.3); fields that switches change are 1.

    These are the type of service, the time to live and both checksums, and the congestion bits of
    the BTH; eight bytes of ones stand for the header of InfiniBand's own link layer.
    """
    masked = bytearray(packet[:-ICRC_BYTES])
    for place, count in ((1, 1), (8, 1), (10, 2), (IP_HEADER_BYTES + 6, 2), (BTH_AT + 4, 1)):
        masked[place : place + count] = b"\xff" * count
    return zlib.crc32(b"\xff" * 8 + masked).to_bytes(ICRC_BYTES, "little")
