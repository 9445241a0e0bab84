"""Check the NICs of a fabric: their number in a domain, their ports, and how flows use these."""

from collections.abc import Iterator

from model.fabric.addressing import MAX_LANES
from model.fabric.spec import FabricKind, Planes, Spread
from scenarios.format.issues import Issue
from scenarios.format.keys import Fabric

# No closed form describes GPUs that share NICs, have several, or use one port of two: each transfer
# is followed.
MOST_FOLLOWED = 1024


def nic_issues(fabric: Fabric) -> Iterator[Issue]:
    """Issues of ports and NICs that do not fit, and of what only single ports support."""
    if fabric.nic_ports == 1:
        for key, given in (("planes", fabric.planes), ("spread", fabric.spread)):
            if given is not None:
                what = "needs two ports; a NIC has 1 port"
                yield Issue(("fabric", key), what, "add nic_ports: 2")
    elif fabric.planes is Planes.SEPARATE and fabric.spread is Spread.HASH:
        what = "hash needs bonded ports; on separate planes, each transfer has a part on each"
        yield Issue(("fabric", "spread"), what, "use planes: bonded")
    yield from list(_number_issues(fabric)) or _followed_issues(fabric)
    if fabric.pxn is not None and FabricKind.RAIL_OPTIMIZED not in fabric.kinds:
        what = "has no choice here: rail-only always uses the NIC of the peer, custom links never"
        yield Issue(("fabric", "pxn"), what, "leave it out, or add the kind rail-optimized")
    if fabric.nic_ports > 1 or fabric.nics != fabric.domain_size:
        for key, asked in _single_port_only(fabric):
            what = "needs one NIC of one port for each GPU"
            if asked:
                yield Issue(("fabric", key), what, "leave out nic_ports and nics_per_domain")


def _number_issues(fabric: Fabric) -> Iterator[Issue]:
    """Issues of NICs that GPUs cannot share or have equally."""
    gpus, nics = fabric.domain_size, fabric.nics
    place = "fabric", "nics_per_domain"
    if nics % gpus and gpus % nics:
        what = f"{nics} NICs and {gpus} GPUs of a domain: one number must divide the other"
        yield Issue(place, what, f"use a divisor or a multiple of {gpus}")
    elif fabric.lanes > MAX_LANES:
        what = f"a GPU must have at most {MAX_LANES} NIC ports, got {nics // gpus}"
        yield Issue(place, f"{what} NICs with {fabric.nic_ports} ports")


def _followed_issues(fabric: Fabric) -> Iterator[Issue]:
    """Yield an issue if each transfer has to be followed, and there are too many GPUs for it."""
    gpus, nics = fabric.domain_size, fabric.nics
    count = fabric.domains * max(gpus, nics) * fabric.nic_ports
    if count > MOST_FOLLOWED and (nics != gpus or fabric.spread is Spread.HASH):
        key = "spread" if nics == gpus else "nics_per_domain"
        what = f"supports at most {MOST_FOLLOWED} GPUs times their NIC ports, got {count}"
        yield Issue(("fabric", key), what, "no closed form describes such NICs")


def _single_port_only(fabric: Fabric) -> tuple[tuple[str, bool], ...]:
    return (
        ("rail_leaves", fabric.rail_leaves > 1),
        ("spare_gpus", fabric.spare_gpus > 0),
        ("spare_rail_switches", fabric.spare_rail_switches > 0),
    )
