"""The order in which rules change: rounds, each a complete rule set for every switch.

Some rounds come before the host routes change, the others after it. Packets in flight meet old
and new rules; they must still arrive, and never loop, except on paths over transit GPUs. Rules for
single GPUs may replace a rule for their whole rail, or the other way round, while some of these
GPUs must get their new rules later than others.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network
from itertools import chain

from controller.planner import Route, Rule
from model.fabric import addressing
from model.fabric.topology import Gpu
from model.routing.paths import GPU_TRANSIT, LAST_RESORT, UNREACHABLE, LiveLinks

Rules = Mapping[str, frozenset[Rule]]
ByDestination = Mapping[IPv4Network, frozenset[Rule]]


@dataclass(frozen=True)
class RuleChange:
    """One switch's rules for one rail, or for one address, before and after the update.

    `live` are the links that work after the update.
    """

    live: LiveLinks
    switch: str
    network: IPv4Network
    before: ByDestination
    after: ByDestination
    hosts: tuple[IPv4Network, ...]

    @cached_property
    def rounds(self) -> dict[IPv4Network, int]:
        """Update round of each host whose rules change: its distance from the switch.

        A host new to the switch is first (0), as no packet for it arrives yet; a host whose rules
        are only removed is last (`UNREACHABLE`).
        """
        rounds: dict[IPv4Network, int] = {}
        for host in self.hosts if self.before != self.after else ():
            old, new = self._met(self.before, host), self._met(self.after, host)
            if new and not old:
                rounds[host] = 0
            elif old and not new:
                rounds[host] = UNREACHABLE
            elif old != new:
                rounds[host] = self._distance(host.network_address)
        return rounds

    def _distance(self, address: IPv4Address) -> int:
        """Distance in links, after the update, from the switch to the GPU with this address."""
        gpu = addressing.gpu_at(address)
        if (gpu.domain, gpu.rail) not in self.live.topology.gpu_at:
            return UNREACHABLE  # a rule for a whole lane covers the addresses of missing GPUs, too
        distance = self.live.distances_to(gpu).get(self.switch, UNREACHABLE)
        # The cost of uplinks under PXN: each is a link.
        uplinks, others = divmod(distance, LAST_RESORT)
        return distance if distance == UNREACHABLE else uplinks + others

    def until(self, number: int) -> frozenset[Rule]:
        """The rule set after round `number`: hosts up to it have their new rules, the rest the old.

        Where one rail rule covers both, each updated host gets new rules of its own.
        """
        changed = [host for host, its_round in self.rounds.items() if its_round <= number]
        kept = {host: self._kept(host, number) for host in changed}
        if len(changed) == len(self.rounds) and not any(kept.values()):
            return frozenset(chain.from_iterable(self.after.values()))
        mixed = dict(self.before)
        for host in changed:
            new = self._met(self.after, host) | kept[host]
            mixed.pop(host, None)
            if self._met(mixed, host) != new:
                mixed[host] = frozenset(_for_one(host, new))
        return frozenset(chain.from_iterable(mixed.values()))

    def _kept(self, host: IPv4Network, number: int) -> frozenset[Rule]:
        """Return a host's old rules for ports that have no new one: these go last, too."""
        if number >= UNREACHABLE:
            return frozenset()
        ports = {rule.in_port for rule in self._met(self.after, host)}
        old = self._met(self.before, host) if None not in ports else ()
        return frozenset(rule for rule in old if rule.in_port not in ports)

    def _met(self, rules: ByDestination, host: IPv4Network) -> frozenset[Rule]:
        """Return a host's own rules, and the rail's unless an own rule matches all packets."""
        alone = rules.get(host, frozenset())
        if any(rule.matches_all for rule in alone):
            return alone
        return alone | rules.get(self.network, frozenset())


def _for_one(host: IPv4Network, rules: Iterable[Rule]) -> Iterator[Rule]:
    """Narrow rules to one host; of two for the same packets, keep the more specific one."""
    narrowed: dict[object, Rule] = {}
    for rule in sorted(rules, key=lambda rule: rule.destination.prefixlen):
        for_host = replace(rule, destination=host)
        narrowed[for_host.place] = for_host
    yield from narrowed.values()


def _changes(
    live: LiveLinks, switch: str, installed: Iterable[Rule], wanted: Iterable[Rule]
) -> list[RuleChange]:
    """Group a switch's rules by lane where a rule for all of it exists, else by address."""
    before, after = _by_destination(installed), _by_destination(wanted)
    networks = before.keys() | after.keys()
    lanes = {n for n in networks if n.prefixlen == addressing.LANE_PREFIX}
    groups: dict[IPv4Network, set[IPv4Network]] = defaultdict(set)
    for network in networks:
        lane = network.supernet(new_prefix=addressing.LANE_PREFIX)
        groups[lane if lane in lanes else network].add(network)
    return [
        RuleChange(
            live,
            switch,
            network=around,
            before={n: before[n] for n in members if n in before},
            after={n: after[n] for n in members if n in after},
            hosts=_hosts(around, live.topology.spec.domains) if around in lanes else (around,),
        )
        for around, members in groups.items()
    ]


def _hosts(lane: IPv4Network, domains: int) -> tuple[IPv4Network, ...]:
    """NIC addresses (/32) of a lane in all domains."""
    return tuple(IPv4Network(lane[domain + 1]) for domain in range(domains))


def _by_destination(rules: Iterable[Rule]) -> dict[IPv4Network, frozenset[Rule]]:
    grouped: dict[IPv4Network, set[Rule]] = defaultdict(set)
    for rule in rules:
        grouped[rule.destination].add(rule)
    return {destination: frozenset(of_it) for destination, of_it in grouped.items()}


@dataclass(frozen=True)
class UpdateRounds:
    """Rule sets to install in order, before and after the host routes change."""

    before_routes: tuple[Rules, ...]
    after_routes: tuple[Rules, ...]


def immediate(installed: Rules, wanted: Rules) -> UpdateRounds:
    """On failure: add all new rules at once; last, delete those for destinations not needed."""
    first = {name: rules | _uncovered(installed[name], rules) for name, rules in wanted.items()}
    return UpdateRounds((first,), (wanted,))


def covers_more(installed: Rules, wanted: Rules) -> bool:
    """Whether a switch gets a rule for a destination that it has none for."""
    return any(_uncovered(rules, installed[name]) for name, rules in wanted.items())


def _uncovered(rules: frozenset[Rule], others: frozenset[Rule]) -> frozenset[Rule]:
    """Rules for destinations that none of the others covers."""
    networks = {rule.destination for rule in others}
    lanes = [network for network in networks if network.prefixlen == addressing.LANE_PREFIX]
    return frozenset(
        rule
        for rule in rules - others
        if rule.destination not in networks
        and not any(rule.destination.subnet_of(lane) for lane in lanes)
    )


def make_before_break(live: LiveLinks, installed: Rules, wanted: Rules) -> UpdateRounds:
    """Without a failure: move working traffic to better paths, without loss.

    Update switches nearest the destination first, so a new rule never forwards to an old one.
    A path over a transit GPU also needs that GPU's host routes: switches upstream of such a
    GPU are updated after the host routes, without the same guarantee.
    """
    changes = {name: _changes(live, name, installed[name], wanted[name]) for name in wanted}
    rounds = {number for of_one in changes.values() for c in of_one for number in c.rounds.values()}
    rule_sets = [
        (number, _rules_after(changes, number)) for number in sorted(rounds | {UNREACHABLE})
    ]
    return UpdateRounds(
        tuple(rules for number, rules in rule_sets if number < GPU_TRANSIT),
        tuple(rules for number, rules in rule_sets if number >= GPU_TRANSIT),
    )


def _rules_after(changes: Mapping[str, list[RuleChange]], number: int) -> Rules:
    return {
        name: frozenset(chain.from_iterable(change.until(number) for change in of_switch))
        for name, of_switch in changes.items()
    }


def transit_routes_to_remove(
    gpu: Gpu, installed: frozenset[Route], wanted: frozenset[Route]
) -> list[Route]:
    """Return the routes to remove last: those by which this GPU forwards for another HB domain.

    The GPUs of that domain return to their HB links when their own routes change.
    """
    own = addressing.domain_network(gpu.domain)
    to_hb = (r for r in installed - wanted if r.destination.subnet_of(addressing.HB_NETWORK))
    return [route for route in to_hb if not route.destination.subnet_of(own)]
