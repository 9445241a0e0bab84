"""RDMA WRITE messages over RoCEv2, crafted by scapy; and the check of such packets.

No RDMA adapter receives them: the receivers check every byte by the invariant CRC (ICRC) that an
adapter would check. Source: InfiniBand Architecture Specification, volume 1, sections 9.2 to 9.4,
and annex A17.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

from model.fabric.transport import (
    BTH_BYTES,
    ICRC_BYTES,
    IP_HEADER_BYTES,
    RETH_BYTES,
    UDP_HEADER_BYTES,
)
from model.workload.generator import padding_bytes, payload_bytes
from traffic_gen.agents.roce.packets import (
    FIRST,
    FIRST_QUEUE_PAIR,
    FIRST_SOURCE_PORT,
    LAST,
    MIDDLE,
    ONLY,
    PSN_COUNT,
    REMOTE_KEY,
    RETH,
    SOURCE_PORTS,
    headers_crc,
    is_intact,
)
from traffic_gen.probes.packet import roce_packet

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
    if len(packet) < BTH_AT + BTH_BYTES + ICRC_BYTES:
        return None
    if not is_intact(packet[BTH_AT:], headers_crc(packet[:BTH_AT])):
        return None
    opcode, flags = packet[BTH_AT], packet[BTH_AT + 1]
    queue_pair, psn = (
        int.from_bytes(packet[BTH_AT + at : BTH_AT + at + 3], "big") for at in (5, 9)
    )
    begin = BTH_AT + BTH_BYTES + (RETH_BYTES if opcode in (FIRST, ONLY) else 0)
    end = len(packet) - ICRC_BYTES - (flags >> 4 & 3)
    return Received(queue_pair - FIRST_QUEUE_PAIR, psn, packet[begin:end])
