"""How long queue pairs wait for answers, where queues are longer than those of an even fabric."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from model.fabric.build import build_topology
from model.fabric.health import Epoch, Health
from model.fabric.spec import FabricSpec
from model.fabric.transport import Transport
from model.faults import Fault, health_under, rates_left
from model.prediction.fluid import busiest
from model.prediction.network import networks

# Paths of pairs that are followed: those of a hash one by one, about a minute for this many. 1024
# GPUs have a million on each port of a NIC.
MOST_PATHS = 1 << 21


def with_timeout(
    spec: FabricSpec, faults: Sequence[Fault] = (), tell: Callable[[str], None] = lambda _: None
) -> FabricSpec:
    """Return the fabric, with a longer default timeout where queues may be longer than by default.

    More pairs of GPUs than there are other GPUs may share a link: one of few uplinks or of a shared
    NIC, that of a hash or of custom wiring, one that faults leave. Queues of more than
    `MOST_PATHS` are not counted. `tell` is told of that count, which may take minutes, before it.
    """
    is_default = spec.transport is Transport.ROCE and spec.roce.timeout_s is None
    if not is_default or spec.domains == 1 or (spec.has_plain_links and not faults):
        return spec
    topology = build_topology(spec)
    slowed_bps = rates_left(topology, faults)
    # Packets wait at a slow link before it is drained, and elsewhere then.
    healths = Health(rates_bps=slowed_bps), health_under(topology, faults)
    epochs = [Epoch(topology, health) for health in healths[: 1 + bool(faults)]]
    is_followed = spec.gpus**2 * spec.lanes * spec.entropies <= MOST_PATHS
    if is_followed:
        tell(f"{spec.kind}: the paths of all queue pairs, for their timeout")
    queue_s = longest_queue_s(epochs) if is_followed else 0.0
    slowest_bps = min([*slowed_bps.values(), *spec.emulated_rates_bps.values()])
    timeout_s = spec.answered_within_s(slowest_bps, queue_s)
    if timeout_s == spec.retransmission_timeout_s:
        return spec
    return replace(spec, roce=replace(spec.roce, timeout_s=timeout_s))


def longest_queue_s(epochs: Sequence[Epoch]) -> float:
    """Seconds that the longest queue of a fabric takes to empty, in any of these epochs.

    All queue pairs of GPUs in different HB domains have full windows in the queues of their links.
    """
    topology = epochs[0].topology
    spec, gpus = topology.spec, topology.gpus
    # Queue pairs between two ports differ in their paths, if at all, by the number of their turn.
    turns = spec.turns if spec.entropies > 1 else 1
    domain, shape = np.array([gpu.domain for gpu in gpus]), (len(gpus), len(gpus))
    source, destination, lane, turn = np.indices((*shape, spec.lanes, turns)).reshape(4, -1)
    apart = domain[source] != domain[destination]
    pairs = source[apart], destination[apart], lane[apart], turn[apart]
    each = np.arange(len(pairs[0]))
    windows_bytes = spec.roce.window * spec.roce.frame_bytes * spec.roce.queue_pairs // turns
    sizes = np.full(len(each), windows_bytes)
    return max(busiest(sizes, each, net)[0] for net in networks(epochs, gpus, pairs))
