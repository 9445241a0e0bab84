"""Whether the time of a job on a degraded fabric depends on how its flows share links."""

from functools import lru_cache

import numpy as np

from model.arrays import Floats, Ints
from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.spec import FabricSpec
from model.fabric.topology import LinkKind
from model.faults import Fault, health_under
from model.prediction.fluid import arrivals_s
from model.prediction.load import is_contended
from model.prediction.network import OF_HB, Network, PathClass, networks, pairs_of
from model.workload.transfers.lanes import spread
from traffic_gen.workloads.task import (
    BANDWIDTH_ALONE,
    EXACT_UP_TO_GPUS,
    MOST_SIMULATED,
    Task,
)

# Rate of a forwarded flow over that of a GPU's own one where sharing is uneven: it has up to four
# segments in the NIC's queue, the other two (`model.fabric.shaping.buffered_segments`).
UNEVEN_WEIGHT = 2.0


@lru_cache(maxsize=64)
def change_by_uneven_shares(task: Task, spec: FabricSpec, faults: tuple[Fault, ...]) -> float:
    """Return the part by which the time on a degraded fabric changes if shares are uneven.

    Forwarded flows then have twice the share of others. 0 without flows that contend, and for more
    GPUs or transfers than are simulated.
    """
    if spec.gpus > EXACT_UP_TO_GPUS:
        return 0.0
    topology = build_topology(spec)
    sent, gpus = spread(task.transfers(), spec), topology.job_gpus
    if len(sent) > MOST_SIMULATED:
        return 0.0
    pairs, pair = pairs_of(sent, len(gpus))
    (net,) = networks([Epoch(topology, health_under(topology, faults))], gpus, pairs)
    weight = _weights(net, pair)
    if (weight == 1.0).all() or not is_contended(sent, pair, net):
        return 0.0
    at_once = dict.fromkeys(net.classes, 0.0)
    fair_s, uneven_s = (
        float(arrivals_s(sent, pair, [net], at_once, BANDWIDTH_ALONE, shares).max())
        for shares in (None, weight)
    )
    return abs(uneven_s / fair_s - 1)


def _weights(net: Network, pair: Ints) -> Floats:
    """Return the weight of each transfer."""
    forwarded = np.array([_is_forwarded(kinds) for kinds in net.classes])
    return np.where(forwarded[net.class_of[pair]], UNEVEN_WEIGHT, 1.0)


def _is_forwarded(kinds: PathClass) -> bool:
    """Whether another GPU sends the packets on a path of these kinds of links over its NIC."""
    return bool(kinds) and kinds[0] in OF_HB and LinkKind.NIC in kinds
