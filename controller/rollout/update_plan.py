"""Plan update rounds: each is a complete rule set for every switch.

Some rounds come before the host routes change, the others after it. Packets in flight meet old
and new rules; they must still arrive, and never loop, except on paths over transit GPUs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from itertools import chain

from controller.forwarding.planner import Route, Rule
from controller.rollout.rail_update import RuleChange, rule_changes
from model.fabric import addressing
from model.fabric.topology import Gpu
from model.routing.distances import GPU_TRANSIT, UNREACHABLE, Distances

Rules = Mapping[str, frozenset[Rule]]


@dataclass(frozen=True)
class UpdateRounds:
    """Rule sets to install in order, before and after the host routes change."""

    before_routes: tuple[Rules, ...]
    after_routes: tuple[Rules, ...]


def immediate(installed: Rules, wanted: Rules) -> UpdateRounds:
    """On failure: add all new rules at once; last, delete those for destinations not needed."""
    first = {name: rules | _uncovered(installed[name], rules) for name, rules in wanted.items()}
    return UpdateRounds((first,), (wanted,))


def _uncovered(installed: frozenset[Rule], wanted: frozenset[Rule]) -> frozenset[Rule]:
    """Installed rules for destinations that no wanted rule covers."""
    networks = {rule.destination for rule in wanted}
    rails = [network for network in networks if network.prefixlen == addressing.RAIL_PREFIX]
    return frozenset(
        rule
        for rule in installed - wanted
        if rule.destination not in networks
        and not any(rule.destination.subnet_of(rail) for rail in rails)
    )


def make_before_break(distances: Distances, installed: Rules, wanted: Rules) -> UpdateRounds:
    """Without a failure: move working traffic to better paths, without loss.

    Update switches nearest the destination first, so a new rule never forwards to an old one.
    A path over a transit GPU also needs that GPU's host routes: switches upstream of such a
    GPU are updated after the host routes, without the same guarantee.
    """
    changes = {name: _changes(distances, name, installed[name], wanted[name]) for name in wanted}
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


def _changes(
    distances: Distances, switch: str, installed: frozenset[Rule], wanted: frozenset[Rule]
) -> list[RuleChange]:
    def distance(address: IPv4Address) -> int:
        return distances.from_openflow_switches(addressing.gpu_at(address)).get(switch, UNREACHABLE)

    return rule_changes(installed, wanted, distances.topology.spec.domains, distance)


def transit_routes_to_remove(
    gpu: Gpu, installed: frozenset[Route], wanted: frozenset[Route]
) -> list[Route]:
    """Return the routes to remove last: those by which this GPU forwards for another HB domain.

    The GPUs of that domain return to their HB links when their own routes change.
    """
    own = addressing.domain_network(gpu.domain)
    to_hb = (r for r in installed - wanted if r.destination.subnet_of(addressing.HB_NETWORK))
    return [route for route in to_hb if not route.destination.subnet_of(own)]
