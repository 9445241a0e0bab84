"""The fabric as the controller sees it: where NIC links lead, which links work, and how fast.

Pure: callers pass the time. A link has failed when an end has no carrier, or a direction loses its
probes; it is unusable at once. A link that returns is usable only after a hold-down, doubled for
each further failure within `FLAP_WINDOW_S`: a flapping link would otherwise take its traffic down
with every flap.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from model.fabric.build import (
    CrossConnects,
    build_topology,
    exchanged,
    ocs_port_at,
    straight_cross_connects,
)
from model.fabric.health import Health
from model.fabric.link_probes import LOST_PROBES
from model.fabric.topology import Link, LinkKind, Topology
from model.routing.drain import drain

Facts = dict[str, object]

# Relative tolerance: shapers round a link's rate to whole bytes per second, or coarser.
NOMINAL_WITHIN = 0.01
HOLD_DOWN_S = 0.1
LONGEST_HOLD_DOWN_S = 2.0
FLAP_WINDOW_S = 10.0


@dataclass
class LinkState:
    """Carrier, lost probes and failure times of one link."""

    lost_carrier: set[str] = field(default_factory=set)
    misses: dict[str, int] = field(default_factory=dict)
    failures_s: list[float] = field(default_factory=list)
    good_since_s: float | None = float("-inf")

    def works(self) -> bool:
        """Whether both ends have carrier and neither direction loses its probes."""
        return not self.lost_carrier and all(n < LOST_PROBES for n in self.misses.values())

    def has_gray_failure(self) -> bool:
        """Whether the link fails although its ends have carrier."""
        return not self.lost_carrier and not self.works()

    def carrier(self, end: str, up: bool, now_s: float) -> None:
        """Record whether one end of the link has carrier."""
        if up:
            self.lost_carrier.discard(end)
        else:
            self.lost_carrier.add(end)
        self._update(now_s)

    def probed(self, sender: str, arrived: bool, now_s: float) -> None:
        """Record whether the last probe of one direction has arrived."""
        self.misses[sender] = 0 if arrived else self.misses.get(sender, 0) + 1
        self._update(now_s)

    def _update(self, now_s: float) -> None:
        """Record the time if the link has just failed or just started to work again."""
        if not self.works():
            if self.good_since_s is not None:
                recent = [moment for moment in self.failures_s if moment > now_s - FLAP_WINDOW_S]
                self.failures_s = [*recent, now_s]
            self.good_since_s = None
        elif self.good_since_s is None:
            self.good_since_s = now_s

    def is_usable(self, now_s: float) -> bool:
        """Whether the link works, and its hold-down is over."""
        if self.good_since_s is None:
            return False
        hold_down_s = HOLD_DOWN_S * 2.0 ** (len(self.failures_s) - 1)
        return self.good_since_s + min(hold_down_s, LONGEST_HOLD_DOWN_S) <= now_s


class ObservedFabric:
    """Collects events of ports, probes and processes; the methods return changes of link state.

    Links are keyed by the interface at their upper end: it stays the same when an optical switch
    moves a NIC link to another switch.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._cross_connects: CrossConnects = straight_cross_connects(topology.spec)
        self._states: defaultdict[str, LinkState] = defaultdict(LinkState)
        self._failed: frozenset[str] = frozenset()
        # Keys of links that are to be drained.
        self._drained: set[str] = set()
        # Rates by link, then by the interface of the sending end.
        self._rates_bps: defaultdict[str, dict[str, int]] = defaultdict(dict)

    def port(self, switch: str, interface: str, number: int, up: bool, now_s: float) -> list[Facts]:
        """Record the state of a port of a rail or spine switch."""
        link = self.topology.link_by_interface.get(interface)
        if link is None:
            return []
        if link.kind is LinkKind.NIC and (switch, number) != (link.upper.node, link.upper.number):
            if not up:  # the link has moved, and its old port is reported after its new one
                return []
            self._move(link, switch, number)
        self._states[link.upper.interface].carrier(interface, up, now_s)
        return self.look(now_s)

    def _move(self, link: Link, switch: str, number: int) -> None:
        """Update the topology: an optical switch has moved a NIC link to this port."""
        rail = self.topology.switch_by_name[switch].rail
        if rail is not None:
            gpu = self.topology.gpu_by_name[link.lower.node]
            self._cross_connects = exchanged(self._cross_connects, gpu, ocs_port_at(rail, number))
            self.topology = build_topology(self.topology.spec, self._cross_connects)
            # The switch before, which sent probes over the link, sends no more.
            self._states[link.upper.interface].misses.pop(link.upper.node, None)

    def interface(self, interface: str, up: bool, now_s: float) -> list[Facts]:
        """Record the state of an interface of any switch, as the kernel reports it."""
        link = self.topology.link_by_interface.get(interface)
        if link is None:
            return []
        self._states[link.upper.interface].carrier(f"{interface} (kernel)", up, now_s)
        return self.look(now_s)

    def drained(self, interface: str, *, asked: bool) -> list[Facts]:
        """Record whether an operator asks to drain a link, by the interface at a switch."""
        link = self.topology.link_by_interface.get(interface)
        if link is None or asked == (link.upper.interface in self._drained):
            return []
        if interface != link.carrier_end.interface:
            return []  # the mark is at the end that also loses carrier
        self._drained ^= {link.upper.interface}
        if not asked and link.upper.interface in self._failed:
            return []  # its return is told when its hold-down is over
        return [{"link": link.name, "drained" if asked else "usable": "operator"}]

    def probed(self, link: Link, sender: str, arrived: bool, now_s: float) -> list[Facts]:
        """Record whether the last probe of one direction of a link has arrived."""
        self._states[link.upper.interface].probed(sender, arrived, now_s)
        return [] if arrived else self.look(now_s)

    def rate(self, interface: str, rate_bps: int) -> list[Facts]:
        """Record a port's sending rate in bit/s. A link is as slow as the slower of its ends.

        Unlike carrier, a rate has no hold-down, even back to nominal: the link keeps working.
        """
        link = self.topology.link_by_interface.get(interface)
        if link is None:
            return []
        before = self._present_bps(link)
        self._rates_bps[link.upper.interface][interface] = rate_bps
        now = self._present_bps(link)
        if now == before:
            return []
        state = "degraded" if now < link.rate_bps else "usable"
        return [{"link": link.name, state: "rate", "rate_bps": now}]

    def _present_bps(self, link: Link) -> int:
        """A link's rate in bit/s: nominal if within `NOMINAL_WITHIN` of it, or if none is known."""
        slowest = min(self._rates_bps[link.upper.interface].values(), default=link.rate_bps)
        return slowest if slowest < (1 - NOMINAL_WITHIN) * link.rate_bps else link.rate_bps

    def dead(self, gpu: str, now_s: float) -> list[Facts]:
        """Record that a GPU's proxy, and so both its links, are dead."""
        for link in self.topology.links_of(gpu):
            self._states[link.upper.interface].carrier(gpu, False, now_s)
        return self.look(now_s)

    def look(self, now_s: float) -> list[Facts]:
        """Return the links that have failed or become usable since the last call."""
        failed = self._unusable(now_s)
        if failed == self._failed:
            return []
        changes = [*self._changes(failed - self._failed, "failed")]
        changes += self._changes(self._failed - failed - self._drained, "usable")
        self._failed = failed
        return changes

    def _unusable(self, now_s: float) -> frozenset[str]:
        """The links that must not be used: failed, or in hold-down."""
        return frozenset(key for key, state in self._states.items() if not state.is_usable(now_s))

    def _changes(self, links: frozenset[str], state: str) -> Iterator[Facts]:
        for interface in sorted(links):
            how = "probes" if self._states[interface].has_gray_failure() else "carrier"
            yield {"link": self.topology.link_by_interface[interface].name, state: how}

    def health(self, now_s: float, waiting: frozenset[str] = frozenset()) -> Health:
        """The fabric's health, with links drained that are too slow to be worth using.

        Links that are `waiting` work, and count as failed.
        """
        links = self.topology.link_by_interface
        failed = frozenset(links[key].name for key in self._unusable(now_s)) | waiting
        asked = {links[key].name for key in self._drained} - failed
        health = drain(self.topology, Health(failed | asked, self._slow_bps()))
        return replace(health, drained=health.drained | asked)

    def _slow_bps(self) -> dict[str, int]:
        """The rates of degraded links in bit/s, by link name."""
        links = (self.topology.link_by_interface[key] for key in self._rates_bps)
        rates = ((link, self._present_bps(link)) for link in links)
        return {link.name: bps for link, bps in rates if bps < link.rate_bps}
