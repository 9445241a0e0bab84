"""Switches and transceivers of folded Clos networks, and of the two fabrics made of them."""

from dataclasses import dataclass
from math import ceil

from model.fabric.spec import FabricKind


@dataclass(frozen=True)
class Equipment:
    """Switches of `radix` ports, and transceivers."""

    radix: int
    switches: int
    transceivers: int

    @property
    def ports(self) -> int:
        """Ports of all switches, whether in use or not."""
        return self.switches * self.radix


def tiers(endpoints: int, radix: int) -> int:
    """The least number of tiers with a port for every endpoint.

    One switch has `radix` ports for endpoints; a folded Clos network of L tiers has 2(r/2)^L.
    """
    count = 1
    while endpoints > capacity(count, radix):
        count += 1
    return count


def capacity(count: int, radix: int) -> int:
    """The number of endpoints that `count` tiers of switches join without oversubscription."""
    return radix if count == 1 else 2 * (radix // 2) ** count


def folded_clos(endpoints: int, radix: int) -> Equipment:
    """A folded Clos network: every tier but the top one has as many ports up as down.

    A full one has (2L-1)n/r switches; a tier of one that is not full is rounded up. Each of the n
    cables of a tier has a transceiver at both ends: 2Ln.
    """
    count = tiers(endpoints, radix)
    below_the_top = (count - 1) * ceil(endpoints / (radix // 2))
    return Equipment(radix, below_the_top + ceil(endpoints / radix), 2 * count * endpoints)


def oversubscribed_clos(endpoints: int, radix: int, oversubscription: float) -> Equipment:
    """A Clos network whose lowest switches have fewer ports up than down.

    Every port up leads into a Clos network of its own, which joins all lowest switches.
    """
    if endpoints <= radix or oversubscription == 1:
        return folded_clos(endpoints, radix)
    up = max(1, int(radix / (1 + oversubscription)))
    lowest = ceil(endpoints / (radix - up))
    plane = folded_clos(lowest, radix)
    switches = lowest + up * plane.switches
    if plane.switches == 1:
        switches = lowest + ceil(up / (radix // lowest))
    return Equipment(radix, switches, 2 * endpoints + up * plane.transceivers)


def equipment(
    kind: FabricKind, gpus: int, radix: int, domain_size: int, oversubscription: float = 1.0
) -> Equipment:
    """The equipment of a fabric: one Clos network for all GPUs, or one for each rail.

    Rails of which several fit on one switch share it, each with ports of its own. Only the network
    for all GPUs may be oversubscribed.
    """
    if kind is FabricKind.RAIL_OPTIMIZED:
        return oversubscribed_clos(gpus, radix, oversubscription)
    sizes = _rail_sizes(gpus, domain_size)
    if max(sizes) <= radix:
        shared = radix // max(sizes)
        return Equipment(radix, ceil(sum(sizes.values()) / shared), 2 * gpus)
    rails = [(folded_clos(size, radix), count) for size, count in sizes.items()]
    switches = sum(rail.switches * count for rail, count in rails)
    return Equipment(radix, switches, sum(rail.transceivers * count for rail, count in rails))


def _rail_sizes(gpus: int, domain_size: int) -> dict[int, int]:
    """The number of rails by their GPUs; the last domain may have fewer GPUs than the others."""
    full, rest = divmod(gpus, domain_size)
    return {size: count for size, count in ((full + 1, rest), (full, domain_size - rest)) if count}
