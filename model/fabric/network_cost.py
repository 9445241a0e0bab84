"""Switches, transceivers, price and power of the networks between HB domains: folded Clos."""

from dataclasses import dataclass
from math import ceil

from model.fabric.spec import FabricKind

# Decimal digits to which a number of ports is rounded before it counts as whole.
ROUNDING = 9


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


@dataclass(frozen=True)
class Prices:
    """Prices in USD and powers in watts, of a switch per port and of a transceiver."""

    port_usd: float
    transceiver_usd: float
    port_watts: float
    transceiver_watts: float

    def usd(self, of: Equipment) -> float:
        """The price of equipment; a switch costs as much as all its ports."""
        return of.ports * self.port_usd + of.transceivers * self.transceiver_usd

    def watts(self, of: Equipment) -> float:
        """The power of equipment; a switch draws as much as all its ports."""
        return of.ports * self.port_watts + of.transceivers * self.transceiver_watts


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


def built_oversubscription(endpoints: int, radix: int, asked: float) -> float:
    """The oversubscription that switches of `radix` ports can have, at most the requested one.

    A single switch for all endpoints has no port up, and so no oversubscription.
    """
    if endpoints <= radix:
        return 1.0
    up = _ports_up(radix, asked)
    return (radix - up) / up


def _ports_up(radix: int, oversubscription: float) -> int:
    return ceil(round(radix / (1 + oversubscription), ROUNDING))


def oversubscribed_clos(endpoints: int, radix: int, oversubscription: float) -> Equipment:
    """A Clos network whose lowest switches have fewer ports up than down.

    Every port up leads into a Clos network of its own, which joins all lowest switches. It has the
    oversubscription of `built_oversubscription`.
    """
    if built_oversubscription(endpoints, radix, oversubscription) == 1:
        return folded_clos(endpoints, radix)
    up = _ports_up(radix, oversubscription)
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


def networks(
    gpus: int, radix: int, domain_size: int, prices: Prices
) -> dict[str, dict[str, float]]:
    """Equipment, price and power of both fabrics, and what rail-only saves."""
    fabrics = {
        kind.value: _figures(equipment(kind, gpus, radix, domain_size), prices)
        for kind in (FabricKind.RAIL_OPTIMIZED, FabricKind.RAIL_ONLY)
    }
    whole, rails = fabrics.values()
    saved = {key: whole[key] - rails[key] for key in whole}
    shares = {f"{key}_percent": 100 * saved[key] / whole[key] if whole[key] else 0 for key in whole}
    return {**fabrics, "saved": saved | shares}


def _figures(of: Equipment, prices: Prices) -> dict[str, float]:
    return {
        "switches": of.switches,
        "transceivers": of.transceivers,
        "usd": prices.usd(of),
        "watts": prices.watts(of),
    }


def rails_on_a_switch(
    kind: FabricKind, gpus: int, radix: int, domain_size: int, oversubscription: float = 1.0
) -> int:
    """Return the number of rails that lose NIC links when a lowest switch fails.

    All rails lose them where there is one switch. A rail of several switches loses only the links
    of some HB domains, for which the others wait.
    """
    largest = max(_rail_sizes(gpus, domain_size))
    ports = radix - _ports_up(radix, oversubscription)
    if (gpus if kind is FabricKind.RAIL_OPTIMIZED else largest) <= radix:
        ports = radix
    return min(domain_size, max(1, ports // largest))


def _rail_sizes(gpus: int, domain_size: int) -> dict[int, int]:
    """The number of rails by their GPUs; the last domain may have fewer GPUs than the others."""
    full, rest = divmod(gpus, domain_size)
    return {size: count for size, count in ((full + 1, rest), (full, domain_size - rest)) if count}
