"""The transfers of one rank, its connections, and the payloads that transfers carry.

A part of the agent: it needs only Python's standard library.
"""

import array
import collections
import itertools
import operator
import socket
from dataclasses import InitVar, dataclass, field
from typing import Any

SLICE_BYTES = 1024 * 1024
# Elements of a chunk repeat after this prime number of them.
PERIOD = 65_521
ZEROS, SCRATCH = memoryview(bytes(SLICE_BYTES)), memoryview(bytearray(SLICE_BYTES))


@dataclass(slots=True, eq=False)
class Send:
    """A transfer to a peer, or a step of compute; times in ns of CLOCK_MONOTONIC, 0 until known.

    The fields without a default are those of an entry in a program.
    """

    id: int
    peer: int
    size_bytes: int
    after: list[int]
    needs_ready: InitVar[bool]
    chunks: list[int]
    compute_ns: int
    processor: int
    turn: int
    missing: int = 0
    payload: memoryview | None = None
    # Over several queue pairs: where parts begin that have not left, how many are unconfirmed.
    unsent: set[int] | None = None
    unconfirmed: int = 0
    offset: int = 0
    released_ns: int = 0
    started_ns: int = 0
    sent_ns: int = 0
    confirmed_ns: int = 0

    def __post_init__(self, needs_ready: bool) -> None:
        self.missing = len(self.after) + needs_ready


@dataclass(slots=True, eq=False)
class Receive:
    """A transfer that this rank receives."""

    id: int
    peer: int
    size_bytes: int
    ready: int | None
    chunks: list[int]
    reduce: bool
    arrived_ns: int = 0
    received_bytes: int = 0
    content: bytearray = field(default_factory=bytearray)


class Outgoing:
    """The connection to one peer: transfers still to be written, and reply bytes not yet parsed.

    `unconfirmed` is the number of those that were written whole. `is_full` while the socket is
    polled for writing, as its buffer had no room.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.queue: collections.deque[Send] = collections.deque()
        self.header = self.unread = b""
        self.unconfirmed, self.is_full = 0, False

    def may_send(self, window: int) -> bool:
        """Whether a transfer is to be written, and fewer than a window are unconfirmed."""
        return bool(self.queue) and self.unconfirmed < window

    def send(self, payload: memoryview, *, ends: bool) -> int:
        """Write what is left of the header, and payload; return how much of the payload.

        If a transfer `ends` with the payload, so does a segment: none has bytes of two transfers,
        as no packet of RDMA has those of two messages.
        """
        flags = socket.MSG_EOR if ends else 0
        count = self.sock.sendmsg([self.header, payload], (), flags)
        written = max(0, count - len(self.header))
        self.header = self.header[count:]
        return written


class Incoming:
    """The connection from one peer, and the transfer that is arriving on it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.transfer: Receive | None = None
        self.header, self.payload = b"", bytearray()
        self.remaining, self.least_bytes, self.batch = 0, 1, 1


class Payloads:
    """Synthetic payloads: send zeros, discard received bytes."""

    zeros = ZEROS

    def outgoing(self, send: Send) -> memoryview:
        """Return the next bytes to send of a transfer."""
        return ZEROS[: send.size_bytes - send.offset]

    def whole(self, send: Send) -> memoryview:
        """Return all bytes of a transfer; a page of zeros takes no memory until it is written."""
        if send.size_bytes > len(self.zeros):
            self.zeros = memoryview(bytes(send.size_bytes))
        return self.zeros[: send.size_bytes]

    def receive(self, incoming: Incoming) -> int:
        """Receive and return a byte count; the kernel drops the bytes (tcp(7), MSG_TRUNC)."""
        return incoming.sock.recv_into(SCRATCH[: incoming.remaining], 0, socket.MSG_TRUNC)

    def arrived(self, receive: Receive, payload: bytearray) -> None:
        """Process a complete transfer; synthetic bytes need nothing."""

    def errors(self) -> list[str]:
        """Return the errors in the result; synthetic bytes have none."""
        return []


def contribution(ranks: list[int], chunk: int, count: int) -> "array.array[float]":
    """Return the sums of the elements that ranks contribute to a chunk; they are exact in a double.

    An element is a number of its rank, which no other has, and one that counts through the chunk;
    17 is a primitive root of the period.
    """
    base = sum(pow(17, rank + 1, PERIOD) for rank in ranks)
    numbers = range(base, base + len(ranks) * PERIOD, len(ranks))
    first = chunk * 104_729 % PERIOD
    repeated = itertools.chain(numbers[first:], itertools.cycle(numbers))
    return array.array("d", itertools.islice(repeated, count))


class CheckedPayloads(Payloads):
    """Real numbers: the chunks that a rank holds, and the result that it must hold in the end."""

    def __init__(self, rank: int, check: dict[str, Any]) -> None:
        self.elements, self.expected = check["elements"], check["expected"]
        self.chunks = {
            chunk: contribution([rank], chunk, self.elements[chunk]) for chunk in check["initial"]
        }

    def outgoing(self, send: Send) -> memoryview:
        """Return the next bytes to send of a transfer."""
        if send.payload is None:
            send.payload = self.whole(send)
        return send.payload[send.offset :]

    def whole(self, send: Send) -> memoryview:
        """Return all bytes of a transfer."""
        return memoryview(b"".join(self.chunks[chunk] for chunk in send.chunks))

    def receive(self, incoming: Incoming) -> int:
        """Receive into the payload buffer; return the number of bytes."""
        done = len(incoming.payload) - incoming.remaining
        return incoming.sock.recv_into(memoryview(incoming.payload)[done:])

    def arrived(self, receive: Receive, payload: bytearray) -> None:
        """Store the chunks of a complete transfer, or add them to those held (reduction)."""
        numbers = iter(array.array("d", payload))
        for chunk in receive.chunks:
            values = array.array("d", itertools.islice(numbers, self.elements[chunk]))
            if receive.reduce:
                values = array.array("d", map(operator.add, self.chunks[chunk], values))
            self.chunks[chunk] = values

    def errors(self) -> list[str]:
        """Return a sentence for each chunk that is missing or has a wrong element."""
        return [error for chunk, ranks in self.expected for error in self.check(chunk, ranks)]

    def check(self, chunk: int, ranks: list[int]) -> list[str]:
        """Compare a chunk with the sum of the contributions of `ranks`; return the first error."""
        held = self.chunks.get(chunk)
        if held is None:
            return [f"chunk {chunk} did not arrive"]
        expected = contribution(ranks, chunk, self.elements[chunk])
        if memoryview(held) == memoryview(expected):
            return []
        both = enumerate(zip(expected, held, strict=True))
        element, (must, got) = next(found for found in both if found[1][0] != found[1][1])
        return [f"chunk {chunk}, element {element}: must be {must}, got {got}"]
