"""Byte conservation: agents, links and switches against the schedule and the routing.

A link's two ends are one veth pair, of which the kernel counts each byte once (`veth_get_stats64`
in drivers/net/veth.c), so bytes sent by one end always equal bytes received by the other. Checked
are a switch's received against its sent bytes, and a link's bytes against the expected ones.

The kernel counts packets, too, and segments that travel as one packet have one header. So a link's
bytes, less a header for each packet, are its payload, acknowledgements included, to the byte.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from model.fabric.health import Epoch
from model.fabric.shaping import PACKET_HEADER_BYTES, TCP_IP_HEADER_BYTES
from model.fabric.spec import FabricSpec
from model.fabric.topology import Hop, RankGpus
from model.fabric.transport import ANSWER_BYTES, NOTIFICATION_BYTES, Transport
from model.measurement.records import Repeat
from model.routing.paths import Routing
from model.workload.generator import OVERHEADS, Generator, Overhead, QueuePairs
from model.workload.schedule import Steps
from results.verdicts.verdict import Reason, Verdict

# An answer of RoCE is so much shorter than TCP's header, a notification so much longer.
SHORT_BYTES = PACKET_HEADER_BYTES - ANSWER_BYTES
LONG_BYTES = NOTIFICATION_BYTES - PACKET_HEADER_BYTES

# The ranks of source and destination, and the lane.
Way = tuple[int, int, int]
SHOWN = 3
# Most bytes that selective acknowledgements add to a packet: three blocks beside timestamps (RFC
# 2018, section 3).
SELECTIVE_BYTES = 28
# Most bytes that a retransmitted segment adds beside itself, or a packet that came before an
# earlier one: on the way back selective acknowledgements of itself and of what it overtook, a send
# buffer of 128 KiB in packets of six segments.
ACKNOWLEDGED_BYTES = SELECTIVE_BYTES * 16


@dataclass(frozen=True)
class Span:
    """The least and the most bytes of payload that one direction of a link may carry."""

    least: float
    most: float


NOTHING = Span(0, 0)


@dataclass(frozen=True)
class Carried:
    """Bytes and packets per link direction between two readings of the links' counters.

    `before_ns` and `after_ns` are the begin and end of each reading. `probed` has the payload of
    the background probes on a link: at least that of the probes between the readings; at most also
    that of probes under way during a reading, and of lost probes.
    """

    bytes: Mapping[Hop, int]
    packets: Mapping[Hop, int]
    before_ns: tuple[int, int]
    after_ns: tuple[int, int]
    probed: Mapping[Hop, Span] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The time in which the counted bytes have passed; both readings are within it."""
        return (self.after_ns[1] - self.before_ns[0]) / 1e9

    def payload(self, hop: Hop) -> int:
        """Bytes of all packets without their headers, each taken to be as long as TCP's."""
        return self.bytes[hop] - PACKET_HEADER_BYTES * self.packets[hop]


def payload_reasons(schedule: Steps, executions: Iterable[Repeat]) -> Iterator[Reason]:
    """Yield failures of ranks whose sent or received payload is not exactly the schedule's."""
    sent, received = Counter[int](), Counter[int]()
    for transfer in schedule.transfers:
        sent[transfer.source] += transfer.size_bytes
        received[transfer.destination] += transfer.size_bytes
    for repeat in executions:
        if not (repeat.complete and repeat.sent_bytes):
            continue
        for what, wanted, counted in (
            ("sent", sent, repeat.sent_bytes),
            ("received", received, repeat.received_bytes),
        ):
            wrong = [rank for rank, size in enumerate(counted) if size != wanted[rank]]
            others = f" (one of {len(wrong)} such ranks)" if len(wrong) > SHOWN else ""
            for rank in wrong[:SHOWN]:
                who = f"execution {repeat.number}: rank {rank} {what} {counted[rank]} bytes"
                must = f"must be the {wanted[rank]} of the schedule{others}"
                yield Verdict.FAIL, f"{who} of payload, {must}"


@dataclass(frozen=True)
class Irregular:
    """Segments that each rank retransmitted, and packets that it received out of order.

    `notifications` are those of congestion, on the way from the receiver to the sender of data.
    """

    retransmitted: Counter[int] = field(default_factory=Counter)
    out_of_order: Counter[int] = field(default_factory=Counter)
    notifications: Counter[Way] = field(default_factory=Counter)

    @classmethod
    def of(cls, executions: Iterable[Repeat]) -> "Irregular":
        """Return the sums over all executions."""
        sums = cls()
        for repeat in executions:
            sums.retransmitted.update(dict(enumerate(repeat.retransmitted)))
            sums.out_of_order.update(dict(enumerate(repeat.out_of_order)))
            counts = defaultdict[tuple[Way, int], list[int]](list)
            for one in repeat.queue_pairs:
                back = one.destination, one.source, one.lane
                counts[back, one.queue_pair].append(one.notifications)
            for (back, _), values in counts.items():
                sums.notifications[back] += max(values) - min(values)
        return sums

    def missed(self, receivers: Iterable[int]) -> int:
        """Return the segments for which these ranks had no acknowledgement in time."""
        return sum(self.retransmitted[rank] for rank in receivers)

    def most_bytes(
        self, senders: Iterable[int], receivers: Iterable[int], each: int, packets: int
    ) -> int:
        """Return the most bytes that they add on a link from these ranks to these.

        `each` is the most payload of a packet, `packets` the number of packets on the link.
        """
        again = sum(self.retransmitted[rank] for rank in senders)
        missed = self.missed(receivers) + sum(self.out_of_order[rank] for rank in senders)
        return each * again + min(ACKNOWLEDGED_BYTES * missed, SELECTIVE_BYTES * packets)


def spans(
    schedule: Steps,
    epoch: Epoch,
    gpus: RankGpus,
    executions: int,
    carried: Carried,
    irregular: Irregular,
    overhead: Overhead = OVERHEADS[Generator.AGENT],
) -> dict[Hop, Span]:
    """Return for each link direction the bytes of payload that the routing puts on it.

    Confirmations take the path of the reverse pair, which may use other links. Other traffic makes
    it a range: packets take several paths evenly but for one of a message, transfers any of several
    queue pairs, notifications of congestion any path, connections may have been open before, each
    rank may have exchanged its irregular packets with any other one, and a link may have counted a
    background probe before or after a reading. Link probes are as long as the header that is
    subtracted.
    """
    routing = Routing(epoch.topology, epoch.health)
    ranks = set(irregular.retransmitted + irregular.out_of_order)
    sure, more = Counter[Hop](), Counter[Hop]()
    senders, receivers = defaultdict[Hop, set[int]](set), defaultdict[Hop, set[int]](set)
    spec = epoch.topology.spec
    sent, spare, opening, messages = _exchanged(schedule, overhead, spec, gpus)
    each = spec.link_mtu_bytes - TCP_IP_HEADER_BYTES
    for way, size_bytes in sent.items():
        sender, receiver, lane = way
        paths = (
            routing.path_if_any(gpus[sender], gpus[receiver].by(lane), number) or ()
            for number in range(spec.entropies)
        )
        for hop, times in Counter(chain(*paths)).items():
            whole, slack = executions * size_bytes, 0
            if times < spec.entropies:
                uneven = spec.roce.frame_bytes * messages[way] * executions
                slack = uneven if spec.turns == 1 else abs(whole)
            sure[hop] += whole * times // spec.entropies - slack
            more[hop] += 2 * slack + executions * spare[way] + opening[way]
            more[hop] += LONG_BYTES * irregular.notifications[way]
            if sender in ranks or receiver in ranks:
                senders[hop].add(sender)
                receivers[hop].add(receiver)
    hops = (Hop(link, p.node) for link in epoch.topology.links for p in (link.lower, link.upper))
    explained: dict[Hop, Span] = {}
    for hop in hops:
        probes = carried.probed.get(hop, NOTHING)
        odd = irregular.most_bytes(senders[hop], receivers[hop], each, carried.packets[hop])
        # By RoCE, a packet whose answer was lost is answered again.
        answered = irregular.missed(receivers[hop]) * (spec.transport is Transport.ROCE)
        least = sure[hop] + (probes.least - SHORT_BYTES * answered)
        explained[hop] = Span(least, sure[hop] + (probes.most + more[hop] + odd))
    return explained


def _exchanged(
    schedule: Steps, overhead: Overhead, spec: FabricSpec, gpus: RankGpus
) -> tuple[Counter[Way], ...]:
    """Return the least bytes from each rank to each other, and the most beside these.

    The first two are of transfers in one execution, and of the answers to them; the third of
    connections that open. The last counts transfers, and those that are answered.
    """
    sent, spare, opening, messages = (Counter[Way]() for _ in range(4))
    by_nic = QueuePairs(roce=spec.roce) if spec.transport is Transport.ROCE else overhead
    overheads = dict[Way, Overhead]()
    for transfer in schedule.transfers:
        source, destination, lane = there = transfer.source, transfer.destination, transfer.lane
        back = destination, source, lane
        crosses = gpus[source].domain != gpus[destination].domain
        used = overheads[there] = by_nic if crosses else overhead
        size_bytes, has_rendezvous = transfer.size_bytes, transfer.ready is not None
        sent[there] += used.forth(size_bytes, has_rendezvous=has_rendezvous)
        least, most = used.back(size_bytes, has_rendezvous=has_rendezvous)
        sent[back] += least
        spare[back] += most - least
        messages.update((there, back))
    for (source, destination, lane), used in overheads.items():
        opening[source, destination, lane] += used.opening
        opening[destination, source, lane] += used.answer
    return sent, spare, opening, messages


def link_reasons(
    schedule: Steps,
    epoch: Epoch,
    gpus: RankGpus,
    executions: Iterable[Repeat],
    carried: Carried,
    overhead: Overhead = OVERHEADS[Generator.AGENT],
) -> Iterator[Reason]:
    """Yield failures of links whose bytes the routing does not explain, then of switches."""
    done = list(executions)
    irregular = Irregular.of(done)
    wanted = spans(schedule, epoch, gpus, len(done), carried, irregular, overhead)
    wrong = [
        (hop, span, carried.payload(hop))
        for hop, span in wanted.items()
        if hop.link.name not in epoch.health.failed
        and not span.least <= carried.payload(hop) <= span.most
    ]
    others = f" (one of {len(wrong)} such links)" if len(wrong) > SHOWN else ""
    for hop, span, payload in wrong[:SHOWN]:
        what = f"{hop.sender} -> {hop.receiver} carried {payload} bytes of payload"
        why = f"forwarding and prediction disagree{others}"
        yield Verdict.FAIL, f"{what}, must be {span.least:.0f} to {span.most:.0f}: {why}"
    yield from _switch_reasons(epoch, carried, irregular.retransmitted.total())


def _switch_reasons(epoch: Epoch, carried: Carried, again: int) -> Iterator[Reason]:
    """Yield reasons for switches that sent less payload than they received, or more.

    Each packet that a switch lost was retransmitted. A reading takes one link after another, and a
    packet may pass between two: a background probe, or one that TCP retransmits. One on each link
    is tolerated.
    """
    topology = epoch.topology
    each = topology.spec.link_mtu_bytes - TCP_IP_HEADER_BYTES
    for switch in chain(topology.hb_leaves, topology.hb_switches, topology.openflow_switches):
        links = topology.links_of(switch)
        came = sum(carried.payload(Hop(link, link.other_end(switch))) for link in links)
        went = sum(carried.payload(Hop(link, switch)) for link in links)
        probed = (carried.probed.get(Hop(link, switch), NOTHING) for link in links)
        passing = sum(span.most - span.least + each for span in probed)
        if came - went > passing + again * (each + ACKNOWLEDGED_BYTES):
            yield Verdict.WARN, f"{switch} lost bytes: it received {came}, and sent {went}"
        elif went - came > passing:
            yield Verdict.FAIL, f"{switch} sent too many bytes: it received {came}, and sent {went}"
