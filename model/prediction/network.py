"""Links of a fabric as the simulation has them: numbered, with a path for each pair of ranks.

Most paths consist of parts that many pairs share: out of the source's domain by an egress GPU, and
from its switch to the destination. `Routing` computes each part once. A pair with a choice among
egress GPUs, or with further transit GPUs, as in a fabric with failures, is followed hop by hop.

The terms of the model are a transfer's cost on the wire, and the bursts that a shaper lets through.
Each follows from a protocol, from the kernel's source or from a setting of the testbed; none is
fitted. A prediction without one of them shows what that term is worth.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np

from model.arrays import Bools, Floats, Ints
from model.fabric.health import Epoch
from model.fabric.link_probes import PROBE_BYTES, probe_interval_s
from model.fabric.shaping import (
    PACKET_HEADER_BYTES,
    PACKET_PAYLOAD_BYTES,
    Sizes,
    segment_bytes,
    wire_bytes,
)
from model.fabric.spec import FabricSpec
from model.fabric.topology import Gpu, Hop, LinkKind, Topology
from model.fabric.transport import Roce, Transport
from model.routing.paths import Routing
from model.workload.generator import TRANSFER_HEADER_BYTES
from model.workload.transfers.columns import NONE, Transfers, occurrences

PathClass = tuple[LinkKind, ...]
# Sources, destinations, lanes and entropies of pairs of ranks that send.
Pairs = tuple[Ints, Ints, Ints, Ints]
KINDS = tuple(LinkKind)

# Placeholder links: `PADDING` fills short paths and never limits a flow; `NO_PATH` carries nothing.
# A row of padding alone means that the destination is unreachable.
PADDING, NO_PATH = 0, 1
FIRST_LINK = 2
UNLIMITED = 1e300
# A rate in bytes/s that no link has; keeps ratios of idle links finite.
LEAST_RATE = 1e-9
# Shares that differ by less than this part are equal: rounding must not separate them.
SAME_SHARE = 1e-12
# Marks a part of a path that the source or switch does not determine with the destination alone.
UNKNOWN = -2
OF_HB = {LinkKind.HB, LinkKind.HB_TRUNK}
# Larger keys would take more memory than a sort of them is worth.
MOST_KEYS = 1 << 22


class Directions:
    """Numbers of link directions, from `FIRST_LINK` on in the order of first use."""

    def __init__(self) -> None:
        self._numbers: dict[Hop, int] = {}

    @property
    def hops(self) -> tuple[Hop, ...]:
        """The directions in the order of their numbers."""
        return tuple(self._numbers)

    def row(self, hops: Sequence[Hop] | None) -> list[int]:
        """Return the numbers of a path's hops."""
        numbers = self._numbers
        return [numbers.setdefault(hop, FIRST_LINK + len(numbers)) for hop in hops or ()]


class PairPaths:
    """Paths in a fabric of a given health; GPUs are numbered by domain, then by local rank.

    Destinations are the GPUs in their order, each by all lanes.
    """

    def __init__(self, routing: Routing, directions: Directions) -> None:
        self._routing = routing
        self.directions = directions
        self._gpus = routing.topology.gpus
        spec = routing.topology.spec
        self._lanes, self._slots = spec.lanes, np.array(list(routing.topology.gpu_at)).T
        self._number = np.full((spec.domains, spec.domain_size), UNKNOWN)
        self._number[tuple(self._slots)] = np.arange(len(self._gpus))
        # GPUs with the same number reach each other over HB switches alone.
        crossbars = routing.live.crossbar
        named = [crossbars[gpu.gpu] or f"none of {gpu.name}" for gpu in self._gpus]
        self._crossbar = np.unique(named, return_inverse=True)[1]

    def rows(self, sources: Ints, destinations: Ints) -> Ints:
        """Return the path of each pair of GPUs, as a row of numbers padded with `PADDING`."""
        egress, port = self._egress(sources, destinations)
        arrived = egress == destinations // self._lanes
        through = np.flatnonzero((egress != sources) & ~arrived)
        known = egress != UNKNOWN
        further, port[through] = self._egress(egress[through], destinations[through])
        known[through] &= further == egress[through]
        up, down, leaf, ascent, descent, *nics = self._links()
        within = known & (egress != sources)
        across = within & (leaf[sources] != leaf[egress])
        leaves = known & ~arrived
        places = np.flatnonzero(leaves)
        ends = self._from_switches(egress[places], port[places], destinations[places])
        known[places] &= ends[:, 0] != UNKNOWN
        # A row for each hop: numpy works on whole rows, and quickly only on contiguous ones.
        hops = np.full((5 + ends.shape[1], len(sources)), PADDING)
        hops[0], hops[3] = np.where(within, [up[sources], down[egress]], PADDING)
        hops[1], hops[2] = np.where(across, [ascent[sources], descent[egress]], PADDING)
        hops[4] = np.where(leaves, np.stack(nics)[port, egress], PADDING)
        hops[5:, places] = ends.T
        return self.walked(hops.T, np.flatnonzero(~known), sources, destinations)

    def _links(self) -> tuple[Ints, ...]:
        """Return each GPU's direction into its HB switch, and out of it.

        Further columns: a number of the HB switch, its directions up to the second level and down,
        and the GPU's directions into its rail switches, by lane.
        """
        topology, numbers = self._routing.topology, []
        switches = {name: place for place, name in enumerate(topology.hb_leaves)}
        for gpu in self._gpus:
            hb = topology.link_of(gpu, LinkKind.HB)
            switch = hb.upper.node
            nics = self.directions.row([Hop(nic, gpu.name) for nic in topology.nic_links(gpu)])
            row = self.directions.row([Hop(hb, gpu.name), Hop(hb, switch)])
            trunk = topology.trunks.get(switch)
            ends = [Hop(trunk, switch), Hop(trunk, trunk.upper.node)] if trunk else []
            trunks = self.directions.row(ends) or [PADDING, PADDING]
            row += [switches.get(switch, gpu.domain), *trunks]
            numbers.append(row + (nics or [PADDING] * self._lanes))
        return tuple(np.array(numbers).T)

    def _egress(self, sources: Ints, destinations: Ints) -> tuple[Ints, Ints]:
        """Return the GPU that each source sends to, or itself, and the lane of its own port.

        The GPU is `UNKNOWN` if there are several, or if HB links within the domain have failed.

        Over HB switches this is the destination. It is the same for all equivalent domains.
        """
        to = destinations // self._lanes
        egress = np.where(self._crossbar[sources] == self._crossbar[to], to, UNKNOWN)
        port, domain = np.zeros_like(egress), self._slots[0]
        leaves = np.flatnonzero(domain[sources] != domain[to])
        sources, destinations = sources[leaves], destinations[leaves]
        first = np.array(self._routing.live.equivalent)
        domains, rails = self._slots[:, sources]
        keys = self._number[first[domains], rails] * len(self._gpus) * self._lanes + destinations
        examples, which = _distinct(keys)
        ends = zip(sources[examples].tolist(), destinations[examples].tolist(), strict=True)
        found = [self._routing.egress(self._gpus[a], self._destination(b)) for a, b in ends]
        only = [(e.ranks[0] if len(e.ranks) == 1 else UNKNOWN, e.port) for e in found]
        rail, port[leaves] = np.array(only, np.int64).reshape(-1, 2)[which].T
        number = self._number[domains, np.maximum(rail, 0)]
        egress[leaves] = np.where(rail == UNKNOWN, UNKNOWN, number)
        return egress, port

    def _destination(self, number: int) -> Gpu:
        return self._gpus[number // self._lanes].by(number % self._lanes)

    def _from_switches(self, egress: Ints, port: Ints, destinations: Ints) -> Ints:
        """Return the rest of each path, from the switch of an egress GPU's port; or `UNKNOWN`."""
        count, links = len(self._gpus) * self._lanes, self._routing.topology.nic_links
        switches = [
            nic.upper.node if nic else ""
            for gpu in self._gpus
            for nic in links(gpu) or [None] * self._lanes
        ]
        names, switch = np.unique(switches, return_inverse=True)
        keys = switch[egress * self._lanes + port] * count + destinations
        examples, which = _distinct(keys)
        pairs = zip(*(part.tolist() for part in np.divmod(keys[examples], count)), strict=True)
        rows = [self._from_switch(str(names[s]), self._destination(to)) for s, to in pairs]
        return _table(rows)[which]

    def _from_switch(self, switch: str, destination: Gpu) -> list[int]:
        routing, node = self._routing, switch
        hops: list[Hop] = []
        while node != destination.name:
            gpu = routing.topology.gpu_by_name.get(node)
            if gpu and routing.live.share_crossbar(gpu, destination):
                hops += routing.topology.hb_hops(gpu, destination.gpu)
                break
            if gpu or node not in routing.topology.switch_by_name:
                return [UNKNOWN]
            ports = routing.ports(node, destination)
            next_hop = routing.selection.port(node, destination, ports)
            if ports.by_origin or next_hop is None:
                return [UNKNOWN]
            hops += next_hop
            node = next_hop[-1].receiver
        return self.directions.row(hops)

    def walked(
        self, rows: Ints, places: Ints, sources: Ints, destinations: Ints, entropy: int = 0
    ) -> Ints:
        """Return the rows, with those at `places` found hop by hop from source to destination."""
        if not len(places):
            return rows
        pairs = zip(sources[places].tolist(), destinations[places].tolist(), strict=True)
        walks = [
            self._routing.path_if_any(self._gpus[a], self._destination(b), entropy)
            for a, b in pairs
        ]
        walked = _table([self.directions.row(hops) for hops in walks])
        width = max(rows.shape[1], walked.shape[1])
        rows = np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=PADDING)
        rows[places] = PADDING
        rows[places, : walked.shape[1]] = walked
        return rows


def _distinct(keys: Ints) -> tuple[Ints, Ints]:
    """Return the first place of each key, in order of keys, and the number of every key.

    As `numpy.unique` does, but small keys need no sort.
    """
    if keys.max(initial=0) > MOST_KEYS:
        _, examples, which = np.unique(keys, return_index=True, return_inverse=True)
        return examples, which
    first = np.full(1 + keys.max(initial=0), NONE)
    first[keys[::-1]] = np.arange(len(keys))[::-1]  # of equal keys, the first one's place stays
    known = first != NONE
    return first[known], (np.cumsum(known) - 1)[keys]


def _table(rows: Sequence[Sequence[int]]) -> Ints:
    """Return rows of different lengths as a table, padded with `PADDING`; at least one column."""
    table = np.full((len(rows), max([1, *map(len, rows)])), PADDING)
    for row, numbers in zip(table, rows, strict=True):
        row[: len(numbers)] = numbers
    return table


@dataclass(frozen=True)
class Network:
    """The fabric in an epoch: rate in bytes/s and burst in bytes of each link direction.

    `paths` has the links of each pair of ranks, `class_of` the place of its class in `classes`;
    the class of a pair without a path is empty. `added_s` is what the links of each pair's path add
    to the latency of its class, in seconds. `others` is the rate of the controller's probes on
    each link, and of the traffic beside the job's, in bytes/s, `segment_bytes` the payload of a
    full segment, `window` the most transfers of a connection that are sent and not confirmed.
    `hops` are the link directions of the fabric, from `FIRST_LINK` on. `by_roce` says which pairs
    send by RoCE. Packets of a pair may take several paths over spine switches in turn: uplinks
    stand in its row as often as they are on one, and have their rates times the number of paths;
    `share` is the part of its packets that cross each link, each time it stands there. A pair has
    all `queue_pairs` of two ranks if these take parts of each transfer, or one if they take
    transfers in turn.
    """

    begin_s: float
    paths: Ints
    class_of: Ints
    classes: tuple[PathClass, ...]
    rate: Floats
    burst: Floats
    others: Floats | float
    segment_bytes: int
    window: int
    hops: tuple[Hop, ...]
    roce: Roce
    by_roce: Bools
    share: Floats | float = 1.0
    added_s: Floats | float = 0.0
    queue_pairs: int = 1

    @property
    def links(self) -> int:
        """The number of link directions, with the two placeholders."""
        return len(self.rate)

    @cached_property
    def slowest(self) -> Floats:
        """The rate of the slowest link on each pair's path, in bytes/s."""
        rate: Floats = self.rate[self.paths].min(axis=1)
        return rate

    def travel_s(self, latency_s: Mapping[PathClass, float]) -> Floats:
        """Return each pair's latency, by that of the class of its path; without a path, `inf`."""
        latencies = [latency_s[kind] if kind else inf for kind in self.classes]
        return np.array(latencies)[self.class_of] + self.added_s

    def wire_bytes(self, payload_bytes: Ints, pair: Ints) -> Floats:
        """Return the bytes that links count for the payload of each transfer, in full packets.

        They grow with the payload. By RoCE, these are all frames of a transfer.
        """
        by_tcp = np.float64(wire_bytes(1)) * payload_bytes
        return self.by_transport(pair, by_tcp, self.roce.wire_bytes, payload_bytes)

    def by_transport(
        self, pair: Ints, by_tcp: Sizes, of_roce: Callable[[Sizes], Sizes], payload_bytes: Ints
    ) -> Floats:
        """Return the bytes of each transfer by TCP, or what RoCE makes of its payload."""
        if self.by_roce.any():
            by_tcp = np.where(self.by_roce[pair], of_roce(payload_bytes), by_tcp)
        return np.asarray(by_tcp, np.float64)

    def acknowledgement_share(self) -> Floats:
        """Return the bytes of acknowledgements on each link for each byte of data.

        Of RoCE they are on NIC links and uplinks alone, as on most paths.
        """
        by_tcp = PACKET_HEADER_BYTES / wire_bytes(self.segment_bytes)
        shares = np.full(self.links, by_tcp)
        if self.by_roce.any():
            of_nic = [hop.link.kind not in OF_HB for hop in self.hops]
            shares[FIRST_LINK:][of_nic] = self.roce.acknowledgement_share
        return shares


def networks(epochs: Sequence[Epoch], gpus: Sequence[Gpu], pairs: Pairs) -> list[Network]:
    """Describe a fabric in each epoch, for pairs of ranks that are placed on `gpus`."""
    topology, directions = epochs[0].topology, Directions()
    numbers = {gpu: number for number, gpu in enumerate(topology.gpus)}
    number = np.array([numbers[gpu] for gpu in gpus])
    sources, destinations = number[pairs[0]], number[pairs[1]] * topology.spec.lanes + pairs[2]
    return [_network(epoch, sources, destinations, pairs[3], directions) for epoch in epochs]


def _network(
    epoch: Epoch, sources: Ints, destinations: Ints, entropy: Ints, directions: Directions
) -> Network:
    spec = epoch.topology.spec
    domain = np.array([gpu.domain for gpu in epoch.topology.gpus])
    by_roce = domain[sources] != domain[destinations // spec.lanes]
    by_roce &= spec.transport is Transport.ROCE
    routing = Routing(epoch.topology, epoch.health)
    by_pair = PairPaths(routing, directions)
    paths = by_pair.rows(sources, destinations)
    class_of, classes = _classes(paths, directions.hops)
    delay_s: Floats | float = 0.0
    if spec.nic.links:
        added = np.array([0.0, 0.0, *(added_s(epoch.topology, hop) for hop in directions.hops)])
        delay_s = added[paths].sum(axis=1)
    paths = _spread(by_pair, paths, sources, destinations, np.where(by_roce, entropy, NONE), spec)
    paths[(paths == PADDING).all(axis=1), 0] = NO_PATH
    hops = directions.hops
    beside = np.array([0.0, 0.0, *(epoch.beside.get(hop, 0.0) for hop in hops)])
    ways = _ways(hops, spec.ways)
    shapers = [epoch.health.shaper(hop) for hop in hops]
    return Network(
        epoch.begin_s,
        _packed(paths),
        class_of,
        classes,
        rate=np.array([UNLIMITED, 0.0, *(shaper.rate_bps / 8 for shaper in shapers)]) * ways,
        burst=np.array([UNLIMITED, 0.0, *(shaper.burst_bytes for shaper in shapers)]) * ways,
        segment_bytes=segment_bytes(spec.grain_packets),
        others=PROBE_BYTES / probe_interval_s(epoch.topology) + beside,
        window=spec.window,
        hops=hops,
        roce=spec.roce,
        by_roce=by_roce,
        share=1 / ways,
        added_s=delay_s,
        queue_pairs=spec.roce.queue_pairs // spec.turns,
    )


def _spread(
    by_pair: PairPaths,
    paths: Ints,
    sources: Ints,
    destinations: Ints,
    entropy: Ints,
    spec: FabricSpec,
) -> Ints:
    """Return paths by their entropy, `NONE` for those of TCP; or all of them, one by one."""
    spread = paths
    for number in range(1, spec.entropies):
        mine = entropy == number if spec.ways == 1 else entropy != NONE
        walked = by_pair.walked(paths, np.flatnonzero(mine), sources, destinations, number)
        if spec.ways == 1:
            spread = paths = walked
        else:
            # TCP's one path has all of its ways over the uplinks.
            more = _ways(by_pair.directions.hops, spec.ways)[walked] > 1
            spread = np.hstack([spread, np.where(more, walked, PADDING)])
    return spread


def _packed(paths: Ints) -> Ints:
    """Return the rows with their padding last, in as few columns as the longest path has links."""
    is_link = paths != PADDING
    lengths = np.count_nonzero(is_link, axis=1)
    packed = np.full((len(paths), lengths.max(initial=1)), PADDING)
    packed[np.arange(packed.shape[1]) < lengths[:, None]] = paths[is_link]
    return packed


def _ways(hops: Sequence[Hop], ways: int) -> Floats:
    """Return how many paths a flow on each link takes at once: several over uplinks."""
    return np.array([1.0, 1.0, *(ways if h.link.kind is LinkKind.UPLINK else 1.0 for h in hops)])


def added_s(topology: Topology, hop: Hop) -> float:
    """Seconds that a link of a custom fabric delays packets, beside what all NIC links do."""
    if not topology.spec.nic.links or hop.link.kind in OF_HB:
        return 0.0
    return hop.link.impairment.delay_s - topology.spec.nic.impairment.delay_s


def _classes(paths: Ints, hops: Sequence[Hop]) -> tuple[Ints, tuple[PathClass, ...]]:
    kinds = np.array([0, 0, *(1 + KINDS.index(hop.link.kind) for hop in hops)])
    codes = np.zeros(len(paths), np.int64)
    for column in kinds[paths].T:
        codes = np.where(column, codes * (len(KINDS) + 1) + column, codes)
    examples, class_of = _distinct(codes)
    classes = (tuple(KINDS[kind - 1] for kind in kinds[row] if kind) for row in paths[examples])
    return class_of, tuple(classes)


def healthy_network(transfers: Transfers, topology: Topology) -> tuple[Ints, Network]:
    """Return the pair of each transfer, and a fabric without faults for the pairs of its job."""
    pair, (net,) = networks_of(transfers, [Epoch(topology)], topology.job_gpus)
    return pair, net


def networks_of(
    transfers: Transfers, epochs: Sequence[Epoch], gpus: Sequence[Gpu]
) -> tuple[Ints, list[Network]]:
    """Return the pair of each transfer, and a fabric in each epoch for the pairs that send.

    Ranks are placed on `gpus`.
    """
    pairs, pair = pairs_of(transfers, len(gpus), epochs[0].topology.spec.turns)
    return pair, networks(epochs, gpus, pairs)


def pairs_of(transfers: Transfers, ranks: int, turns: int) -> tuple[Pairs, Ints]:
    """Return sources, destinations, lanes and entropies of all pairs, and each transfer's pair.

    Transfers that take the queue pairs of two ranks in `turns` have the entropy of theirs.
    """
    lanes = int(transfers.lane.max(initial=0)) + 1
    keys = (transfers.source * ranks + transfers.destination) * lanes + transfers.lane
    if turns > 1:
        keys = keys * turns + occurrences(keys) % turns
    sends = np.bincount(keys, minlength=ranks * ranks * lanes * turns) > 0
    ends, entropy = np.divmod(np.flatnonzero(sends), turns)
    ends, lane = np.divmod(ends, lanes)
    return (*np.divmod(ends, ranks), lane, entropy), (np.cumsum(sends) - 1)[keys]


def sums(paths: Ints, amounts: Floats, links: int) -> Floats:
    """Return for each link the sum of the amounts of the flows on it."""
    weights = np.repeat(amounts, paths.shape[1])
    return np.bincount(paths.ravel(), weights, minlength=links).astype(np.float64, copy=False)


def framed_bytes(payload_bytes: Sizes) -> Sizes:
    """Return the bytes that HTB counts for each TCP payload whose end is that of a packet."""
    packets = -(-payload_bytes // PACKET_PAYLOAD_BYTES)
    return payload_bytes + packets * PACKET_HEADER_BYTES


@dataclass(frozen=True)
class Terms:
    """Terms of the model that a prediction includes; all by default.

    With `confirmations`, a rank's next step waits until the last one is sent, with a window of one
    until it is confirmed, as the agents do; else until it has arrived: it costs its latency once.
    `windows` are those of queue pairs.
    """

    headers: bool = True
    bursts: bool = True
    last_segment: bool = True
    acknowledgements: bool = True
    probes: bool = True
    confirmations: bool = True
    windows: bool = True

    def size(self, payload_bytes: Ints, pair: Ints, net: Network) -> Floats:
        """Return the bytes that a shaped link counts for each transfer, headers included.

        A transfer's end is that of a packet; by TCP, a header of its own precedes it.
        """
        if not self.headers:
            return payload_bytes.astype(np.float64)
        by_tcp = framed_bytes(payload_bytes + TRANSFER_HEADER_BYTES)
        return net.by_transport(pair, by_tcp, net.roce.wire_bytes, payload_bytes)

    def last(self, payload_bytes: Ints, pair: Ints, net: Network) -> Floats:
        """Return the bytes of each transfer's last segment or packet, which may leave on credit.

        HTB sends a whole segment while its bucket is not in debt, and charges it afterwards
        (htb_class_mode and htb_accnt_ctokens in net/sched/sch_htb.c).
        """
        if not self.last_segment:
            return np.zeros(len(payload_bytes))
        before = payload_bytes + TRANSFER_HEADER_BYTES - 1
        by_tcp = framed_bytes(before % net.segment_bytes + 1)
        return net.by_transport(pair, by_tcp, net.roce.last_bytes, payload_bytes)

    def applied(self, net: Network) -> Network:
        """Return the network with the rates and bursts that are left for data.

        Probes, other traffic and acknowledgements go first. Each direction of a link is taken to
        carry acknowledgements for as many bytes as it has data itself. A segment of two packets or
        more is acknowledged at once (__tcp_ack_snd_check in net/ipv4/tcp_input.c), and it arrives
        whole. A full bucket passes at once after idleness (tc-htb(8), cburst).
        """
        rate, burst = net.rate, net.burst
        if self.probes:
            rate = np.maximum(0.0, rate - net.others)
        if self.acknowledgements:
            rate = rate / (1 + net.acknowledgement_share())
        if not self.bursts:
            # A placeholder is no bucket: without its tokens, it would be in debt for all flows.
            burst = np.append(burst[:FIRST_LINK], np.zeros(net.links - FIRST_LINK))
        return replace(net, rate=rate, burst=burst)


ALL = Terms()


def overlap(transfers: Transfers, pair: Ints, net: Network, arrival_s: Floats) -> float:
    """Return the share of the time in which HB links and NICs carry transfers; 0 without a NIC.

    `pair` is the pair of each transfer in the network. A transfer is under way from the arrival of
    its last dependency until its own arrival. A transfer that is forwarded uses both.
    """
    begin_s = transfers.begins_s(arrival_s)
    by_hb = np.array([not OF_HB.isdisjoint(kinds) for kinds in net.classes])
    by_nic = np.array([LinkKind.NIC in kinds for kinds in net.classes])
    of = net.class_of[pair]
    end_s = float(arrival_s.max(initial=0.0))
    both_s = _both_s(begin_s, arrival_s, by_hb[of], by_nic[of])
    return min(1.0, both_s / end_s) if end_s else 0.0  # rounding must not exceed 1


def _both_s(begin_s: Floats, end_s: Floats, one: Bools, other: Bools) -> float:
    """Return for how long spans of both kinds are under way at once, in seconds."""
    moments = np.concatenate([begin_s, end_s])
    order = np.argsort(moments, kind="stable")
    under_way = [np.cumsum(np.concatenate([which, -1 * which])[order]) for which in (one, other)]
    at_once = (under_way[0] > 0) & (under_way[1] > 0)
    return float(np.diff(moments[order]) @ at_once[:-1])
