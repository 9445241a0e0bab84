"""An emulated optical switch between GPUs and rail switches: it moves NIC links."""

import time
from collections.abc import Sequence

from model.fabric.topology import Link, LinkKind, Topology
from testbed.fabric.shaping import check_shaped, shape
from testbed.testbed import Testbed


def set_cross_connects(
    bed: Testbed, before: Topology, after: Topology, reconfiguration_s: float
) -> None:
    """Move the NIC links whose rail switch port differs in `after`.

    They lose carrier for at least `reconfiguration_s`, the time that a real switch would take;
    moving ports between Open vSwitch bridges may take longer.
    """
    begun_s = time.monotonic()
    moved = _moved(before, after)
    lasting = [link for link in moved if link.lower.node not in bed.links.lost]
    for link in lasting:
        _set_link(bed, link, "down")
    bed.open_vswitch.move_ports(
        [link.upper.interface for link in moved],
        [(link.upper.node, link.upper.number, link.upper.interface) for link in lasting],
    )
    for link in lasting:
        _shape_again(bed, link)
    time.sleep(max(0.0, begun_s + reconfiguration_s - time.monotonic()))
    for link in lasting:
        _set_link(bed, link, "up")


def _moved(before: Topology, after: Topology) -> Sequence[Link]:
    """NIC links of `after` whose upper end is at another port than in `before`."""
    old = {link.lower.node: link for link in before.links if link.kind is LinkKind.NIC}
    nics = (link for link in after.links if link.kind is LinkKind.NIC)
    return [link for link in nics if link.upper != old[link.lower.node].upper]


def _set_link(bed: Testbed, link: Link, state: str) -> None:
    bed.links.switches.link("set", index=bed.links.index_of(link.upper), state=state)


def _shape_again(bed: Testbed, link: Link) -> None:
    """Restore a link's shaper and impairment, which Open vSwitch wipes from an added port."""
    index, shaper = bed.links.index_of(link.upper), link.shaper
    shape(bed.links.switches, index, shaper)
    check_shaped(bed.links.switches, index, link.name, shaper)
    bed.links.impair(link, link.upper)
