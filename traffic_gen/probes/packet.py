"""Packets of RoCEv2 shape: IPv4, UDP, an InfiniBand base transport header (BTH).

They probe a fabric; no RDMA adapter receives them. Source: InfiniBand Architecture Specification,
volume 1, annex A17 (RoCEv2), and its section 9.2 (BTH).
"""

import logging
from ipaddress import IPv4Address
from typing import Any

from model.fabric.shaping import ACKNOWLEDGEMENT_BELOW_BYTES
from model.fabric.transport import BTH_BYTES, ICRC_BYTES, IP_HEADER_BYTES, UDP_HEADER_BYTES
from traffic_gen.agents.roce.packets import PORT

# Agents receive at `PORT`: probes have ports of their own, in the foreground and behind it.
PROBE_PORT, BACKGROUND_PORT = PORT + 1, PORT + 2
# The packet sequence number (PSN) is the BTH's last three bytes, in network order.
PSN_BYTES = 3
PSN_OFFSET = IP_HEADER_BYTES + UDP_HEADER_BYTES + BTH_BYTES - PSN_BYTES
UD_SEND_ONLY = 0x64  # unreliable datagram: no acknowledgements

SHORTEST_BYTES = IP_HEADER_BYTES + UDP_HEADER_BYTES + BTH_BYTES + ICRC_BYTES
# The shortest IP packet that the shapers queue with the data, not with acknowledgements.
DATA_CLASS_BYTES = ACKNOWLEDGEMENT_BELOW_BYTES


def probe_packet(
    source: IPv4Address,
    destination: IPv4Address,
    source_port: int,
    size_bytes: int = SHORTEST_BYTES,
    port: int = PROBE_PORT,
) -> bytes:
    """Build an IPv4 packet to UDP `port` with the PSN 0.

    A sender may write another PSN at `PSN_OFFSET`: no receiver checks the invariant CRC at the end.
    The shortest packet travels in the shapers' class for small packets, past queues of data; one of
    `DATA_CLASS_BYTES` waits in them.
    """
    filling = bytes(size_bytes - SHORTEST_BYTES)
    return roce_packet(source, destination, source_port, filling, port, opcode=UD_SEND_ONLY, psn=0)


def roce_packet(
    source: IPv4Address,
    destination: IPv4Address,
    source_port: int,
    content: bytes,
    port: int = PORT,
    **fields: Any,
) -> bytes:
    """Build an IPv4 packet with a BTH of these fields, and with the content behind it.

    The UDP checksum is 0 (none), as annex A17 advises. Importing scapy takes a third of a second,
    so it is imported here, only when needed.
    """
    logging.getLogger("scapy").setLevel(logging.ERROR)
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import IP, UDP

    ip = IP(src=str(source), dst=str(destination), flags="DF")
    udp = UDP(sport=source_port, dport=port, chksum=0)
    return bytes(ip / udp / BTH(**fields) / content)
