"""Which slow links are given up, as their traffic is better off on others."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from model.fabric.health import Health
from model.fabric.topology import Gpu, Link, LinkKind, Topology


def drain(topology: Topology, seen: Health) -> Health:
    """Give up the slow links whose traffic is better off on the other links of their tier.

    Of m links that are equal and share their traffic evenly, the slowest sets the pace. Without
    one of them the others carry m/(m-1) of what they did; with it, all wait nominal/rate times as
    long: a slow link is drained below (m-1)/m of its nominal rate, and of several so many that
    the number of links that are left, times the lowest rate among them, is highest.

    The tier of a NIC link are its domain's, of GPUs both of whose links work; of an uplink, its
    rail switch's. Nothing is as fast as an HB link: none is drained.
    """
    slow = {name: bps for name, bps in seen.rates_bps.items() if name not in seen.failed}
    if not slow:
        return Health(seen.broken)
    found = _Draining(topology, seen.broken, slow)
    for tier in found.slow_tiers():
        found.decide(tier)
    kept = {name: bps for name, bps in slow.items() if name not in found.drained}
    return Health(seen.broken | found.drained, kept, frozenset(found.drained))


# Links that share their traffic: those of a domain, by its number, or of a rail switch.
Tier = tuple[LinkKind, int | str]
# Where a link leads, as far as reaching others over it is concerned.
Place = str


class _Draining:
    """The decisions so far: each sees what is left by those before it."""

    def __init__(self, topology: Topology, broken: frozenset[str], slow: dict[str, int]) -> None:
        self._topology = topology
        self._broken = broken
        self._slow = slow
        self.drained: set[str] = set()
        self._tiers = self._found_tiers()
        self._parts = self._found_parts()

    def slow_tiers(self) -> list[Tier]:
        """The tiers with slow links, the slowest link's first."""
        lowest = {
            tier: min(self._share(link) for link in links) for tier, links in self._tiers.items()
        }
        return sorted((t for t in lowest if lowest[t] < 1), key=lambda t: (lowest[t], str(t)))

    def decide(self, tier: Tier) -> None:
        """Drain as many of the slowest links of a tier as is best; in doubt, fewer."""
        links = self._tiers[tier]
        best = max(self._options(tier), key=lambda kept: len(kept) * min(map(self._share, kept)))
        self.drained |= {link.name for link in links if link not in best}

    def _options(self, tier: Tier) -> Iterator[list[Link]]:
        """What can be kept of a tier: all; and with each slow link less, as far as that goes."""
        kept = self._tiers[tier]
        needed = [places for places in self._partners(tier) if places & self._places(kept)]
        yield kept
        for link in sorted(kept, key=lambda link: (self._share(link), link.name)):
            left = [other for other in kept if other is not link]
            if self._share(link) < 1 and left and all(p & self._places(left) for p in needed):
                kept = left
                yield kept

    def _share(self, link: Link) -> float:
        """What a link has of its nominal rate."""
        return self._slow.get(link.name, link.rate_bps) / link.rate_bps

    def _is_live(self, link: Link) -> bool:
        return link.name not in self._broken and link.name not in self.drained

    def _found_tiers(self) -> dict[Tier, list[Link]]:
        found: defaultdict[Tier, list[Link]] = defaultdict(list)
        for gpu in self._topology.gpus:
            hb, nic = self._links_of(gpu)
            if self._is_live(hb) and self._is_live(nic):
                found[LinkKind.NIC, gpu.domain].append(nic)
        for link in self._topology.links:
            if link.kind is LinkKind.UPLINK and self._is_live(link):
                found[LinkKind.UPLINK, link.lower.node].append(link)
        return found

    # A link can only be spared if all that is reached over it is reached as well over another.

    def _places(self, links: Iterable[Link]) -> set[Place]:
        """The parts of the network that NIC links lead into; the spine switches of uplinks."""
        return {self._parts.get(link.upper.node, link.upper.node) for link in links}

    def _partners(self, tier: Tier) -> list[set[Place]]:
        """For each that a tier's links may have to reach, the places where it is found.

        Rail switches; or domains, and GPUs whose HB link has failed and that are found at their
        NIC links alone.
        """
        others = [
            self._places(filter(self._is_live, links))
            for other, links in self._tiers.items()
            if other[0] is tier[0] and other != tier
        ]
        return others if tier[0] is LinkKind.UPLINK else others + self._lone_gpus

    @property
    def _lone_gpus(self) -> list[set[Place]]:
        pairs = (self._links_of(gpu) for gpu in self._topology.gpus)
        return [
            self._places([nic])
            for hb, nic in pairs
            if hb.name in self._broken and nic.name not in self._broken
        ]

    def _links_of(self, gpu: Gpu) -> tuple[Link, Link]:
        return self._topology.link_of(gpu, LinkKind.HB), self._topology.link_of(gpu, LinkKind.NIC)

    def _found_parts(self) -> dict[str, Place]:
        """For each rail switch the first of those that it is joined to by uplinks.

        Draining never parts them: they keep a spine switch in common.
        """
        uplinks: defaultdict[str, list[str]] = defaultdict(list)
        for link in self._topology.links:
            if link.kind is LinkKind.UPLINK and self._is_live(link):
                uplinks[link.lower.node].append(link.upper.node)
                uplinks[link.upper.node].append(link.lower.node)
        parts: dict[str, Place] = {}
        for switch in self._topology.rail_switches:
            waiting = [switch]
            while waiting:
                here = waiting.pop()
                if here not in parts:
                    parts[here] = switch if here == switch else parts[switch]
                    waiting += uplinks[here]
        return {switch: parts[switch] for switch in self._topology.rail_switches}
