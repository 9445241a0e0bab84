"""Fluid model of the completion time of one schedule on one fabric.

Transfers are fluids. Each flows along the path that the routing gives it, flows on one link share
it fairly (max-min; in proportion to weights, if there are any), and each begins when its
dependencies are done. A shaped link is a token bucket: after idleness the first bytes pass at once,
and a last segment leaves on credit (`model.prediction.network`). Latencies are measured on single
idle paths and passed in; no constant is fitted to a collective.

Transfers that never share a link need no simulation: each has the rate of its slowest link from
beginning to end, and its times follow from those of its dependencies. All transfers whose
dependencies are done are computed together. Once two of them share a link, only the simulation is
right.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from model.arrays import Floats, Ints
from model.fabric.health import HEALTHY, Epoch, Health
from model.fabric.shaping import MAX_SEGMENT_BYTES, wire_bytes
from model.fabric.topology import Hop, RankGpus, Topology
from model.prediction.network import (
    ALL,
    FIRST_LINK,
    PADDING,
    Network,
    PathClass,
    Terms,
    networks,
    pairs_of,
)
from model.prediction.simulation import SAME_TIME_S, Releases, Simulation, sums
from model.routing.paths import Routing
from model.workload.schedule import Steps
from model.workload.transfers.columns import Transfer, Transfers


@dataclass(frozen=True)
class Prediction:
    """Seconds of emulated time, from the common start until the last byte has arrived.

    `arrival_s` has the arrival of each transfer.
    """

    topology_digest: str
    schedule_digest: str
    completion_s: float
    lower_bound_s: float
    arrival_s: Sequence[float]


def path_class(hops: Iterable[Hop]) -> PathClass:
    """The kinds of links on a path; paths of one class have one latency."""
    return tuple(hop.link.kind for hop in hops)


def predict(
    schedule: Steps,
    topology: Topology,
    latency_s: Mapping[PathClass, float],
    health: Health = HEALTHY,
    gpus: RankGpus | None = None,
    terms: Terms = ALL,
    weight: Floats | None = None,
) -> Prediction:
    """Simulate the schedule. `latency_s` is one-way, for a packet without payload.

    Transfers that share a link have rates in proportion to their `weight`, equal ones without it.
    Raises `Unreachable` if a transfer has no path.
    """
    return predict_through(schedule, [Epoch(topology, health)], latency_s, gpus, terms, weight)


def predict_through(
    schedule: Steps,
    epochs: Sequence[Epoch],
    latency_s: Mapping[PathClass, float],
    gpus: RankGpus | None = None,
    terms: Terms = ALL,
    weight: Floats | None = None,
) -> Prediction:
    """Predict on a fabric that changes during the execution. Packets take new paths at once.

    A transfer without a path waits for a later epoch; if none has one, raises `Unreachable`.
    """
    gpus = gpus or epochs[0].topology.job_gpus
    transfers = schedule.transfers
    pairs, pair = pairs_of(transfers, len(gpus))
    fabric = networks(epochs, gpus, pairs)
    arrival_s = _arrivals_s(transfers, pair, fabric, latency_s, terms, weight)
    return Prediction(
        topology_digest=epochs[0].topology.digest,
        schedule_digest=schedule.digest,
        completion_s=float(arrival_s.max()),
        lower_bound_s=min(lower_bound_s(transfers, pair, net) for net in fabric),
        arrival_s=array("d", arrival_s.tobytes()),
    )


def _arrivals_s(
    transfers: Transfers,
    pair: Ints,
    fabric: Sequence[Network],
    latency_s: Mapping[PathClass, float],
    terms: Terms,
    weight: Floats | None,
) -> Floats:
    """Return the arrival times of all transfers, without simulation if that gives the same."""
    if len(fabric) == 1:
        with suppress(SharedLink):
            return unshared_arrivals_s(transfers, pair, fabric[0], latency_s, terms)
    return Simulation(transfers, pair, fabric, latency_s, terms, weight).run()


def transfer_paths(
    transfers: Sequence[Transfer], epoch: Epoch, gpus: RankGpus
) -> list[tuple[Hop, ...] | None]:
    """The path of every transfer; `None` for unreachable destinations."""
    pairs = ((transfer.source, transfer.destination) for transfer in transfers)
    known = paths_of_pairs(pairs, epoch, gpus)
    return [known[transfer.source, transfer.destination] for transfer in transfers]


def paths_of_pairs(
    pairs: Iterable[tuple[int, int]], epoch: Epoch, gpus: RankGpus
) -> dict[tuple[int, int], tuple[Hop, ...] | None]:
    """The path of each pair of ranks, in their order; `None` for unreachable destinations."""
    routing = Routing(epoch.topology, epoch.health)
    return {
        (source, destination): routing.path_if_any(gpus[source], gpus[destination])
        for source, destination in dict.fromkeys(pairs)
    }


def lower_bound_s(transfers: Transfers, pair: Ints, net: Network) -> float:
    """The busiest link's load over its rate, in seconds: no measurement may be shorter.

    Two parts of the load leave at once and do not count: the burst of the token bucket, and the
    last segment (up to segmentation offload's maximum), for which the bucket may go into debt.
    """
    sizes = wire_bytes(1) * transfers.size_bytes
    last_segment = min(float(sizes.max()), wire_bytes(MAX_SEGMENT_BYTES))
    each = np.bincount(pair, sizes).astype(np.float64, copy=False)
    loads = sums(net.paths, each, net.links)[FIRST_LINK:]
    loaded = loads > 0
    least = loads - net.burst[FIRST_LINK:] - last_segment
    return float((least[loaded] / net.rate[FIRST_LINK:][loaded]).max(initial=0.0))


class SharedLink(Exception):
    """Two transfers share a link, or one has no path."""


def unshared_arrivals_s(
    transfers: Transfers,
    pair: Ints,
    net: Network,
    latency_s: Mapping[PathClass, float],
    terms: Terms = ALL,
) -> Floats:
    """Return the arrival times of all transfers in seconds; or raise `SharedLink`."""
    has_path = np.array([bool(kind) for kind in net.classes])[net.class_of][pair]
    if not (has_path | transfers.is_compute).all():
        raise SharedLink
    latencies = np.array([latency_s[kind] if kind else 0.0 for kind in net.classes])
    travel_s = latencies[net.class_of][pair]
    releases, links = Releases(transfers), _Links(terms.applied(net))
    releases.travel(travel_s)
    sizes, last = terms.size(transfers.size_bytes), terms.last(transfers.size_bytes)
    computes, compute_s = transfers.is_compute, transfers.compute_ns / 1e9
    begin_s, arrival_s = np.zeros(len(transfers)), np.zeros(len(transfers))
    # A row for each hop: numpy works on whole rows, and quickly only on contiguous ones.
    hops = np.ascontiguousarray(net.paths.T)
    due = np.flatnonzero(releases.missing == 0)
    while len(due):
        sent, computed = due[~computes[due]], due[computes[due]]
        left_s = links.carry(hops.take(pair[sent], axis=1), sizes[sent], last[sent], begin_s[sent])
        arrival_s[sent] = left_s + travel_s[sent]
        arrival_s[computed] = begin_s[computed] + compute_s[computed]
        due = _release(releases, due, begin_s, arrival_s)
    return arrival_s


def _release(releases: Releases, done: Ints, begin_s: Floats, arrival_s: Floats) -> Ints:
    """Delay the dependents of these transfers until their release; return those that are ready."""
    places, earlier = releases.of(done)
    later = releases.later[places]
    np.maximum.at(begin_s, later, arrival_s[earlier] + releases.later_s(places))
    np.subtract.at(releases.missing, later, 1)
    due: Ints = np.sort(later[releases.missing[later] == 0])
    return _once(due)


def _once(ordered: Ints) -> Ints:
    """Leave out repetitions of sorted numbers: in half the time of `numpy.unique`, which hashes."""
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


class _Links:
    """The links: when each is free again, and the tokens that its bucket has then."""

    def __init__(self, net: Network) -> None:
        self._net = net
        self._free_s, self._tokens = np.zeros(net.links), net.burst.copy()

    def carry(self, hops: Ints, sizes: Floats, last: Floats, begin_s: Floats) -> Floats:
        """Carry transfers, with a row of `hops` for each hop; return when their last bytes leave.

        The last segments leave on credit, and a transfer waits until its links are out of debt.
        """
        if self._are_shared(hops, begin_s):
            raise SharedLink
        rate, burst = self._net.rate.take(hops), self._net.burst.take(hops)
        idle_s = begin_s - self._free_s.take(hops)
        tokens = np.minimum(burst, self._tokens.take(hops) + rate * idle_s)
        wait_s = np.maximum(0.0, (-tokens / rate).max(axis=0))
        tokens = np.minimum(burst, tokens + rate * wait_s)
        slowest = rate.min(axis=0)
        passed = np.minimum(sizes, np.maximum(0.0, tokens.min(axis=0)))
        seconds = np.maximum(0.0, sizes - passed - last) / slowest
        owed = sizes - passed - slowest * seconds
        regained = (rate - slowest) * seconds
        self._tokens[hops] = np.minimum(burst, tokens - passed + regained) - owed
        end_s: Floats = begin_s + wait_s + seconds
        self._free_s[hops] = end_s
        self._free_s[PADDING] = 0.0
        return end_s

    def _are_shared(self, hops: Ints, begin_s: Floats) -> bool:
        """Whether a link is in use when a transfer begins, or is on two of these paths."""
        times = np.bincount(hops.ravel(), minlength=self._net.links)
        times[PADDING] = 0
        return bool((times > 1).any() or (self._free_s.take(hops) > begin_s + SAME_TIME_S).any())
