"""Direct access to rtnetlink(7): many requests in few calls, and dumps without parsing.

A fabric of 256 GPUs takes some ten thousand requests. pyroute2 encodes them (`IPBatch`); sent one
at a time, each waiting for its answer, they took most of the fabric's start-up time.
"""

import os
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from model.errors import EmulationError

NLMSG_ERROR, NLMSG_DONE = 2, 3
# struct nlmsghdr (linux/netlink.h).
HEADER = struct.Struct("=IHHII")
ERROR = struct.Struct("=i")
BUFFER_BYTES = 1 << 18
# The answers to this many requests fit into a socket's receive buffer.
REQUESTS_A_CALL = 64

# A description for the error message if it fails, and the request: one netlink message.
Request = tuple[str, bytes]


class NetlinkSocket:
    """A socket in the network namespace in which it is created."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, requests: Iterable[Request]) -> None:
        """Send all requests in order; raises `EmulationError` for the first that failed.

        All must ask for an answer (NLM_F_ACK), as pyroute2's do.
        """
        left = iter(requests)
        while some := list(islice(left, REQUESTS_A_CALL)):
            self._socket.send(b"".join(message for _, message in some))
            self._check(some)

    def _check(self, requests: Sequence[Request]) -> None:
        """Read the kernel's answers, one for each request and in their order."""
        codes: list[int] = []
        while len(codes) < len(requests):
            answer = self._socket.recv(BUFFER_BYTES)
            places = (begin for kind, begin, _ in messages(answer) if kind == NLMSG_ERROR)
            codes += (ERROR.unpack_from(answer, begin)[0] for begin in places)
        for (what, _), code in zip(requests, codes, strict=True):
            if code:
                raise EmulationError(f"{what}: the kernel refuses: {os.strerror(-code)}")

    def dump(self, request: bytes) -> Iterator[bytes]:
        """Send a dump request and yield the parts of its answer."""
        self._socket.send(request)
        while True:
            answer = self._socket.recv(BUFFER_BYTES)
            yield answer
            if any(kind in (NLMSG_DONE, NLMSG_ERROR) for kind, _, _ in messages(answer)):
                return


def messages(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Each message's type, and where its payload begins and ends."""
    place = 0
    while place + HEADER.size <= len(data):
        length, kind, _flags, _sequence, _port = HEADER.unpack_from(data, place)
        yield kind, place + HEADER.size, place + length
        place += aligned(length)


def split(what: str, data: bytes) -> Iterator[Request]:
    """Yield the messages of a batch by pyroute2 as requests described by `what`."""
    for _, payload, end in messages(data):
        begin = payload - HEADER.size
        yield what, data[begin : begin + aligned(end - begin)]


def aligned(length: int) -> int:
    """Round a length up to a multiple of four bytes, as netlink pads."""
    return (length + 3) & ~3
