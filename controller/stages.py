"""In what order new rules reach the switches: every stage is a whole set of rules for each switch.

Stages before the host routes are changed, and stages behind. Whoever is under way meets old rules
and new ones; it must arrive all the same, and never go round in a circle.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Network

from controller.desired import Route, Rule
from model import addressing
from model.distances import FAR, GPU_TRANSIT, Distances
from model.topology import Gpu, Topology

Rules = Mapping[str, frozenset[Rule]]


@dataclass(frozen=True)
class Stages:
    """What to install on the switches, one after the other."""

    before_routes: tuple[Rules, ...]
    behind_routes: tuple[Rules, ...]


def at_once(installed: Rules, wanted: Rules) -> Stages:
    """For what is broken: all that is new; what no switch has to know any more goes last."""
    first = {name: rules | _uncovered(installed[name], rules) for name, rules in wanted.items()}
    return Stages((first,), (wanted,))


def _uncovered(installed: frozenset[Rule], wanted: frozenset[Rule]) -> frozenset[Rule]:
    """The rules for destinations that no wanted rule is for."""
    networks = {rule.destination for rule in wanted}
    rails = [network for network in networks if network.prefixlen == addressing.RAIL_PREFIX]
    return frozenset(
        rule
        for rule in installed - wanted
        if rule.destination not in networks
        and not any(rule.destination.subnet_of(rail) for rail in rails)
    )


def nearest_first(distances: Distances, installed: Rules, wanted: Rules) -> Stages:
    """For what works already, and is to take a better way.

    A rule is changed after all those that its packets meet next: these are nearer to the
    destination. So new ways over switches never lead back into old ones. Forwarding by GPUs needs
    their routes: what is further than a GPU comes behind these, and is not promised the same.
    """
    ranks = {name: _ranks(distances, name, installed[name], wanted[name]) for name in wanted}
    levels = sorted({rank for of_switch in ranks.values() for rank in of_switch.values()} | {FAR})
    stages = [(level, _stage(ranks, level, installed, wanted)) for level in levels]
    return Stages(
        tuple(stage for level, stage in stages if level < GPU_TRANSIT),
        tuple(stage for level, stage in stages if level >= GPU_TRANSIT),
    )


def routes_behind(gpu: Gpu, installed: frozenset[Route], wanted: frozenset[Route]) -> list[Route]:
    """The routes of a GPU that go last: over them it forwards between GPUs of another domain.

    Those GPUs return to their HB domain's own links with their own next change.
    """
    own = addressing.domain_network(gpu.domain)
    to_hb = (r for r in installed - wanted if r.destination.subnet_of(addressing.HB_NETWORK))
    return [route for route in to_hb if not route.destination.subnet_of(own)]


def _stage(
    ranks: Mapping[str, Mapping[Rule, int]], level: int, installed: Rules, wanted: Rules
) -> Rules:
    """The rules of every switch when all changes up to a level have been made."""
    return {
        name: _until(level, ranks[name], installed[name], rules) for name, rules in wanted.items()
    }


def _until(
    level: int, ranks: Mapping[Rule, int], installed: frozenset[Rule], wanted: frozenset[Rule]
) -> frozenset[Rule]:
    new = frozenset(rule for rule in wanted if rule in installed or ranks[rule] <= level)
    taken = {rule.place for rule in new}
    old = (rule for rule in installed - wanted if ranks[rule] > level and rule.place not in taken)
    return new.union(old)


def _ranks(
    distances: Distances, switch: str, installed: frozenset[Rule], wanted: frozenset[Rule]
) -> dict[Rule, int]:
    """When each rule that is added or removed has its turn.

    What the switch has not known is first, as no packet for it comes yet; what it need not know
    any more is last. In between, its new distance counts. Rules for single GPUs of a rail and a
    rule for all of it take over from each other together, for the GPUs whose rules change.
    """
    before, after = _by_destination(installed), _by_destination(wanted)
    whole = [n for n in before.keys() | after.keys() if n.prefixlen == addressing.RAIL_PREFIX]

    @cache
    def rank(around: IPv4Network) -> int:
        gpus = _gpus_at(distances.topology, around)
        met = [(gpu, _met(before, around, gpu), _met(after, around, gpu)) for gpu in gpus]
        changed = [(gpu, old, new) for gpu, old, new in met if old != new]
        if not any(old for _, old, _ in changed):
            return 0
        if not any(new for _, _, new in changed):
            return FAR
        return _furthest(distances, switch, [gpu for gpu, _, _ in changed])

    def around(destination: IPv4Network) -> IPv4Network:
        return next((n for n in whole if destination.subnet_of(n)), destination)

    return {rule: rank(around(rule.destination)) for rule in installed ^ wanted}


def _by_destination(rules: Iterable[Rule]) -> dict[IPv4Network, frozenset[Rule]]:
    found: dict[IPv4Network, set[Rule]] = defaultdict(set)
    for rule in rules:
        found[rule.destination].add(rule)
    return {destination: frozenset(of_it) for destination, of_it in found.items()}


def _met(
    rules: Mapping[IPv4Network, frozenset[Rule]], around: IPv4Network, gpu: Gpu
) -> frozenset[Rule]:
    """What packets for a GPU meet: the rules for it alone, and its rail's unless those are all."""
    alone = frozenset[Rule]()
    if around.prefixlen < around.max_prefixlen:
        alone = rules.get(IPv4Network(addressing.nic_address(gpu)), alone)
    if any(rule.in_port is None for rule in alone):
        return alone
    return alone | rules.get(around, frozenset())


def _furthest(distances: Distances, switch: str, gpus: Iterable[Gpu]) -> int:
    found = (distances.from_openflow_switches(gpu).get(switch) for gpu in gpus)
    return max((distance for distance in found if distance is not None), default=FAR)


def _gpus_at(topology: Topology, network: IPv4Network) -> list[Gpu]:
    """The GPUs whose addresses a rule is for."""
    if network.prefixlen < network.max_prefixlen:
        rail = addressing.rail_of(network.network_address)
        return [topology.gpu(domain, rail) for domain in range(topology.spec.domains)]
    return [addressing.gpu_at(network.network_address)]
