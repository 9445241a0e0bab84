"""Counters and queues of all links of a running fabric, read from another process.

A reading costs little: one file for the bytes of all links, as each ends at a switch, and one dump
for the queues of each namespace.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linux.machine.processor import idle_and_steal_s
from linux.network.counters import parse_carried
from linux.network.namespaces import namespace_of
from linux.network.netlink import NetlinkSocket, read_queues


@dataclass(frozen=True)
class Reading:
    """Bytes carried until `s` and bytes queued, both upward and then downward for each link.

    `dropped` counts packets; `idle_s` and `steal_s` are seconds of all cores together.
    """

    s: float
    carried: tuple[int, ...]
    queued: tuple[int, ...]
    dropped: int
    idle_s: float
    steal_s: float


class LinkReader:
    """Reads a fabric's links, of which `fabric` is the message of a run (`feed.fabric_message`)."""

    def __init__(self, fabric: Mapping[str, Any], sockets: Mapping[str, NetlinkSocket]) -> None:
        self._interfaces, self._sockets = fabric["interfaces"], sockets
        self._numbers = {(place, index): n for n, (place, index) in enumerate(fabric["ends"])}
        self._counters = Path(f"/proc/{fabric['process_ids']['']}/net/dev")

    def read(self) -> Reading:
        """Read everything once; raises `OSError` if the fabric is gone."""
        idle_s, steal_s = idle_and_steal_s(Path("/proc/stat").read_text())
        counters = parse_carried(self._counters.read_text())
        carried = [size for name in self._interfaces for size in counters.get(name, (0, 0))]
        queued, dropped = [0] * len(self._numbers), 0
        for place, netlink in self._sockets.items():
            for queue in read_queues(netlink):
                if (number := self._numbers.get((place, queue.interface))) is not None:
                    queued[number] = queue.backlog_bytes
                    dropped += queue.dropped_packets
        return Reading(time.monotonic(), tuple(carried), tuple(queued), dropped, idle_s, steal_s)


@contextmanager
def link_reader(fabric: Mapping[str, Any]) -> Iterator[LinkReader]:
    """Open a socket in each namespace of a fabric; release them when the context ends."""
    with ExitStack() as stack:
        sockets = {}
        for place, process_id in fabric["process_ids"].items():
            with namespace_of(process_id):
                sockets[place] = stack.enter_context(closing(NetlinkSocket()))
        yield LinkReader(fabric, sockets)
