"""Links of a fabric as the simulation has them: numbered, with a path for each pair of ranks.

The terms of the model are a transfer's cost on the wire, and the bursts that a shaper lets through.
Each follows from a protocol, from the kernel's source or from a setting of the testbed; none is
fitted. A prediction without one of them shows what that term is worth.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from model.arrays import Bools, Floats, Ints
from model.fabric.health import Epoch
from model.fabric.link_probes import PROBE_BYTES, probe_interval_s
from model.fabric.shaping import PACKET_HEADER_BYTES, SEGMENT_BYTES, wire_bytes
from model.fabric.topology import Gpu, Hop, LinkKind, Topology
from model.routing.pair_paths import NO_HOP, Directions, PairPaths
from model.routing.paths import Routing
from model.workload.generator import TRANSFER_HEADER_BYTES
from model.workload.transfers.columns import Transfers
from model.workload.transfers.dependencies import begins_s

PathClass = tuple[LinkKind, ...]
KINDS = tuple(LinkKind)

# Placeholder links: `PADDING` fills short paths and never limits a flow; `NO_PATH` carries nothing.
PADDING, NO_PATH = 0, 1
FIRST_LINK = 2
UNLIMITED = 1e300
OF_HB = {LinkKind.HB, LinkKind.HB_TRUNK}


@dataclass(frozen=True)
class Network:
    """The fabric in an epoch: rate in bytes/s and burst in bytes of each link direction.

    `paths` has the links of each pair of ranks, `class_of` the place of its class in `classes`;
    the class of a pair without a path is empty. `probes` is the rate of the controller's probes on
    each link, in bytes/s. `hops` are the link directions of the fabric, from `FIRST_LINK` on.
    """

    begin_s: float
    paths: Ints
    class_of: Ints
    classes: tuple[PathClass, ...]
    rate: Floats
    burst: Floats
    probes: float
    hops: tuple[Hop, ...]

    @property
    def links(self) -> int:
        """The number of link directions, with the two placeholders."""
        return len(self.rate)


def networks(
    epochs: Sequence[Epoch], gpus: Sequence[Gpu], pairs: tuple[Ints, Ints]
) -> list[Network]:
    """Describe a fabric in each epoch, for pairs of ranks that are placed on `gpus`."""
    size, directions = epochs[0].topology.spec.domain_size, Directions()
    number = np.array([gpu.domain * size + gpu.rail for gpu in gpus])
    sources, destinations = number[pairs[0]], number[pairs[1]]
    return [_network(epoch, sources, destinations, directions) for epoch in epochs]


def _network(epoch: Epoch, sources: Ints, destinations: Ints, directions: Directions) -> Network:
    routing = Routing(epoch.topology, epoch.health)
    rows = PairPaths(routing, directions).rows(sources, destinations)
    paths = np.where(rows == NO_HOP, PADDING, rows + FIRST_LINK)
    paths[(rows == NO_HOP).all(axis=1), 0] = NO_PATH
    shapers = [epoch.health.shaper(hop) for hop in directions.hops]
    return Network(
        epoch.begin_s,
        paths[:, (paths != PADDING).any(axis=0)],
        *_classes(paths, directions.hops),
        rate=np.array([UNLIMITED, 0.0, *(shaper.rate_bps / 8 for shaper in shapers)]),
        burst=np.array([UNLIMITED, 0.0, *(shaper.burst_bytes for shaper in shapers)]),
        probes=PROBE_BYTES / probe_interval_s(epoch.topology),
        hops=tuple(directions.hops),
    )


def _classes(paths: Ints, hops: Sequence[Hop]) -> tuple[Ints, tuple[PathClass, ...]]:
    """Return the index of each path's class, and the classes."""
    kinds = np.array([0, 0, *(1 + KINDS.index(hop.link.kind) for hop in hops)])
    codes = np.zeros(len(paths), np.int64)
    for column in kinds[paths].T:
        codes = np.where(column, codes * (len(KINDS) + 1) + column, codes)
    _, examples, class_of = np.unique(codes, return_index=True, return_inverse=True)
    classes = (tuple(KINDS[kind - 1] for kind in kinds[row] if kind) for row in paths[examples])
    return class_of, tuple(classes)


def healthy_network(transfers: Transfers, topology: Topology) -> tuple[Ints, Network]:
    """Return the pair of each transfer, and a fabric without faults for the pairs of its job."""
    gpus = topology.job_gpus
    pairs, pair = pairs_of(transfers, len(gpus))
    return pair, networks([Epoch(topology)], gpus, pairs)[0]


def pairs_of(transfers: Transfers, ranks: int) -> tuple[tuple[Ints, Ints], Ints]:
    """Return sources and destinations of all pairs that send, and the pair of each transfer."""
    keys = transfers.source * ranks + transfers.destination
    sends = np.bincount(keys, minlength=ranks * ranks) > 0
    return np.divmod(np.flatnonzero(sends), ranks), (np.cumsum(sends) - 1)[keys]


@dataclass(frozen=True)
class Terms:
    """Terms of the model that a prediction includes; all by default."""

    headers: bool = True
    bursts: bool = True
    last_segment: bool = True
    acknowledgements: bool = True
    probes: bool = True

    def size(self, payload_bytes: Ints) -> Floats:
        """Return the bytes that a shaped link counts for each transfer, headers included."""
        if not self.headers:
            return payload_bytes.astype(np.float64)
        return np.float64(wire_bytes(1)) * (payload_bytes + TRANSFER_HEADER_BYTES)

    def last(self, payload_bytes: Ints) -> Floats:
        """Return the bytes of each transfer's last segment, which may leave on credit.

        HTB sends a whole segment while its bucket is not in debt, and charges it afterwards
        (htb_class_mode and htb_accnt_ctokens in net/sched/sch_htb.c).
        """
        if not self.last_segment:
            return np.zeros(len(payload_bytes))
        before = payload_bytes + TRANSFER_HEADER_BYTES - 1
        return np.float64(wire_bytes(1)) * (before % SEGMENT_BYTES + 1)

    def applied(self, net: Network) -> Network:
        """Return the network with the rates and bursts that are left for data.

        The controller's probes and acknowledgements go first. Each direction of a link is taken to
        carry acknowledgements for as many bytes as it has data itself. A segment of two packets or
        more is acknowledged at once (__tcp_ack_snd_check in net/ipv4/tcp_input.c), and it arrives
        whole. A full bucket passes at once after idleness (tc-htb(8), cburst).
        """
        rate, burst = net.rate, net.burst
        if self.probes:
            rate = np.maximum(0.0, rate - net.probes)
        if self.acknowledgements:
            rate = rate / (1 + PACKET_HEADER_BYTES / wire_bytes(SEGMENT_BYTES))
        return replace(net, rate=rate, burst=burst if self.bursts else np.zeros(net.links))


ALL = Terms()


def overlap(transfers: Transfers, pair: Ints, net: Network, arrival_s: Floats) -> float:
    """Return the share of the completion time in which both carry transfers; 0 without a NIC.

    `pair` is the pair of each transfer in the network. A transfer is under way from the arrival of
    its last dependency until its own arrival. A transfer that is forwarded uses both.
    """
    begin_s = begins_s(transfers, arrival_s)
    by_hb, by_nic = (
        np.array([any(has(kind) for kind in kinds or ()) for kinds in net.classes])
        for has in (OF_HB.__contains__, LinkKind.NIC.__eq__)
    )
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
