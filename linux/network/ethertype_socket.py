"""Packet sockets for the frames of one EtherType, in any datapath.

A socket bound to an EtherType is served after the receive handler of its interface. A port of the
kernel's Open vSwitch datapath has a handler that takes every frame, so nothing would arrive.
Sockets for all protocols are served before it (packet(7)); a filter drops all other EtherTypes.

Where there are many such sockets, each is bound to one interface: Linux before 6.15 offers each
frame of all namespaces to every socket for all protocols that is bound to none.
"""

import ctypes
import socket
import struct

ETH_P_ALL = 0x0003
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23
SO_ATTACH_FILTER = 26
# Classic BPF (linux/filter.h): code, jump if true, jump if false, operand.
INSTRUCTION = struct.Struct("HBBI")
LOAD_HALF_WORD, JUMP_IF_EQUAL, RETURN = 0x28, 0x15, 0x06
ETHERTYPE_OFFSET = 12
WHOLE_FRAME = 0xFFFF


def ethertype_socket(ethertype: int, interface: str | None = None) -> socket.socket:
    """Open a socket that receives frames of this EtherType, on one interface of the namespace.

    Without `interface`, it receives them on all. Raises `OSError` if there is no such interface.
    """
    protocol = 0 if interface else socket.htons(ETH_P_ALL)
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, protocol)
    opened.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    _attach_filter(opened, ethertype)
    opened.setblocking(False)
    if interface:
        opened.bind((interface, ETH_P_ALL))
    else:
        _discard(opened)
    return opened


def _attach_filter(opened: socket.socket, ethertype: int) -> None:
    """Let the kernel drop frames of all other EtherTypes before they are queued."""
    instructions = (
        INSTRUCTION.pack(LOAD_HALF_WORD, 0, 0, ETHERTYPE_OFFSET),
        INSTRUCTION.pack(JUMP_IF_EQUAL, 0, 1, ethertype),
        INSTRUCTION.pack(RETURN, 0, 0, WHOLE_FRAME),
        INSTRUCTION.pack(RETURN, 0, 0, 0),
    )
    code = ctypes.create_string_buffer(b"".join(instructions))
    # struct sock_fprog: the number of instructions, and their address.
    program = struct.pack("HP", len(instructions), ctypes.addressof(code))
    opened.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


def _discard(opened: socket.socket) -> None:
    """Drop the frames that were queued before the filter was attached."""
    while True:
        try:
            opened.recv(1)
        except BlockingIOError:
            return
