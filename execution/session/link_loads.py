"""The present loads of the links of a running fabric."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from linux.network.counters import read_queues
from model.fabric.health import Health
from model.fabric.topology import Hop, Port
from testbed.testbed import Testbed


@dataclass(frozen=True)
class LinkLoad:
    """One direction of a link: bits per second carried, their share of its rate, its backlog."""

    hop: Hop
    carried_bps: float
    use: float
    backlog_bytes: int


def link_loads(bed: Testbed, health: Health, seconds: float) -> list[LinkLoad]:
    """Watch all links for some seconds; the backlog is that at the end."""
    begun_s, before = time.monotonic(), bed.links.read_counters().counters
    time.sleep(seconds)
    after, elapsed_s = bed.links.read_counters().counters, time.monotonic() - begun_s
    backlogs, loads = _backlogs(bed), []
    for link in bed.topology.links:
        old, new = before[link.name], after[link.name]
        upward = new.received_bytes - old.received_bytes
        downward = new.sent_bytes - old.sent_bytes
        for end, size_bytes in ((link.lower, upward), (link.upper, downward)):
            hop, carried_bps = Hop(link, end.node), size_bytes * 8 / elapsed_s
            use = carried_bps / health.rate_bps(hop)
            loads.append(LinkLoad(hop, carried_bps, use, backlogs.get(end, 0)))
    return loads


def _backlogs(bed: Testbed) -> dict[Port, int]:
    """Bytes in the queue of each end of a link."""
    ports = {bed.links.key_of(port): port for port in _ports(bed)}
    return {
        ports[place, queue.interface]: queue.backlog_bytes
        for place, netlink in bed.links.sockets.items()
        for queue in read_queues(netlink)
        if (place, queue.interface) in ports
    }


def _ports(bed: Testbed) -> Iterator[Port]:
    for link in bed.topology.links:
        yield from (port for port in (link.lower, link.upper) if port.node not in bed.links.lost)
