"""How long queue pairs wait for answers: behind all queues of a path, one after the other."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from model.arrays import Ints
from model.fabric.build import build_topology
from model.fabric.health import Epoch, Health
from model.fabric.spec import FabricSpec
from model.fabric.transport import Transport
from model.faults import Fault, health_under, rates_left
from model.prediction.fluid import needs_s
from model.prediction.network import SAME_SHARE, Network, networks

# Paths of pairs that are followed: those of a hash one by one, about a minute for this many. 1024
# GPUs have a million on each port of a NIC.
MOST_PATHS = 1 << 21


def with_timeout(
    spec: FabricSpec, faults: Sequence[Fault] = (), tell: Callable[[str], None] = lambda _: None
) -> FabricSpec:
    """Return the fabric, with a default timeout by the queues of its paths, if those are few.

    Pairs of GPUs share links by the choice of spines, by shared NICs or custom wiring, and those
    that faults leave. More than `MOST_PATHS` paths are not followed. `tell` is told of that
    count, which may take minutes, before it.
    """
    is_default = spec.transport is Transport.ROCE and spec.roce.timeout_s is None
    if not is_default or spec.domains == 1:
        return spec
    epochs = queue_epochs(spec, faults)
    is_followed = _has_few_paths(spec)
    if is_followed:
        tell(f"{spec.kind}: the paths of all queue pairs, for their timeout")
    queues_s = longest_wait_s(epochs) if is_followed else None
    slowest_bps = min([*epochs[0].health.rates_bps.values(), *spec.emulated_rates_bps.values()])
    timeout_s = spec.answered_within_s(slowest_bps, queues_s)
    if timeout_s == spec.retransmission_timeout_s:
        return spec
    return replace(spec, roce=replace(spec.roce, timeout_s=timeout_s))


def queue_epochs(spec: FabricSpec, faults: Sequence[Fault]) -> list[Epoch]:
    """Return the fabric as queues meet it: at a slow link before it is drained, then elsewhere."""
    topology = build_topology(spec)
    healths = Health(rates_bps=rates_left(topology, faults)), health_under(topology, faults)
    return [Epoch(topology, health) for health in healths[: 1 + bool(faults)]]


def late_answers(epochs: Sequence[Epoch]) -> str:
    """Say that a given timeout may come before an answer; empty if not, or of very many paths."""
    spec = epochs[0].topology.spec
    if (given_s := spec.roce.timeout_s) is None or not _has_few_paths(spec):
        return ""
    needed_s = spec.answered_within_s(0, longest_wait_s(epochs))
    said = f"the timeout is {given_s:.3g} s, and an answer may take {needed_s:.3g} s"
    return f"{said} behind full queues" if given_s < needed_s * (1 - SAME_SHARE) else ""


def _has_few_paths(spec: FabricSpec) -> bool:
    return spec.gpus**2 * spec.lanes * spec.entropies <= MOST_PATHS


def longest_wait_s(epochs: Sequence[Epoch]) -> float:
    """Seconds that a packet waits at most in all queues of its path, in any of these epochs.

    All queue pairs of GPUs in different HB domains have full windows in the queue of each link.
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
    return max(_longest_wait_s(sizes, each, net) for net in networks(epochs, gpus, pairs))


def _longest_wait_s(sizes: Ints, pair: Ints, net: Network) -> float:
    """Seconds in the queues of a path at most: of several ways, by the slowest."""
    at_link_s = needs_s(sizes, pair, net)[net.paths]
    share = np.broadcast_to(net.share, net.links)[net.paths]
    of_way_s = np.where(share < 1, at_link_s, 0).max(axis=1, keepdims=True)
    waits_s = np.where(share < 1, of_way_s * share, at_link_s).sum(axis=1)
    return float(waits_s.max(initial=0.0))
