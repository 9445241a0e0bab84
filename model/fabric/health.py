"""Health of a fabric: its failed and its degraded links; epochs of constant health."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from model.fabric.shaping import Shaper
from model.fabric.topology import Hop, Link, Topology


@dataclass(frozen=True)
class Health:
    """Names of links that are not used, and the rates in bit/s of degraded links, 0 of broken ones.

    All links of a dead switch or GPU have failed. A link that fails in one direction counts as
    failed: no switch and no NIC uses half a link. The `drained` links are a subset of `failed`:
    they work, but are too slow to be worth using.
    """

    failed: frozenset[str] = frozenset()
    rates_bps: Mapping[str, int] = field(default_factory=dict)
    drained: frozenset[str] = frozenset()

    @property
    def broken(self) -> frozenset[str]:
        """Names of the links that have failed and were not drained."""
        return self.failed - self.drained

    def is_live(self, link: Link) -> bool:
        """Whether a link is used."""
        return link.name not in self.failed

    def rate_bps(self, hop: Hop) -> int:
        """The rate of one direction of a link."""
        return self.rates_bps.get(hop.link.name, hop.link.rate_bps)

    def shaper(self, hop: Hop) -> Shaper:
        """The token bucket of one direction of a link."""
        return Shaper(self.rate_bps(hop), hop.link.depth_s)


HEALTHY = Health()


def without(topology: Topology, nodes: Iterable[str] = (), links: Iterable[str] = ()) -> Health:
    """The health of a fabric whose `nodes` are dead and whose `links` have failed."""
    lost = {link.name for node in nodes for link in topology.links_of(node)}
    return Health(frozenset({*links, *lost}))


@dataclass(frozen=True)
class Epoch:
    """State of the fabric from `begin_s` on: its topology and its health.

    `beside` has what other traffic takes of a link direction, in bytes/s.
    """

    topology: Topology
    health: Health = HEALTHY
    begin_s: float = 0.0
    beside: Mapping[Hop, float] = field(default_factory=dict)
