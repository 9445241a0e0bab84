"""How the rules of one switch for one rail become others, GPU by GPU.

A rule for a whole rail may give way to rules for single GPUs of it, or take over from them, while
some of these GPUs must have their new ways later than others.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network
from itertools import chain

from controller.forwarding.planner import Rule
from model.fabric import addressing
from model.fabric.topology import Gpu
from model.routing.distances import UNREACHABLE

ByDestination = Mapping[IPv4Network, frozenset[Rule]]
# How far it will be from the switch to the GPU with an address.
Distance = Callable[[IPv4Address], int]


@dataclass(frozen=True)
class RuleChange:
    """The rules for one rail, or for one address, before and after."""

    network: IPv4Network
    before: ByDestination
    after: ByDestination
    hosts: tuple[IPv4Network, ...]
    distance: Distance

    @cached_property
    def turns(self) -> dict[IPv4Network, int]:
        """When each host whose packets meet other rules than before has its turn: by distance.

        What the switch has not known is first, as no packet for it comes yet; what it need not
        know any more is last.
        """
        if self.before == self.after:
            return {}
        return dict(self._turns())

    def _turns(self) -> Iterator[tuple[IPv4Network, int]]:
        for host in self.hosts:
            old, new = self._met(self.before, host), self._met(self.after, host)
            if new and not old:
                yield host, 0
            elif old and not new:
                yield host, UNREACHABLE
            elif old != new:
                yield host, self.distance(host.network_address)

    def until(self, turn: int) -> frozenset[Rule]:
        """The rules when all whose turn has come have their new ways, and all others the old ones.

        Where a rail's rule is for both, the former have the new rules each for itself.
        """
        changed = [host for host, its_turn in self.turns.items() if its_turn <= turn]
        if len(changed) == len(self.turns):
            return frozenset(chain.from_iterable(self.after.values()))
        mixed = dict(self.before)
        for host in changed:
            new = self._met(self.after, host)
            mixed.pop(host, None)
            if self._met(mixed, host) != new:
                mixed[host] = frozenset(_for_one(host, new))
        return frozenset(chain.from_iterable(mixed.values()))

    def _met(self, rules: ByDestination, host: IPv4Network) -> frozenset[Rule]:
        """What packets for a host meet: rules for it alone, and the rail's unless those are all."""
        alone = rules.get(host, frozenset())
        if any(rule.in_port is None for rule in alone):
            return alone
        return alone | rules.get(self.network, frozenset())


def _for_one(host: IPv4Network, rules: Iterable[Rule]) -> Iterator[Rule]:
    """The same for one host; of two rules for the same port, the one that was for it alone."""
    by_port: dict[int | None, Rule] = {}
    for rule in sorted(rules, key=lambda rule: rule.destination.prefixlen):
        by_port[rule.in_port] = replace(rule, destination=host)
    yield from by_port.values()


def rule_changes(
    installed: Iterable[Rule],
    wanted: Iterable[Rule],
    domains: int,
    distance: Distance,
) -> list[RuleChange]:
    """All rules of a switch, by rail where there is a rule for all of it, else by address."""
    before, after = _by_destination(installed), _by_destination(wanted)
    networks = before.keys() | after.keys()
    rails = {n for n in networks if n.prefixlen == addressing.RAIL_PREFIX}
    groups: dict[IPv4Network, set[IPv4Network]] = defaultdict(set)
    for network in networks:
        rail = network.supernet(new_prefix=addressing.RAIL_PREFIX)
        groups[rail if rail in rails else network].add(network)
    return [
        RuleChange(
            network=around,
            before={n: before[n] for n in members if n in before},
            after={n: after[n] for n in members if n in after},
            hosts=_hosts(around, domains) if around in rails else (around,),
            distance=distance,
        )
        for around, members in groups.items()
    ]


def _hosts(rail: IPv4Network, domains: int) -> tuple[IPv4Network, ...]:
    """All GPUs of a rail."""
    number = addressing.rail_of(rail.network_address)
    gpus = (Gpu(domain, number) for domain in range(domains))
    return tuple(IPv4Network(addressing.nic_address(gpu)) for gpu in gpus)


def _by_destination(rules: Iterable[Rule]) -> dict[IPv4Network, frozenset[Rule]]:
    found: dict[IPv4Network, set[Rule]] = defaultdict(set)
    for rule in rules:
        found[rule.destination].add(rule)
    return {destination: frozenset(of_it) for destination, of_it in found.items()}
