"""Numbers of socket(7), packet(7) and the kernel's headers that Python has no names for."""

import socket
import struct

# A protocol: frames of every EtherType.
ETH_P_ALL = 0x0003
# The kind of a frame that leaves.
PACKET_OUTGOING = 4
SO_ATTACH_FILTER = 26
# Sizes of buffers, which may exceed the limits net.core.?mem_max.
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
# A struct timespec of CLOCK_REALTIME comes with each packet.
SO_TIMESTAMPNS = 35
SOL_PACKET, PACKET_STATISTICS, PACKET_IGNORE_OUTGOING = 263, 6, 23
STATISTICS = struct.Struct("=II")


def dropped_frames(packet_socket: socket.socket) -> int:
    """Return how many frames were dropped since the last call, as the socket's buffer was full."""
    counted = packet_socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, STATISTICS.size)
    return int(STATISTICS.unpack(counted)[1])
