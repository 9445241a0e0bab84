"""Packets of RoCEv2: RDMA WRITE with immediate, acknowledgements, congestion notifications.

Source: InfiniBand Architecture Specification, volume 1: section 9.2 (BTH, table 38 has the
opcodes), 9.3 (RETH, immediate), 9.7.5 (AETH), 7.8.1 (ICRC); annex A17 (RoCEv2). A part of the
agent: it needs only Python's standard library.
"""

import struct
import zlib
from dataclasses import dataclass
from functools import lru_cache
from socket import IPPROTO_UDP, inet_aton

# IANA, and annex A17: the UDP destination port of RoCEv2.
PORT = 4791
# Opcodes of a reliable connection; that of notifications is annex A17.9's.
FIRST, MIDDLE, LAST, LAST_IMMEDIATE, ONLY, ONLY_IMMEDIATE = 0x06, 0x07, 0x08, 0x09, 0x0A, 0x0B
SEND_ONLY_IMMEDIATE, ACKNOWLEDGE, CONGESTION_NOTIFICATION = 0x05, 0x11, 0x81
WITH_RETH = frozenset((FIRST, ONLY, ONLY_IMMEDIATE))
WITH_IMMEDIATE = frozenset((SEND_ONLY_IMMEDIATE, LAST_IMMEDIATE, ONLY_IMMEDIATE))
# Queue pairs 0 and 1 are for management (section 3.9.5).
FIRST_QUEUE_PAIR = 2
# Packet sequence numbers (PSN) have 24 bits; half of them may be under way (section 9.7.1).
PSN_COUNT = 1 << 24
# Source ports lie in the dynamic range (RFC 6335), one for each queue pair: the entropy by which
# switches choose among equal paths.
FIRST_SOURCE_PORT, SOURCE_PORTS = 49152, 16384
REMOTE_KEY, PARTITION_KEY = 0x1B, 0xFFFF
# Syndromes of the AETH (tables 44 and 45): an acknowledgement without end-to-end credits, and a NAK
# for a PSN that is not the expected one.
ACKNOWLEDGED, SEQUENCE_ERROR = 0x1F, 0x60

BTH, RETH, WORD = struct.Struct("!BBHII"), struct.Struct("!QII"), struct.Struct("!I")
ICRC_BYTES, NOTIFICATION = WORD.size, bytes(16)
# Headers of a frame in the middle of a message: Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4.
FRAME_BYTES = 58
IP, UDP = struct.Struct("!BBHHHBBH4s4s"), struct.Struct("!HHHH")
DONT_FRAGMENT, TIME_TO_LIVE = 0x4000, 64
CONGESTION_BITS_AT = 4  # of the BTH: FECN, BECN
MASKED = ((1, 1), (8, 1), (10, 2), (IP.size + 6, 2))
PADDING = (b"", b"\0", b"\0\0", b"\0\0\0")


@dataclass(slots=True)
class Packet:
    """A packet without its IP and UDP header; `psn` has 24 bits.

    `number` is the immediate, of the last packet of a message. `offset` is the address in the
    RETH, of the first one: the place of the message in the transfer, whose bytes are `length`.
    `syndrome` and `msn` are those of an AETH.
    """

    opcode: int
    queue_pair: int
    psn: int = 0
    ack_request: bool = False
    offset: int = 0
    length: int = 0
    number: int = 0
    syndrome: int = 0
    msn: int = 0
    payload: bytes | memoryview = b""

    @property
    def frame_bytes(self) -> int:
        """Bytes of the frame of data, headers and padding included."""
        extended = RETH.size * (self.opcode in WITH_RETH)
        extended += WORD.size * (self.opcode in WITH_IMMEDIATE)
        return FRAME_BYTES + extended + len(self.payload) + -len(self.payload) % WORD.size

    def header(self) -> bytes:
        """Return all headers before the payload."""
        opcode, padding = self.opcode, -len(self.payload) % 4
        # The notification of congestion has its own bit in the BTH: BECN.
        becn = 1 << 30 if opcode == CONGESTION_NOTIFICATION else 0
        words = becn | self.queue_pair, self.ack_request << 31 | self.psn
        header = BTH.pack(opcode, padding << 4, PARTITION_KEY, *words)
        if opcode in WITH_RETH:
            header += RETH.pack(self.offset, REMOTE_KEY, self.length)
        if opcode in WITH_IMMEDIATE:
            header += WORD.pack(self.number)
        elif opcode == ACKNOWLEDGE:
            header += WORD.pack(self.syndrome << 24 | self.msn)
        elif opcode == CONGESTION_NOTIFICATION:
            header += NOTIFICATION
        return header

    def parts(self, source: str, destination: str, port: int) -> tuple[bytes | memoryview, ...]:
        """Return the bytes behind the UDP header, as parts to send from a source port."""
        header, padding = self.header(), PADDING[-len(self.payload) % 4]
        size = len(header) + len(self.payload) + len(padding) + ICRC_BYTES
        crc = icrc(path_crc(source, destination, port, size), header, self.payload, padding)
        return header, self.payload, padding + crc


def read(content: bytes) -> Packet | None:
    """Read the bytes behind a UDP header, whose ICRC is right; `None` for packets of no use here.

    The payload is a view of the bytes.
    """
    if len(content) < BTH.size + ICRC_BYTES:
        return None
    opcode, flags, _key, queue_pair, psn = BTH.unpack_from(content)
    packet = Packet(opcode, queue_pair & 0xFFFFFF, psn & 0xFFFFFF, bool(psn >> 31))
    at, end = BTH.size, len(content) - ICRC_BYTES - (flags >> 4 & 3)
    try:
        if opcode in WITH_RETH:
            packet.offset, _, packet.length = RETH.unpack_from(content, at)
            at += RETH.size
        if opcode in WITH_IMMEDIATE:
            (packet.number,) = WORD.unpack_from(content, at)
            at += WORD.size
        elif opcode == ACKNOWLEDGE:
            (word,) = WORD.unpack_from(content, at)
            packet.syndrome, packet.msn = word >> 24, word & 0xFFFFFF
        elif opcode not in (FIRST, MIDDLE, LAST, ONLY, CONGESTION_NOTIFICATION):
            return None
    except struct.error:
        return None
    packet.payload = memoryview(content)[at:end]
    return packet


def headers_crc(headers: bytes) -> int:
    """Return the CRC so far of an IP and a UDP header, whose fields that switches change are 1.

    These are the type of service, the time to live and both checksums (annex A17.3.3); eight bytes
    of ones stand for the header of InfiniBand's own link layer.
    """
    masked = bytearray(headers)
    for place, count in MASKED:
        masked[place : place + count] = b"\xff" * count
    return zlib.crc32(b"\xff" * 8 + masked)


@lru_cache(maxsize=65536)
def path_crc(source: str, destination: str, source_port: int, size: int) -> int:
    """Return the CRC so far of the headers of a packet with `size` bytes behind its UDP header.

    The kernel gives packets that must not be fragmented the identification 0, if their socket is
    not connected (`ip_select_ident_segs` in include/net/ip.h).
    """
    length = UDP.size + size
    addresses = inet_aton(source), inet_aton(destination)
    fixed = 0x45, 0, IP.size + length, 0, DONT_FRAGMENT, TIME_TO_LIVE, IPPROTO_UDP, 0
    return headers_crc(IP.pack(*fixed, *addresses) + UDP.pack(source_port, PORT, length, 0))


def icrc(headers_crc: int, header: bytes, *rest: bytes | memoryview) -> bytes:
    """Return the invariant CRC of a packet; the congestion bits of the BTH count as ones."""
    at = CONGESTION_BITS_AT
    crc = zlib.crc32(header[:at] + b"\xff" + header[at + 1 :], headers_crc)
    for part in rest:
        crc = zlib.crc32(part, crc)
    return crc.to_bytes(ICRC_BYTES, "little")


def is_intact(content: bytes, headers_crc: int) -> bool:
    """Whether the bytes behind a UDP header end with their ICRC."""
    end = len(content) - ICRC_BYTES
    crc = icrc(headers_crc, content[: BTH.size], memoryview(content)[BTH.size : end])
    return crc == content[end:]
