"""Fluid model of the completion time of one schedule on one fabric.

Transfers are fluids. Each flows along the path that the routing gives it, flows on one link share
it fairly (max-min; in proportion to weights, if there are any), and each begins when its
dependencies are done. A shaped link is a token bucket: after idleness the first bytes pass at once,
and a last segment leaves on credit (`model.prediction.network`). Latencies are measured on single
idle paths and passed in; no constant is fitted to a collective.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from model.arrays import Floats, Ints
from model.fabric.health import Epoch
from model.fabric.shaping import wire_bytes
from model.fabric.topology import Hop, RankGpus
from model.prediction.network import (
    ALL,
    FIRST_LINK,
    LEAST_RATE,
    NO_PATH,
    OF_HB,
    PADDING,
    Network,
    PathClass,
    Terms,
    networks_of,
    sums,
)
from model.prediction.simulation import SharedLink, Simulation, unshared_arrivals_s
from model.workload.schedule import Steps
from model.workload.transfers.columns import Transfers


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
    epochs: Sequence[Epoch],
    latency_s: Mapping[PathClass, float],
    gpus: RankGpus | None = None,
    terms: Terms = ALL,
    weight: Floats | None = None,
) -> Prediction:
    """Simulate the schedule on a fabric that may change: packets take new paths at once.

    `latency_s` is one-way, for a packet without payload. Transfers that share a link have rates in
    proportion to their `weight`, equal ones without it. A transfer without a path waits for a later
    epoch; if none has one, raises `Unreachable`.
    """
    gpus = gpus or epochs[0].topology.job_gpus
    transfers = schedule.transfers
    pair, fabric = networks_of(transfers, epochs, gpus)
    arrival_s = arrivals_s(transfers, pair, fabric, latency_s, terms, weight)
    return Prediction(
        topology_digest=epochs[0].topology.digest,
        schedule_digest=schedule.digest,
        completion_s=float(arrival_s.max()),
        lower_bound_s=lower_bound_s(transfers, pair, _always(fabric)),
        arrival_s=array("d", arrival_s.tobytes()),
    )


def arrivals_s(
    transfers: Transfers,
    pair: Ints,
    fabric: Sequence[Network],
    latency_s: Mapping[PathClass, float],
    terms: Terms,
    weight: Floats | None = None,
) -> Floats:
    """Return the arrival times of all transfers, without simulation if that gives the same."""
    if len(fabric) == 1:
        with suppress(SharedLink):
            return unshared_arrivals_s(transfers, pair, fabric[0], latency_s, terms)
    return Simulation(transfers, pair, fabric, latency_s, terms, weight).run()


def needs_s(sizes: Ints | Floats, pair: Ints, net: Network) -> Floats:
    """Return how long each link direction needs for its bytes; arguments are those of `busiest`."""
    each = np.bincount(pair, sizes).astype(np.float64, copy=False)
    needed_s: Floats = sums(net.paths, each, net.links) / np.maximum(net.rate, LEAST_RATE)
    needed_s[:FIRST_LINK] = 0
    return needed_s


def busiest(sizes: Ints | Floats, pair: Ints, net: Network) -> tuple[float, Hop]:
    """Return how long the link direction that needs the longest for its bytes needs, and it.

    `sizes` has the bytes of each transfer, `pair` the pair of ranks that it is between.
    """
    needed_s = needs_s(sizes, pair, net)[FIRST_LINK:]
    number = int(needed_s.argmax())
    return float(needed_s[number]), net.hops[number]


def busiest_flows(transfers: Transfers, pair: Ints, net: Network) -> tuple[Hop, Ints, int, float]:
    """Return the busiest link, the transfers on it, their grain in bytes, and the grains of one."""
    _, hop = busiest(transfers.size_bytes, pair, net)
    number = FIRST_LINK + net.hops.index(hop)
    on_link = np.flatnonzero((net.paths[pair] == number).any(axis=1))
    grain_bytes = int(_grains_bytes(net)[pair[on_link]].max())
    return hop, on_link, grain_bytes, float(np.median(transfers.size_bytes[on_link]) / grain_bytes)


def _grains_bytes(net: Network) -> Ints:
    """Return the bytes of each pair's flow that leave at a time."""
    forwarded = np.array([bool(kinds) and kinds[0] in OF_HB for kinds in net.classes])
    windows = net.roce.mtu * net.roce.window * net.queue_pairs
    by_roce = np.where(forwarded[net.class_of], windows, net.roce.mtu)
    grains: Ints = np.where(net.by_roce, by_roce, net.segment_bytes)
    return grains


def lower_bound_s(transfers: Transfers, pair: Ints, net: Network) -> float:
    """The busiest link's load over its rate, in seconds: no measurement may be shorter.

    Two parts of the load leave at once and do not count: the burst of the token bucket, and the
    last segment, for which the bucket may go into debt.
    """
    sizes = net.wire_bytes(transfers.size_bytes, pair)
    at_once = net.burst + min(float(sizes.max()), wire_bytes(net.segment_bytes))
    least_s = needs_s(sizes, pair, net) - at_once / np.maximum(net.rate, LEAST_RATE)
    return float(least_s[FIRST_LINK:].max(initial=0.0))


def _always(fabric: Sequence[Network]) -> Network:
    """Return the links that a pair crosses whenever it has a path, at their highest rates."""
    net, links = fabric[0], fabric[0].links
    for other in fabric[1:]:
        own = net.paths[:, :, None]
        kept = (own == other.paths[:, None]).sum(2) >= (own == net.paths[:, None]).sum(2)
        paths = np.where(kept | (other.paths[:, :1] == NO_PATH), net.paths, PADDING)
        rate, burst = np.maximum((net.rate, net.burst), (other.rate[:links], other.burst[:links]))
        net = replace(net, paths=paths, rate=rate, burst=burst)
    return net
