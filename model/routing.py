"""Where a packet goes next: the one path function of the controller and of the model.

The controller turns `next_hop` into rules and host routes, the prediction follows it link by
link: forwarding and prediction cannot disagree. Forwarding is by destination alone, so the
paths to a destination form a tree and cannot loop.
"""

from model.fabric import FabricKind
from model.topology import (
    Gpu,
    Hop,
    NodeKind,
    Topology,
    gpu_name,
    hb_switch_name,
    rail_switch_name,
)


class Unreachable(Exception):
    """No way leads from a node to a GPU."""


def path(topology: Topology, source: Gpu, destination: Gpu) -> tuple[Hop, ...]:
    """The hops that a packet takes from `source` to `destination`, or `Unreachable`."""
    hops = []
    node = source.name
    while node != destination.name:
        hop = next_hop(topology, node, destination)
        if hop is None:
            raise Unreachable(f"{node} has no way to {destination.name}")
        hops.append(hop)
        node = hop.receiver
    return tuple(hops)


def next_hop(topology: Topology, node: str, destination: Gpu) -> Hop | None:
    """The hop by which `node` forwards what is for `destination`; `None` if it has no way."""
    kind = node_kind(node)
    if kind is NodeKind.GPU:
        return _from_gpu(topology, topology.gpu_by_name[node], destination)
    if kind is NodeKind.HB_SWITCH:
        return _from_hb_switch(topology, node, destination)
    if kind is NodeKind.RAIL_SWITCH:
        return _from_rail_switch(topology, node, destination)
    link = topology.link_between(rail_switch_name(destination.rail), node)
    return Hop(link, node)


def node_kind(node: str) -> NodeKind:
    """What a node is, by its name."""
    for prefix, kind in _KIND_BY_PREFIX:
        if node.startswith(prefix):
            return kind
    raise ValueError(f"no node of a fabric is called {node!r}")


_KIND_BY_PREFIX = (
    ("hb", NodeKind.HB_SWITCH),
    ("rail", NodeKind.RAIL_SWITCH),
    ("spine", NodeKind.SPINE_SWITCH),
    ("d", NodeKind.GPU),
)


def _from_gpu(topology: Topology, gpu: Gpu, destination: Gpu) -> Hop:
    """Into the HB domain for its own GPUs and, rail-only, for every other rail."""
    rail_only = topology.spec.kind is FabricKind.RAIL_ONLY
    crosses_rails = rail_only and gpu.rail != destination.rail
    if gpu.domain == destination.domain or crosses_rails:
        upper = hb_switch_name(gpu.domain)
    else:
        upper = rail_switch_name(gpu.rail)
    return Hop(topology.link_between(gpu.name, upper), gpu.name)


def _from_hb_switch(topology: Topology, switch: str, destination: Gpu) -> Hop:
    """To the destination, or to the GPU here that sits on the destination's rail."""
    domain = topology.hb_switches.index(switch)
    peer = gpu_name(domain, destination.rail)
    return Hop(topology.link_between(peer, switch), switch)


def _from_rail_switch(topology: Topology, switch: str, destination: Gpu) -> Hop | None:
    rail = topology.rail_switches.index(switch)
    if rail == destination.rail:
        return Hop(topology.link_between(destination.name, switch), switch)
    if not topology.spine_switches:
        return None
    spine = topology.spine_switches[spine_for(topology, destination)]
    return Hop(topology.link_between(switch, spine), switch)


def spine_for(topology: Topology, destination: Gpu) -> int:
    """The number of the spine that carries what is for `destination`.

    The destinations' domains take the spines in turn, from the one that the seed says. So any
    step in which each domain sends to one other loads all uplinks evenly, and with as many spines
    as domains no two flows of a step share a link: what hashing promises only on average.
    """
    return (destination.domain + topology.spec.seed) % len(topology.spine_switches)
