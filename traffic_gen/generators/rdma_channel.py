"""RDMA WRITE messages over RoCEv2 on the channel of two ranks: crafted by scapy, checked, ordered.

No RDMA adapter receives them: the receivers check every byte by the invariant CRC (ICRC) that an
adapter would check. Source: InfiniBand Architecture Specification, volume 1, sections 9.2 to 9.4,
and annex A17.
"""

import random
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from model.fabric.transport import IP_HEADER_BYTES, UDP_HEADER_BYTES, WORD_BYTES
from model.workload.generator import PATH_MTU_BYTES
from model.workload.transfers.columns import Transfer
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
    Packet,
    headers_crc,
    is_intact,
    read,
)
from traffic_gen.probes.packet import roce_packet

Pair = tuple[int, int]
BTH_AT = IP_HEADER_BYTES + UDP_HEADER_BYTES
# Packets of a pair in flight: few enough that no queue is ever full.
WINDOW_PACKETS = 8


def content(transfer: Transfer) -> bytes:
    """The content of a transfer, different from that of any other transfer."""
    return random.Random(transfer.id).randbytes(transfer.size_bytes)


def read_packet(packet: bytes) -> Packet | None:
    """Read a packet as it came, with its IP header; `None` unless its ICRC is right."""
    headers, rest = packet[:BTH_AT], packet[BTH_AT:]
    received = read(rest)
    return received if received and is_intact(rest, headers_crc(headers)) else None


@dataclass
class Channel:
    """The queue pair of two ranks, by a `number`: packets to send, and those that have arrived."""

    pair: Pair
    source: IPv4Address
    destination: IPv4Address
    number: int
    transfers: deque[Transfer] = field(default_factory=deque)
    sent_packets: int = 0
    sent_bytes: int = 0
    received_packets: int = 0
    received_bytes: int = 0
    reordered: int = 0
    sent_ns: dict[int, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    _crafted_psn: int = 0
    _unsent: deque[tuple[int, deque[bytes]]] = field(default_factory=deque)
    _next_psn: int = 0
    _early: dict[int, bytes | memoryview] = field(default_factory=dict)
    _arriving: bytearray = field(default_factory=bytearray)

    @property
    def queue_pair(self) -> int:
        """The number that packets carry."""
        return FIRST_QUEUE_PAIR + self.number

    @property
    def source_port(self) -> int:
        """The UDP source port of all packets."""
        return FIRST_SOURCE_PORT + self.number % SOURCE_PORTS

    def start(self, transfer: Transfer) -> None:
        """Craft the packets of a transfer, and queue them behind the earlier ones."""
        self.transfers.append(transfer)
        self._unsent.append((transfer.id, deque(self.message(content(transfer)))))
        self.sent_bytes += transfer.size_bytes

    def message(self, data: bytes) -> Iterator[bytes]:
        """Yield the IP packets of an RDMA WRITE of these bytes; the last one asks for an answer."""
        payloads = [data[at : at + PATH_MTU_BYTES] for at in range(0, len(data), PATH_MTU_BYTES)]
        many = [FIRST, *[MIDDLE] * (len(payloads) - 2), LAST]
        for opcode, payload in zip(many if len(payloads) > 1 else [ONLY], payloads, strict=True):
            reth = RETH.pack(0, REMOTE_KEY, len(data)) if opcode in (FIRST, ONLY) else b""
            yield self._packet(opcode, reth, payload)

    def _packet(self, opcode: int, reth: bytes, payload: bytes) -> bytes:
        padding, psn = -len(payload) % WORD_BYTES, self._crafted_psn
        self._crafted_psn = (psn + 1) % PSN_COUNT
        return roce_packet(
            self.source,
            self.destination,
            self.source_port,
            reth + payload + bytes(padding),
            opcode=opcode,
            padcount=padding,
            dqpn=self.queue_pair,
            ackreq=opcode in (LAST, ONLY),
            psn=psn,
        )

    def next_packet(self) -> bytes | None:
        """Take the next packet, if there is one and the window has room."""
        if not self._unsent or self.sent_packets - self.received_packets >= WINDOW_PACKETS:
            return None
        transfer_id, packets = self._unsent[0]
        packet = packets.popleft()
        self.sent_packets += 1
        if not packets:
            self._unsent.popleft()
            self.sent_ns[transfer_id] = time.monotonic_ns()
        return packet

    def receive(self, packet: Packet) -> list[Transfer]:
        """Take a packet; return the transfers that are whole now.

        Packets wait for those before them, as at a receiver of a reliable connection: veth(4) may
        reorder two packets when the thread that sends them changes its core.
        """
        ahead = (packet.psn - self._next_psn) % PSN_COUNT
        if ahead >= WINDOW_PACKETS or packet.psn in self._early:
            self.errors.append(f"duplicate packet {packet.psn}")
            return []
        self.received_packets += 1
        self.received_bytes += len(packet.payload)
        self.reordered += ahead > 0
        self._early[packet.psn] = packet.payload
        while (payload := self._early.pop(self._next_psn, None)) is not None:
            self._arriving += payload
            self._next_psn = (self._next_psn + 1) % PSN_COUNT
        return list(self._whole())

    def _whole(self) -> Iterator[Transfer]:
        """Yield the transfers whose bytes have all arrived; wrong bytes are noted as errors."""
        while self.transfers and len(self._arriving) >= self.transfers[0].size_bytes:
            transfer = self.transfers.popleft()
            if self._arriving[: transfer.size_bytes] != content(transfer):
                self.errors.append(f"transfer {transfer.id}: received bytes differ from those sent")
            del self._arriving[: transfer.size_bytes]
            yield transfer
