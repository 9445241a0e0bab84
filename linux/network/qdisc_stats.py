"""Backlog and drops of all shapers' queues of a network namespace, from one request.

A dump of 500 queues takes 2 ms this way, and a tenth of a second with a general parser: too much
during a measurement.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from linux.network.netlink import NLM_F_DUMP, NetlinkSocket, attribute_places, places_in, request

RTM_NEWQDISC, RTM_GETQDISC = 36, 38
TCA_KIND, TCA_STATS = 1, 3
# struct tcmsg; struct tc_stats (linux/rtnetlink.h, gen_stats.h): bytes, packets, drops,
# overlimits, bps, pps, qlen, backlog.
TCMSG = struct.Struct("=BxxxiIII")
STATISTICS = struct.Struct("=QIIIIIII")
REQUEST = request(RTM_GETQDISC, NLM_F_DUMP, TCMSG.pack(0, 0, 0, 0, 0))
SHAPER = b"htb\0"


@dataclass(frozen=True)
class Queue:
    """A shaper's queue at an interface: its backlog now, and its drops since creation."""

    interface: int
    backlog_bytes: int
    dropped_packets: int


def read_queues(netlink: NetlinkSocket) -> list[Queue]:
    """Read all shapers' queues of a network namespace."""
    return [queue for answer in netlink.dump(REQUEST) for queue in parse_queues(answer)]


def parse_queues(answer: bytes) -> Iterator[Queue]:
    """Yield the shapers' queues in one part of the kernel's answer."""
    for kind, begin, end in places_in(answer):
        if kind == RTM_NEWQDISC:
            places = attribute_places(answer, begin + TCMSG.size, end)
            attributes = {kind: place for kind, place, _ in places}
            if answer.startswith(SHAPER, attributes[TCA_KIND]) and TCA_STATS in attributes:
                interface = TCMSG.unpack_from(answer, begin)[1]
                figures = STATISTICS.unpack_from(answer, attributes[TCA_STATS])
                yield Queue(interface, backlog_bytes=figures[7], dropped_packets=figures[2])
