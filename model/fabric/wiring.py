"""The network above the NICs of a custom fabric: links between GPUs and switches of any names."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple


class Wire(NamedTuple):
    """A link: its lower end is a GPU, or the switch that is nearer to the GPUs.

    `rate_bps` is the real platform's rate in bit/s, per direction; `delay_s` is added to packets,
    of which the part `loss` is lost.
    """

    lower: str
    upper: str
    rate_bps: int
    delay_s: float = 0.0
    loss: float = 0.0


Wiring = tuple[Wire, ...]


def neighbours(wires: Iterable[Wire]) -> dict[str, list[str]]:
    """The nodes at the other ends of each node's links, in the order of the links."""
    found: dict[str, list[str]] = defaultdict(list)
    for wire in wires:
        found[wire.lower].append(wire.upper)
        found[wire.upper].append(wire.lower)
    return found


def tiers(wires: Sequence[Wire], gpus: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """The switches that GPUs reach, by their distance in links from the nearest GPU.

    Those of a tier are in the order in which links name them.
    """
    near, known, found = neighbours(wires), set(gpus), list[tuple[str, ...]]()
    tier = tuple(known)
    while tier := _beyond(near, tier, known):
        known |= set(tier)
        found.append(tier)
    return tuple(found)


def _beyond(near: dict[str, list[str]], tier: Iterable[str], known: set[str]) -> tuple[str, ...]:
    next_ones = {node for one in tier for node in near[one]} - known
    return tuple(node for node in near if node in next_ones)


def divisors(wires: Sequence[Wire], gpus: Iterable[str]) -> dict[str, int]:
    """For each switch, by how many links a packet for a GPU can have come to its tier.

    Tiers that divide a destination's number by it before they choose among links do not repeat the
    choice of the tier below (D-mod-K routing, Zahavi 2010).
    """
    found, product, all_tiers = dict[str, int](), 1, tiers(wires, gpus)
    tier_of = {switch: number for number, tier in enumerate(all_tiers) for switch in tier}
    ups = Counter(w.lower for w in wires if tier_of.get(w.lower) != tier_of[w.upper])
    for tier in all_tiers:
        found |= dict.fromkeys(tier, product)
        product *= max(1, *(ups[switch] for switch in tier))
    return found


@lru_cache(maxsize=4)
def longest_delay_s(wires: Wiring, gpus: tuple[str, ...], each_s: float) -> float:
    """The most seconds that the links of a shortest path between two GPUs delay a packet.

    Each link adds `each_s` to its own delay. GPUs with the same links are equally far from others.
    """
    near: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for wire in wires if each_s or any(wire.delay_s for wire in wires) else ():
        near[wire.lower].append((wire.upper, wire.delay_s + each_s))
        near[wire.upper].append((wire.lower, wire.delay_s + each_s))
    starts = {frozenset(near[gpu]): gpu for gpu in gpus}.values()
    return max(_farthest_s(near, gpu, set(gpus)) for gpu in starts)


def _farthest_s(near: dict[str, list[tuple[str, float]]], start: str, gpus: set[str]) -> float:
    """The most seconds on shortest paths, of which any is taken, from a GPU to another one.

    Where links alone do not lead to all, a path to a transit GPU and one of its domain follow each
    other.
    """
    known, layer, most_s = {start}, {start: 0.0}, 0.0
    while layer:
        further = dict[str, float]()
        # Other GPUs are ends of paths.
        for node in layer.keys() - (gpus - {start}):
            for other, link_s in near[node]:
                if other not in known:
                    further[other] = max(further.get(other, 0.0), layer[node] + link_s)
        known |= further.keys()
        most_s = max(most_s, *(further[gpu] for gpu in further.keys() & gpus), 0.0)
        layer = further
    return most_s if gpus <= known else 2 * most_s


def upward(wires: Sequence[Wire], gpus: Iterable[str]) -> Wiring:
    """The same links, each from its lower to its upper end; in a tier, the first is the lower."""
    own = list(gpus)
    switches = [switch for tier in tiers(wires, own) for switch in tier]
    place = {node: number for number, node in enumerate((*own, *switches))}
    return tuple(
        wire
        if place[wire.lower] < place[wire.upper]
        else wire._replace(lower=wire.upper, upper=wire.lower)
        for wire in wires
    )
