"""Draining of slow links whose traffic is faster on other links."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from model.fabric.health import Health
from model.fabric.topology import Link, LinkKind, Topology
from model.routing.paths import LiveLinks, Routing


def drain(topology: Topology, seen: Health) -> Health:
    """Drain the slow links whose traffic is faster on the other links of their tier.

    Of m links that share their traffic evenly, the slowest sets the pace. Without one of them, the
    others carry m/(m-1) of their load; with it, equal ones take nominal/rate times as long. So one
    slow link of equal ones is drained below (m-1)/m of its nominal rate; of several, the number
    drained is the one that maximizes the number of links left times the lowest rate among them.

    The tier of a NIC link is the NIC links of its GPU; of a GPU that has one, those of its domain,
    of GPUs with both links live, or of its leaf HB switch if the trunk has failed. That of an
    uplink is the uplinks of its rail switch. HB links and trunks are never drained: no other link
    is as fast; nor are links of two rail switches, which are in the tiers of both.
    """
    slow = {name: bps for name, bps in seen.rates_bps.items() if name not in seen.failed}
    if not slow:
        return Health(seen.broken)
    draining = _Draining(topology, seen.broken, slow)
    for tier in draining.slow_tiers():
        draining.decide(tier)
    kept = {name: bps for name, bps in slow.items() if name not in draining.drained}
    return Health(seen.broken | draining.drained, kept, frozenset(draining.drained))


# Links that share their traffic: the kind, and the name of the HB switch, GPU or rail switch.
Tier = tuple[LinkKind, str]
# The part of the network or the spine switch that a link gives access to.
Place = str


class _Draining:
    """Decisions tier by tier; each considers only the links that earlier ones left."""

    def __init__(self, topology: Topology, broken: frozenset[str], slow: dict[str, int]) -> None:
        self._topology = topology
        self._broken = broken
        self._live = LiveLinks(topology, Health(broken))
        self._slow = slow
        self.drained: set[str] = set()
        self._tiers = self._live_tiers()
        self._parts = self._found_parts()

    def slow_tiers(self) -> list[Tier]:
        """The tiers with slow links, the one with the slowest link first."""
        lowest = {
            tier: min(self._share(link) for link in links) for tier, links in self._tiers.items()
        }
        return sorted((t for t in lowest if lowest[t] < 1), key=lambda t: (lowest[t], str(t)))

    def decide(self, tier: Tier) -> None:
        """Drain the best number of a tier's slowest links; if several are equal, the fewest."""
        links = self._tiers[tier]
        best = max(self._options(tier), key=lambda kept: len(kept) * min(map(self._rate_bps, kept)))
        drained = {link.name for link in links if link not in best}
        if not self._topology.spec.nic.links or self._reaches_all(self.drained | drained):
            self.drained |= drained

    def _options(self, tier: Tier) -> Iterator[list[Link]]:
        """Yield candidate link sets: all, then without one more, the slowest that no peer needs."""
        kept, rail_switches = self._tiers[tier], self._topology.rail_switches
        needed = [places for places in self._partners(tier) if places & self._places(kept)]
        yield kept
        for link in sorted(kept, key=lambda link: (self._rate_bps(link), link.name)):
            left = [other for other in kept if other is not link]
            is_in_two_tiers = link.kind is LinkKind.UPLINK and link.upper.node in rail_switches
            may_go = self._share(link) < 1 and not is_in_two_tiers
            if may_go and left and all(p & self._places(left) for p in needed):
                kept = left
                yield kept

    def _rate_bps(self, link: Link) -> float:
        return self._slow.get(link.name, link.rate_bps)

    def _share(self, link: Link) -> float:
        """The rate of a link as a fraction of its nominal rate."""
        return self._rate_bps(link) / link.rate_bps

    def _reaches_all(self, drained: set[str]) -> bool:
        """Whether each GPU reaches the next one without these links if it does with them.

        The tiers of a custom fabric may be joined by more switches than `_partners` knows.
        """
        gpus = self._topology.job_gpus
        before, after = (
            [routing.path_if_any(*pair) is not None for pair in pairwise((*gpus, gpus[0]))]
            for broken in (self._broken, self._broken | drained)
            for routing in [Routing(self._topology, Health(broken))]
        )
        return before == after

    def _is_live(self, link: Link) -> bool:
        return link.name not in self._broken and link.name not in self.drained

    def _live_tiers(self) -> dict[Tier, list[Link]]:
        tiers: defaultdict[Tier, list[Link]] = defaultdict(list)
        for gpu, nics in self._live.own_nics.items():
            alone = self._topology.spec.lanes > 1
            place = gpu.name if alone else self._live.crossbar[gpu]
            if place is not None and nics:
                tiers[LinkKind.NIC, place] += nics.values()
        for switch in self._topology.rail_switches:
            if hops := self._live.uplinks[switch]:
                tiers[LinkKind.UPLINK, switch] = [hop.link for hop in hops]
        return tiers

    # A link can only be drained if everything reached over it is also reached over another.

    def _places(self, links: Iterable[Link]) -> set[Place]:
        """The network parts that NIC links lead to, or the spine switches that uplinks lead to."""
        return {self._parts.get(link.upper.node, link.upper.node) for link in links}

    def _partners(self, tier: Tier) -> list[set[Place]]:
        """For each peer that a tier's links may have to reach, the places that give access to it.

        Peers of uplinks are rail switches; peers of NIC links are domains, leaf HB switches without
        a trunk, and single GPUs whose HB link has failed, so that only their NIC link reaches them.
        """
        others = [
            self._places(filter(self._is_live, links))
            for other, links in self._tiers.items()
            if other[0] is tier[0] and other != tier
        ]
        if tier[0] is LinkKind.UPLINK:
            return others
        own = self._live.own_nics.items()
        lone = [nics.values() for gpu, nics in own if nics and not self._live.crossbar[gpu]]
        return [*others, *map(self._places, lone)]

    def _found_parts(self) -> dict[str, Place]:
        """For each rail switch, the first rail switch that it is connected to by uplinks.

        Draining never disconnects them: they keep a common spine switch.
        """
        parts: dict[str, Place] = {}
        for switch in self._topology.rail_switches:
            waiting = [switch]
            while waiting:
                here = waiting.pop()
                if here not in parts:
                    parts[here] = parts.get(switch, switch)
                    waiting += [hop.receiver for hop in self._live.uplinks[here]]
        return {switch: parts[switch] for switch in self._topology.rail_switches}
