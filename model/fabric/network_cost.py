"""Switches, transceivers, price and power of the networks between HB domains: folded Clos."""

from dataclasses import dataclass, replace
from math import ceil

from model.fabric.spec import FabricKind, Planes

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


def folded_clos(endpoints: int, radix: int, count: int | None = None) -> Equipment:
    """A folded Clos network: every tier but the top one has as many ports up as down.

    A full one has (2L-1)n/r switches; a tier of one that is not full is rounded up. Each of the n
    cables of a tier has a transceiver at both ends: 2Ln. It has `count` tiers, by default as many
    as join all endpoints; with fewer, it is several networks that share switches.
    """
    count = count or tiers(endpoints, radix)
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

    Every port up leads into a Clos network of its own, which joins all lowest switches; they share
    switches, so that each tier is rounded up once. It has the oversubscription of
    `built_oversubscription`.
    """
    if built_oversubscription(endpoints, radix, oversubscription) == 1:
        return folded_clos(endpoints, radix)
    up = _ports_up(radix, oversubscription)
    lowest = ceil(endpoints / (radix - up))
    above = folded_clos(up * lowest, radix, tiers(lowest, radix))
    return Equipment(radix, lowest + above.switches, 2 * endpoints + above.transceivers)


@dataclass(frozen=True)
class Nics:
    """How a domain's GPUs are attached: a NIC for `gpus_per_nic` of them, with `ports` ports.

    A port has an equal part of the NIC's rate, and a switch as many times more of such ports. No
    two ports of a NIC lead to one switch.
    """

    gpus_per_nic: int = 1
    ports: int = 1
    planes: Planes = Planes.BONDED

    def rails(self, domain_size: int) -> int:
        """The number of NICs of a domain, each on a rail of its own."""
        return ceil(domain_size / self.gpus_per_nic)


NIC_PER_GPU = Nics()


@dataclass(frozen=True)
class Network:
    """A network for GPUs: one Clos network for all NICs, or one for each rail.

    Rails share switches, each with ports of its own (see `_rails`). Only the network for all NICs
    may be oversubscribed. Switches have `radix` ports of a NIC's rate; transceivers
    are counted in this rate, too.
    """

    kind: FabricKind
    gpus: int
    radix: int
    domain_size: int
    oversubscription: float = 1.0
    nics: Nics = NIC_PER_GPU

    @property
    def equipment(self) -> Equipment:
        """Its switches and transceivers."""
        joins_planes = self._needs_tiers and self.nics.planes is Planes.BONDED
        ports, planes = (self.nics.ports, 1) if joins_planes else (1, self.nics.ports)
        if self._is_whole:
            endpoints = self._endpoints * ports
            one = oversubscribed_clos(endpoints, self._of_switch, self.oversubscription)
        else:
            sizes = {size * ports: count for size, count in self._rail_sizes.items()}
            one = _rails(sizes, self._of_switch)
        transceivers = ceil(planes * one.transceivers / self.nics.ports)
        return Equipment(self.radix, planes * one.switches, transceivers)

    @property
    def built_oversubscription(self) -> float:
        """The oversubscription that its switches can have, at most its own."""
        return built_oversubscription(self._endpoints, self._of_switch, self.oversubscription)

    @property
    def at_risk(self) -> dict[str, float]:
        """The GPUs that lose their NIC when a lowest switch fails, and those that lose one port."""
        ports = max((used for used, _ in self._filled), default=self._ports_down)
        hit = min(self.gpus, min(ports, self._endpoints) * self.nics.gpus_per_nic)
        return {
            "gpus_cut_off": hit if self.nics.ports == 1 else 0,
            "gpus_slowed": hit if self.nics.ports > 1 else 0,
        }

    @property
    def rails_on_a_switch(self) -> int:
        """The number of rails that lose NIC links when a lowest switch fails.

        All rails lose them where there is one switch. A rail of several switches loses only the
        links of some HB domains, for which the others wait.
        """
        ports = self._ports_down
        if self._endpoints <= ports:
            return self.nics.rails(self.domain_size)
        most = max(1, ports // max(self._rail_sizes))
        return max((count for _, count in self._filled), default=most)

    @property
    def _filled(self) -> dict[tuple[int, int], int]:
        """The switches of rails that are whole on one (see `_whole_on_switches`), else none."""
        if self._is_whole or self._needs_tiers:
            return {}
        return _whole_on_switches(self._rail_sizes, self._of_switch)

    @property
    def _is_whole(self) -> bool:
        return self.kind is FabricKind.RAIL_OPTIMIZED

    @property
    def _of_switch(self) -> int:
        """The ports of a switch at the rate of a NIC's port."""
        return self.radix * self.nics.ports

    @property
    def _rail_sizes(self) -> dict[int, int]:
        """The number of rails by their NICs; the last domain may have fewer than the others."""
        domains, left = divmod(self.gpus, self.domain_size)
        rails, rest = self.nics.rails(self.domain_size), self.nics.rails(left)
        counts = ((domains + 1, rest), (domains, rails - rest))
        return {size: count for size, count in counts if size and count}

    @property
    def _endpoints(self) -> int:
        return _endpoints(self._rail_sizes)

    @property
    def _needs_tiers(self) -> bool:
        """Whether one switch is too small for what is to be joined."""
        return (self._endpoints if self._is_whole else max(self._rail_sizes)) > self._of_switch

    @property
    def _ports_down(self) -> int:
        """The ports of a lowest switch that lead to NICs: all of a switch that needs no other."""
        up = _ports_up(self._of_switch, self.oversubscription) if self._needs_tiers else 0
        return self._of_switch - up


def _rails(sizes: dict[int, int], radix: int) -> Equipment:
    """The equipment of rails: the number of rails by their endpoints.

    A rail that fits on a switch is whole on one, with as many others as fit there. Larger rails
    share the switches of each tier, so that a tier is rounded up once: a lowest switch may have
    the rest of several rails, of different HB domains. So they never need more switches than one
    network for all NICs.
    """
    by_tiers: dict[int, dict[int, int]] = {}
    for size, count in sizes.items():
        by_tiers.setdefault(tiers(size, radix), {})[size] = count
    groups = [_sharing(group, radix, count) for count, group in by_tiers.items()]
    switches = sum(group.switches for group in groups)
    return Equipment(radix, switches, sum(group.transceivers for group in groups))


def _sharing(sizes: dict[int, int], radix: int, count: int) -> Equipment:
    """The equipment of rails with equally many tiers, which share switches."""
    shared = folded_clos(_endpoints(sizes), radix, count)
    if count > 1:
        return shared
    return replace(shared, switches=sum(_whole_on_switches(sizes, radix).values()))


def _whole_on_switches(sizes: dict[int, int], radix: int) -> dict[tuple[int, int], int]:
    """The number of switches by their ports in use and their rails, which are whole on one.

    Each switch takes as many as it holds, the larger ones first.
    """
    left, switches = dict(sorted(sizes.items(), reverse=True)), dict[tuple[int, int], int]()
    while left:
        used, taken = 0, dict[int, int]()
        for size, count in left.items():
            taken[size] = min(count, (radix - used) // size)
            used += taken[size] * size
        alike = min(left[size] // count for size, count in taken.items() if count)
        filled = used, sum(taken.values())
        switches[filled] = switches.get(filled, 0) + alike
        counts = {size: count - alike * taken[size] for size, count in left.items()}
        left = {size: count for size, count in counts.items() if count}
    return switches


def networks(
    gpus: int, radix: int, domain_size: int, prices: Prices, nics: Nics = NIC_PER_GPU
) -> dict[str, dict[str, float]]:
    """Equipment, price, power and risk of both fabrics, and what rail-only saves."""
    kinds = (FabricKind.RAIL_OPTIMIZED, FabricKind.RAIL_ONLY)
    of = [Network(kind, gpus, radix, domain_size, nics=nics) for kind in kinds]
    whole, rails = (_figures(one.equipment, prices) for one in of)
    saved = {key: whole[key] - rails[key] for key in whole}
    shares = {f"{key}_percent": 100 * saved[key] / whole[key] if whole[key] else 0 for key in whole}
    return {
        kinds[0].value: whole | of[0].at_risk,
        kinds[1].value: rails | of[1].at_risk,
        "saved": saved | shares,
    }


def _figures(of: Equipment, prices: Prices) -> dict[str, float]:
    return {
        "switches": of.switches,
        "transceivers": of.transceivers,
        "usd": prices.usd(of),
        "watts": prices.watts(of),
    }


def _endpoints(sizes: dict[int, int]) -> int:
    return sum(size * count for size, count in sizes.items())
