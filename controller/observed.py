"""The fabric as the controller sees it: where NIC links lead, and which links work."""

from collections.abc import Iterator

from controller.liveness import Liveness
from model.health import Health
from model.topology import (
    Circuits,
    Link,
    LinkKind,
    Topology,
    build_topology,
    exchanged,
    slot_at,
    straight_circuits,
)

Facts = dict[str, object]


class ObservedFabric:
    """Collects what ports, probes and processes tell; each returns what is new about links.

    Links are known by the interface at their upper end: an optical switch may move a NIC link to
    another switch, and it is the same link still.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._circuits: Circuits = straight_circuits(topology.spec)
        self._liveness = Liveness()
        self._failed: frozenset[str] = frozenset()

    def _link(self, interface: str) -> Link | None:
        return self.topology.link_by_interface.get(interface)

    def port(self, switch: str, interface: str, number: int, up: bool, now_s: float) -> list[Facts]:
        """A port of a rail or spine switch."""
        link = self._link(interface)
        if link is None:
            return []
        if link.kind is LinkKind.NIC and (switch, number) != _place(link):
            if not up:  # it has moved, and its former port is heard after its new one
                return []
            self._move(link, switch, number)
        self._liveness.carrier(link.upper.interface, interface, up, now_s)
        return self.look(now_s)

    def _move(self, link: Link, switch: str, number: int) -> None:
        """An optical switch has moved a NIC link: it has come up at another port."""
        rail = self.topology.switch_by_name[switch].rail
        if rail is not None:
            gpu = self.topology.gpu_by_name[link.lower.node]
            self._circuits = exchanged(self._circuits, gpu, slot_at(rail, number))
            self.topology = build_topology(self.topology.spec, self._circuits)

    def hb_port(self, interface: str, up: bool, now_s: float) -> list[Facts]:
        """A port of an HB switch."""
        link = self._link(interface)
        if link is None or link.kind is not LinkKind.HB:
            return []
        self._liveness.carrier(link.upper.interface, interface, up, now_s)
        return self.look(now_s)

    def probed(self, link: Link, sender: str, arrived: bool, now_s: float) -> list[Facts]:
        """The last probe of one direction of a link has arrived, or has not."""
        self._liveness.probed(link.upper.interface, sender, arrived, now_s)
        return [] if arrived else self.look(now_s)

    def dead(self, gpu: str, now_s: float) -> list[Facts]:
        """A GPU's proxy has died, and both its links with it."""
        for link in self.topology.links_of(gpu):
            self._liveness.carrier(link.upper.interface, gpu, False, now_s)
        return self.look(now_s)

    def look(self, now_s: float) -> list[Facts]:
        """What has failed or can be used again since the last look."""
        failed = self._liveness.failed(now_s)
        if failed == self._failed:
            return []
        news = [*self._news(failed - self._failed, "failed")]
        news += self._news(self._failed - failed, "usable")
        self._failed = failed
        return news

    def _news(self, links: frozenset[str], state: str) -> Iterator[Facts]:
        for interface in sorted(links):
            how = "probes" if self._liveness.silent(interface) else "carrier"
            yield {"link": self.topology.link_by_interface[interface].name, state: how}

    def health(self, now_s: float) -> Health:
        """The fabric's health."""
        failed = self._liveness.failed(now_s)
        links = self.topology.link_by_interface
        return Health(frozenset(links[interface].name for interface in failed))


def _place(link: Link) -> tuple[str, int]:
    return link.upper.node, link.upper.number
