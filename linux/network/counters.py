"""Interfaces, TCP counters, sockets and shapers' queues of a network namespace.

All but the queues are from /proc/PID/net (proc(5)). A dump of 500 queues takes 2 ms by one request
to the kernel, and a tenth of a second with a general parser: too much during a measurement.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from linux.network.netlink import NLM_F_DUMP, NetlinkSocket, attribute_places, places_in, request

# Columns of /proc/PID/net/dev behind the interface's name: bytes received and sent.
RECEIVED, SENT = 0, 8
# The state of a socket, in /proc/PID/net/tcp.
ESTABLISHED, LISTEN = "01", "0A"
RTM_NEWQDISC, RTM_GETQDISC = 36, 38
TCA_KIND, TCA_STATS = 1, 3
# struct tcmsg; struct tc_stats (linux/rtnetlink.h, gen_stats.h): bytes, packets, drops,
# overlimits, bps, pps, qlen, backlog.
TCMSG = struct.Struct("=BxxxiIII")
STATISTICS = struct.Struct("=QIIIIIII")
SHAPER = b"htb\0"


def parse_carried(text: str) -> dict[str, tuple[int, int]]:
    """Return received and sent bytes of each interface, from the text of /proc/PID/net/dev."""
    carried = {}
    for line in text.splitlines()[2:]:
        name, _, figures = line.partition(":")
        columns = figures.split()
        carried[name.strip()] = int(columns[RECEIVED]), int(columns[SENT])
    return carried


def retransmitted_segments(process_ids: Iterable[int]) -> list[int]:
    """Return the segments that the namespace of each process has retransmitted (RFC 4022)."""
    return [_counter(one, "snmp", "Tcp:", "RetransSegs") for one in process_ids]


def packets_out_of_order(process_ids: Iterable[int]) -> list[int]:
    """Return the packets that came before an earlier one in the namespace of each process."""
    return [_counter(one, "netstat", "TcpExt:", "TCPOFOQueue") for one in process_ids]


def _counter(process_id: int, file: str, group: str, name: str) -> int:
    """Return one counter: a group's first line has all names, the next one all values."""
    lines = Path(f"/proc/{process_id}/net/{file}").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith(group))
    return int(values[names.index(name)])


def listens(process_id: int, port: int) -> bool:
    """Whether anything in the network namespace of a process listens at a TCP port."""
    return LISTEN in _states(process_id, port)


def connections(process_id: int, port: int) -> int:
    """Count the connections to a TCP port, in the network namespace of a process."""
    return list(_states(process_id, port)).count(ESTABLISHED)


def _states(process_id: int, port: int) -> Iterator[str]:
    """Yield the states of all sockets with this local port."""
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process_id}/net/{name}").read_text().splitlines()[1:]:
            _, local_address, _, state, *_ = line.split()
            if local_address.endswith(f":{port:04X}"):
                yield state


@dataclass(frozen=True)
class Queue:
    """A shaper's queue at an interface: its backlog now, and its drops since creation."""

    interface: int
    backlog_bytes: int
    dropped_packets: int


def read_queues(netlink: NetlinkSocket) -> list[Queue]:
    """Read all shapers' queues of a network namespace."""
    asked = request(RTM_GETQDISC, NLM_F_DUMP, TCMSG.pack(0, 0, 0, 0, 0))
    return [queue for answer in netlink.dump(asked) for queue in parse_queues(answer)]


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
