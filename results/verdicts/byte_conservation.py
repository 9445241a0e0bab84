"""Byte conservation: agents, links and switches against the schedule and the routing.

A link's two ends are one veth pair, of which the kernel counts each byte once (`veth_get_stats64`
in drivers/net/veth.c), so bytes sent by one end always equal bytes received by the other. Checked
are a switch's received against its sent bytes, and a link's bytes against the expected ones.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from model.fabric.health import Epoch
from model.fabric.shaping import ETHERNET_HEADER_BYTES, MTU_BYTES, wire_bytes
from model.fabric.topology import Hop, RankGpus
from model.measurement.records import Repeat
from model.routing.paths import Routing
from model.workload.schedule import Schedule
from results.verdicts.verdict import Reason, Verdict

SHOWN = 3
# An acknowledgement, at most one per segment: Ethernet 14, IPv4 20, TCP 20, timestamps 12.
ACKNOWLEDGEMENT_BYTES = 66
SEGMENT_BYTES = MTU_BYTES + ETHERNET_HEADER_BYTES
# Overhead of a transfer: header, confirmation and ready-to-receive, each a packet of its own with
# an acknowledgement; for the first transfer, also the connection's set-up.
TRANSFER_BYTES = 1000
# The controller's link probes, 60 bytes every 25 ms or more (`controller/detection/probes.py`),
# and as much again for other unscheduled traffic: the kernel's own packets.
CONTROL_BYTES_PER_S = 5000
CONTROL_BYTES = 20_000


@dataclass(frozen=True)
class Carried:
    """Bytes per link direction during a case; `seconds` includes the time between executions."""

    bytes: Mapping[Hop, int]
    seconds: float


def payload_reasons(schedule: Schedule, executions: Iterable[Repeat]) -> Iterator[Reason]:
    """Yield failures of ranks whose sent or received payload is not exactly the schedule's."""
    sent = Counter[int]()
    received = Counter[int]()
    for transfer in schedule.transfers:
        sent[transfer.source] += transfer.size_bytes
        received[transfer.destination] += transfer.size_bytes
    for repeat in executions:
        if repeat.complete and repeat.sent_bytes:
            yield from _differences(repeat.number, "sent", sent, repeat.sent_bytes)
            yield from _differences(repeat.number, "received", received, repeat.received_bytes)


def _differences(
    number: int, what: str, wanted: Mapping[int, int], found: tuple[int, ...]
) -> Iterator[Reason]:
    wrong = [rank for rank, size in enumerate(found) if size != wanted[rank]]
    others = f" (one of {len(wrong)} such ranks)" if len(wrong) > SHOWN else ""
    for rank in wrong[:SHOWN]:
        yield (
            Verdict.FAIL,
            f"execution {number}: rank {rank} {what} {found[rank]} bytes of payload, not the "
            f"{wanted[rank]} of the schedule{others}",
        )


@dataclass(frozen=True)
class Span:
    """The least and the most bytes that one direction of a link may carry."""

    least: float
    most: float


def spans(
    schedule: Schedule, epoch: Epoch, gpus: RankGpus, executions: int, extra_bytes: float
) -> dict[Hop, Span]:
    """Return for each link direction the least bytes, its payload, and the most, with overhead.

    Acknowledgements take the path of the reverse pair, which may use other links. `extra_bytes` of
    unscheduled traffic are allowed on each link direction.
    """
    routing = Routing(epoch.topology, epoch.health)
    payload, most = Counter[Hop](), dict[Hop, float]()
    for (source, destination), (size, count) in _pairs(schedule).items():
        there, back = gpus[source], gpus[destination]
        small = count * TRANSFER_BYTES
        for hop in routing.path_if_any(there, back) or ():
            payload[hop] += executions * size
            most[hop] = most.get(hop, 0.0) + executions * (wire_bytes(size) + small)
        acknowledgements = wire_bytes(size) / SEGMENT_BYTES * ACKNOWLEDGEMENT_BYTES
        for hop in routing.path_if_any(back, there) or ():
            most[hop] = most.get(hop, 0.0) + executions * (acknowledgements + small)
    hops = (Hop(link, p.node) for link in epoch.topology.links for p in (link.lower, link.upper))
    return {hop: Span(payload[hop], most.get(hop, 0.0) + extra_bytes) for hop in hops}


def _pairs(schedule: Schedule) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the payload bytes and the number of transfers of each pair of ranks."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for transfer in schedule.transfers:
        pair = transfer.source, transfer.destination
        size, count = found.get(pair, (0, 0))
        found[pair] = size + transfer.size_bytes, count + 1
    return found


def link_reasons(
    schedule: Schedule,
    epoch: Epoch,
    gpus: RankGpus,
    executions: Iterable[Repeat],
    carried: Carried,
) -> Iterator[Reason]:
    """Yield failures of links with other bytes than the routing explains, then of switches."""
    done = list(executions)
    control = CONTROL_BYTES + CONTROL_BYTES_PER_S * carried.seconds
    again = SEGMENT_BYTES * sum(repeat.retransmits for repeat in done)
    wanted = spans(schedule, epoch, gpus, len(done), control + again)
    wrong = [
        (hop, span, carried.bytes[hop])
        for hop, span in wanted.items()
        if hop.link.name not in epoch.health.failed
        and not span.least <= carried.bytes[hop] <= span.most
    ]
    for hop, span, found in wrong[:SHOWN]:
        yield (
            Verdict.FAIL,
            f"{hop.sender} -> {hop.receiver} carried {found} bytes, not {span.least:.0f} to "
            f"{span.most:.0f}: forwarding and prediction disagree ({len(wrong)} such links)",
        )
    yield from _switch_reasons(epoch, carried)


def _switch_reasons(epoch: Epoch, carried: Carried) -> Iterator[Reason]:
    """Yield reasons for switches that sent fewer bytes than they received, or more."""
    topology = epoch.topology
    for switch in chain(topology.hb_switches, topology.openflow_switches):
        links = topology.links_of(switch)
        came = sum(carried.bytes[Hop(link, link.other_end(switch))] for link in links)
        went = sum(carried.bytes[Hop(link, switch)] for link in links)
        control = (CONTROL_BYTES + CONTROL_BYTES_PER_S * carried.seconds) * len(links)
        if came - went > control:
            yield Verdict.WARN, f"{switch} lost bytes: {came} came in, {went} went out"
        elif went - came > control:
            yield Verdict.FAIL, f"{switch} made bytes: {came} came in, {went} went out"
