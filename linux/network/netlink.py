"""Direct access to rtnetlink(7): many requests in few calls, dumps and notifications as bytes.

A fabric of 256 GPUs takes some ten thousand requests. pyroute2 encodes them (`IPBatch`); sent one
at a time, each waiting for its answer, they took most of the fabric's start-up time. A failure
changes dozens of routes in dozens of namespaces at once: pyroute2 needs a third of a millisecond
for each, and four descriptors for each namespace.
"""

import errno
import os
import socket
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from linux.network.socket_options import SO_RCVBUFFORCE
from linux.processes.interruptions import uninterrupted
from model.errors import EmulationError

NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 1, 4, 0x300
# Metrics of a route (linux/rtnetlink.h): a bit for each locked one, TCP's least timeout in ms.
RTAX_LOCK, RTAX_RTO_MIN = 1, 13
# struct nlmsghdr, struct nlattr (linux/netlink.h).
HEADER = struct.Struct("=IHHII")
ATTRIBUTE = struct.Struct("=HH")
ERROR = struct.Struct("=i")
LINK = struct.Struct("=BxHiII")  # struct ifinfomsg
IFF_UP, IF_OPER_UP = 1, 6  # if.h: "up" in RFC 2863
IFLA_IFNAME, IFLA_OPERSTATE, IFLA_IFALIAS = 3, 16, 20
RTM_NEWLINK, RTM_GETLINK = 16, 18
RTM_NEWQDISC, RTM_GETQDISC = 36, 38
TCA_KIND, TCA_OPTIONS, TCA_STATS, TCA_XSTATS = 1, 2, 3, 4
TC_H_ROOT = 0xFFFF_FFFF
# struct tcmsg, struct tc_stats (linux/rtnetlink.h, gen_stats.h): bytes, packets, drops,
# overlimits, bps, pps, qlen, backlog.
TCMSG = struct.Struct("=BxxxiIII")
TC_STATS = struct.Struct("=QIIIIIII")
# struct tc_red_xstats (linux/pkt_sched.h): early, pdrop, other, marked.
RED_STATS = struct.Struct("=IIII")
# struct tc_netem_qopt: latency and limit, then the loss, 0 for none.
LOSS = struct.Struct("=8xI")
SHAPER, MARKING, LOSING = b"htb\0", b"red\0", b"netem\0"
# The upper half of the handles of the shaper and of its classes.
SHAPER_MAJOR = 1
# The alias (ip-link(8)) of an interface that is to be taken out of use before it goes down.
DRAINED = "railbed: drained"
BUFFER_BYTES = 1 << 18
# The answers to this many requests fit into a socket's receive buffer.
REQUESTS_A_CALL = 64
# A starting fabric causes thousands of notifications, faster than they are read.
NOTIFICATIONS_BUFFER_BYTES = 16 * 1024 * 1024
# For thousands of requests on a busy machine; as struct timeval.
ANSWER_S = 30
ANSWER_TIMEOUT = struct.pack("@ll", ANSWER_S, 0)


class Refused(EmulationError):
    """A request that the kernel refused, with the number of its error (errno(3))."""

    def __init__(self, what: str, number: int) -> None:
        super().__init__(f"{what}: refused by the kernel: {os.strerror(number)}")
        self.number = number


# A description for the error message if it fails, and the request: one netlink message.
Request = tuple[str, bytes]
# A message's type, and its payload.
Message = tuple[int, bytes]


class NetlinkSocket:
    """A socket in the network namespace in which it is created.

    `groups` are the multicast groups (a bit mask) whose notifications the socket receives.
    """

    def __init__(self, groups: int = 0) -> None:
        self.sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, ANSWER_TIMEOUT)
        if groups:
            size = NOTIFICATIONS_BUFFER_BYTES
            self.sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, size)
            self.sock.bind((0, groups))

    def close(self) -> None:
        """Close the socket, which releases its namespace."""
        self.sock.close()

    def send(self, requests: Iterable[Request], but_for: int = 0) -> None:
        """Send all requests in order; raises `Refused` for the first that failed.

        All must ask for an answer (NLM_F_ACK), as pyroute2's do. An error with the number `but_for`
        (errno(3)) is none.
        """
        left = iter(requests)
        while some := list(islice(left, REQUESTS_A_CALL)):
            codes: list[int] = []  # the kernel answers each request, in their order
            with uninterrupted():  # an answer left unread would be the next request's
                self.sock.send(b"".join(message for _, message in some))
                while len(codes) < len(some):
                    answer = self._answer()
                    places = (begin for kind, begin, _ in places_in(answer) if kind == NLMSG_ERROR)
                    codes += (ERROR.unpack_from(answer, begin)[0] for begin in places)
            for (what, _), code in zip(some, codes, strict=True):
                if code and -code != but_for:
                    raise Refused(what, -code)

    def _answer(self) -> bytes:
        try:
            return self.sock.recv(BUFFER_BYTES)
        except BlockingIOError:
            raise EmulationError(f"netlink: no answer within {ANSWER_S} s") from None

    def dump(self, asked: bytes) -> list[bytes]:
        """Send a dump request and return the parts of its answer."""
        with uninterrupted():  # the kernel refuses a request before the last dump was read
            return list(self._dump(asked))

    def _dump(self, asked: bytes) -> Iterator[bytes]:
        self.sock.send(asked)
        while True:
            answer = self._answer()
            yield answer
            for kind, begin, _ in places_in(answer):
                if kind == NLMSG_DONE:
                    return
                if kind == NLMSG_ERROR:
                    raise Refused("a dump", -ERROR.unpack_from(answer, begin)[0])

    def dumped(self, kind: int, body: bytes) -> Iterator[Message]:
        """Yield all replies to a dump request of type `kind`."""
        for answer in self.dump(request(kind, NLM_F_DUMP, body)):
            yield from (m for m in messages_in(answer) if m[0] not in (NLMSG_DONE, NLMSG_ERROR))

    def interfaces(self) -> Iterator[tuple[str, int, bool, str]]:
        """Yield name, index, state and alias of all interfaces, as `link_of` returns them."""
        body = LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        return (link_of(payload) for _, payload in self.dumped(RTM_GETLINK, body))

    def notifications(self) -> list[Message] | None:
        """Wait for the next notifications of the multicast groups, and return them.

        `None` if the socket's buffer overflowed (netlink(7), ENOBUFS): all queued notifications
        are dropped, and the caller must read the current state, which is newer.
        """
        try:
            return list(messages_in(self.sock.recv(BUFFER_BYTES)))
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
        self._drop_notifications()
        return None

    def _drop_notifications(self) -> None:
        while True:
            try:
                self.sock.recv(BUFFER_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise


def request(kind: int, flags: int, body: bytes) -> bytes:
    """A request of a type, with flags beside NLM_F_REQUEST."""
    return HEADER.pack(HEADER.size + len(body), kind, flags | NLM_F_REQUEST, 1, 0) + body


def taken_down(index: int) -> bytes:
    """A request to take an interface down, with an answer."""
    return request(RTM_NEWLINK, NLM_F_ACK, LINK.pack(socket.AF_UNSPEC, 0, index, 0, IFF_UP))


def places_in(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Each message's type, and where its payload begins and ends."""
    place = 0
    while place + HEADER.size <= len(data):
        length, kind, _flags, _sequence, _port = HEADER.unpack_from(data, place)
        yield kind, place + HEADER.size, place + length
        place += aligned(length)


def messages_in(data: bytes) -> Iterator[Message]:
    """Split a datagram into its messages."""
    for kind, begin, end in places_in(data):
        yield kind, data[begin:end]


def link_of(payload: bytes) -> tuple[str, int, bool, str]:
    """Name and index of an interface, whether it is up (RFC 2863), and alias, from RTM_NEWLINK.

    Carrier alone is not enough: a bridge forwards to a port only some time after it has carrier.
    """
    _family, _kind, index, flags, _change = LINK.unpack_from(payload)
    attributes = attributes_in(payload[LINK.size :])
    name = attributes[IFLA_IFNAME].rstrip(b"\0").decode()
    alias = attributes.get(IFLA_IFALIAS, b"").rstrip(b"\0").decode()
    return name, index, bool(flags & IFF_UP) and attributes[IFLA_OPERSTATE][0] == IF_OPER_UP, alias


def requests_in_batch(what: str, data: bytes) -> Iterator[Request]:
    """Yield the messages of a batch by pyroute2 as requests described by `what`."""
    for _, payload, end in places_in(data):
        begin = payload - HEADER.size
        yield what, data[begin : begin + aligned(end - begin)]


def attribute_places(data: bytes, place: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Each attribute's type, and where its value begins and ends."""
    while place + ATTRIBUTE.size <= end:
        length, kind = ATTRIBUTE.unpack_from(data, place)
        yield kind, place + ATTRIBUTE.size, place + length
        place += aligned(length)


def attributes_in(data: bytes) -> dict[int, bytes]:
    """The attributes after a message's fixed part, by type."""
    return {kind: data[begin:end] for kind, begin, end in attribute_places(data, 0, len(data))}


def attribute(kind: int, value: bytes) -> bytes:
    """Encode an attribute."""
    length = ATTRIBUTE.size + len(value)
    return ATTRIBUTE.pack(length, kind) + value + b"\0" * (aligned(length) - length)


def aligned(length: int) -> int:
    """Round a length up to a multiple of four bytes, as netlink pads."""
    return (length + 3) & ~3


@dataclass(frozen=True)
class Queue:
    """A shaper's queue at an interface: its backlog now, its drops and marks since creation.

    Packets that a lossy link loses on purpose are no drops.
    """

    interface: int
    backlog_bytes: int
    dropped_packets: int
    marked_packets: int = 0


def read_queues(netlink: NetlinkSocket) -> list[Queue]:
    """Read all shapers' queues of a network namespace.

    500 queues take 2 ms, and a tenth of a second with a general parser: too much during a
    measurement.
    """
    asked = request(RTM_GETQDISC, NLM_F_DUMP, TCMSG.pack(0, 0, 0, 0, 0))
    return parse_queues(netlink.dump(asked))


def parse_queues(answers: Iterable[bytes]) -> list[Queue]:
    """Return the shapers' queues, by the parts of the kernel's answer.

    A shaper counts all drops in it; where packets are lost, only those of the queues behind count.
    """
    shapers, lossy = dict[int, Sequence[int]](), set[int]()
    marked, behind = Counter[int](), Counter[int]()
    for answer in answers:
        for interface, parent, places in _queues_in(answer):
            kind, figures = places[TCA_KIND], TC_STATS.unpack_from(answer, places[TCA_STATS])
            if parent == TC_H_ROOT and answer.startswith(SHAPER, kind):
                shapers[interface] = figures
            elif answer.startswith(LOSING, kind):
                if any(LOSS.unpack_from(answer, places[TCA_OPTIONS])):
                    lossy.add(interface)
            elif parent >> 16 != SHAPER_MAJOR:
                behind[interface] += figures[2]
            if answer.startswith(MARKING, kind) and TCA_XSTATS in places:
                marked[interface] += RED_STATS.unpack_from(answer, places[TCA_XSTATS])[3]
    return [
        Queue(number, figures[7], behind[number] if number in lossy else figures[2], marked[number])
        for number, figures in shapers.items()
    ]


def _queues_in(answer: bytes) -> Iterator[tuple[int, int, dict[int, int]]]:
    """Yield each queue's interface, its parent, and where its attributes are; if it has counts."""
    for kind, begin, end in places_in(answer):
        if kind == RTM_NEWQDISC:
            _family, interface, _handle, parent, _info = TCMSG.unpack_from(answer, begin)
            places = attribute_places(answer, begin + TCMSG.size, end)
            attributes = {kind: place for kind, place, _ in places}
            if TCA_STATS in attributes:
                yield interface, parent, attributes
