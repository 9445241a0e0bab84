"""The pairs of GPUs that a failure experiment probes, and how often."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations

from model.fabric.shaping import ACKNOWLEDGEMENT_BELOW_BYTES, ETHERNET_HEADER_BYTES
from model.fabric.topology import Hop, LinkKind, Topology
from model.faults import Fault, broken_links, health_under
from model.job.placement import Pair, Placement
from model.routing.paths import Routing

# Share of the slowest link on their paths that the probes of all unaffected pairs take.
BACKGROUND_SHARE = 0.005
# The same of affected pairs, which are probed for a short time, as often as this if they can be.
AFFECTED_SHARE = 0.05
SHORTEST_INTERVAL_S = 0.001
# Most probes of unaffected pairs in a second, together: each takes about 20 us of a processor.
BACKGROUND_PER_S = 2000
# The shortest packet that is queued with data.
PROBE_BYTES = ACKNOWLEDGEMENT_BELOW_BYTES + ETHERNET_HEADER_BYTES


def probed_pairs(
    placement: Placement,
    faults: Sequence[Fault],
    most: int,
    later: Placement | None = None,
    lasting: Sequence[Fault] = (),
) -> tuple[Sequence[Pair], Sequence[Pair]]:
    """Return affected pairs that have another path, and all unaffected pairs, each by all lanes.

    Affected are pairs whose paths cross a link that fails with `faults`: those in the placement's
    health, which has the `lasting` faults, and those to which others of `faults` lead.

    At most `most` affected pairs: equally many of each fault that is the last to break some, as far
    as it has so many, evenly spread over these. A pair on links that an optical switch moves, for
    the placement `later`, is not unaffected.
    """
    topology = placement.topology
    moved = _moved(topology, (later or placement).topology)
    before: list[list[Routing]] = []
    for count, fault in enumerate(faults):
        # Links of an earlier fault that is over may be used again, or be held down.
        earlier = {tuple(faults[:count]), tuple(one for one in faults[:count] if one.meets(fault))}
        if fault.for_s is not None:  # the degraded phase begins it again, after those that last
            earlier.add(tuple(f for n, f in enumerate(faults) if n < count or f.for_s is None))
        healths = (health_under(topology, [*lasting, *some]) for some in earlier)
        before.append([Routing(topology, health) for health in healths])
    health = health_under(topology, [*lasting, *faults])
    after = Routing(topology, health)
    broken = [health.failed & broken_links(topology, fault) for fault in faults]
    affected, unaffected = defaultdict[int, list[Pair]](list), []
    for pair in _pairs(placement):
        paths = [
            {hop.link.name for routing in some for hop in routing.path_if_any(*pair) or ()}
            for some in before
        ]
        links = set().union(*paths)
        if links & health.failed:
            if after.path_if_any(*pair) is not None:
                breaks = (n for n, path in enumerate(paths) if path & broken[n])
                affected[max(breaks, default=0)].append(pair)
        elif not links & moved:
            unaffected.append(pair)
    return _spread(affected.values(), most), unaffected


def _spread(groups: Iterable[Sequence[Pair]], most: int) -> list[Pair]:
    """Choose at most so many pairs: of small groups all, of the others equally many, spread."""
    chosen: list[Pair] = []
    waiting = sorted(groups, key=len)
    for place, group in enumerate(waiting):
        count = min(len(group), (most - len(chosen)) // (len(waiting) - place))
        chosen += (group[n * len(group) // count] for n in range(count))
    return chosen


def _pairs(placement: Placement) -> Iterator[Pair]:
    """Yield each pair of GPUs, in different domains by each lane."""
    for source, destination in permutations(placement.gpus, 2):
        apart = source.domain != destination.domain
        for lane in range(placement.spec.lanes if apart else 1):
            yield source, destination.by(lane)


def _moved(before: Topology, after: Topology) -> frozenset[str]:
    """Names in `before` of the NIC links whose rail switch port differs in `after`."""
    later = {link.lower: link.upper for link in after.links if link.kind is LinkKind.NIC}
    nics = (link for link in before.links if link.kind is LinkKind.NIC)
    return frozenset(link.name for link in nics if later[link.lower] != link.upper)


def background_interval_s(
    placement: Placement, pairs: Sequence[Pair], faults: Iterable[Fault] = ()
) -> float:
    """Seconds between two probes of a pair, if all pairs together keep to their budget."""
    after = replace(placement, health=health_under(placement.topology, faults))
    by_rate_s = (_interval_s(p, pairs, PROBE_BYTES, BACKGROUND_SHARE) for p in (placement, after))
    return max(len(pairs) / BACKGROUND_PER_S, *by_rate_s)


def affected_interval_s(
    placement: Placement, faults: Iterable[Fault], pairs: Sequence[Pair], size_bytes: int
) -> float:
    """Seconds between two probes of an affected pair, of this size on a link."""
    after = replace(placement, health=health_under(placement.topology, faults))
    by_rate_s = (_interval_s(p, pairs, size_bytes, AFFECTED_SHARE) for p in (placement, after))
    return max(SHORTEST_INTERVAL_S, *by_rate_s)


def _interval_s(
    placement: Placement, pairs: Sequence[Pair], size_bytes: int, share: float
) -> float:
    """Seconds between two probes of a pair that take at most a share of each link."""
    intervals_s = (
        count * size_bytes * 8 / (share * placement.health.rate_bps(hop))
        for hop, count in pairs_by_hop(placement, pairs).items()
    )
    return max(intervals_s, default=0.0)


def pairs_by_hop(placement: Placement, pairs: Iterable[Pair]) -> Counter[Hop]:
    """Count the pairs whose path crosses each link direction, in the placement's health."""
    routing = Routing(placement.topology, placement.health)
    return Counter(hop for pair in pairs for hop in routing.path_if_any(*pair) or ())
