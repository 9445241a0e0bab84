"""The packets of an RDMA WRITE over RoCEv2, by which a transfer is replayed packet by packet.

Source: InfiniBand Architecture Specification, volume 1: sections 9.2 (BTH), 9.3.1 (RETH), 9.4.3
(RDMA WRITE), annex A17 (RoCEv2).
"""

from model.arrays import Ints

IP_HEADER_BYTES, UDP_HEADER_BYTES, BTH_BYTES, RETH_BYTES, ICRC_BYTES = 20, 8, 12, 16, 4
# The path MTU of InfiniBand that fits into Ethernet's 1500 bytes (section 10.5.1: 256 to 4096).
PATH_MTU_BYTES = 1024
# Payloads are padded to whole words (section 9.2.6).
WORD_BYTES = 4


def packets_of(size_bytes: Ints) -> Ints:
    """How many packets messages of these sizes have."""
    return -(-size_bytes // PATH_MTU_BYTES)


def payload_bytes(size_bytes: int) -> list[int]:
    """Payload bytes of each packet of a message: full ones, then the rest."""
    full, rest = divmod(size_bytes, PATH_MTU_BYTES)
    return [PATH_MTU_BYTES] * full + ([rest] if rest else [])


def padding_bytes(payload: int) -> int:
    """Bytes that pad a payload to whole words."""
    return -payload % WORD_BYTES


def packet_bytes(size_bytes: int) -> list[int]:
    """Bytes of each IP packet of a message; the first one has the RETH."""
    around = IP_HEADER_BYTES + UDP_HEADER_BYTES + BTH_BYTES + ICRC_BYTES
    payloads = payload_bytes(size_bytes)
    return [
        around + (RETH_BYTES if number == 0 else 0) + payload + padding_bytes(payload)
        for number, payload in enumerate(payloads)
    ]
