"""In what order new rules reach the switches: every stage is a whole set of rules for each switch.

Stages before the host routes are changed, and stages behind. Whoever is under way meets old rules
and new ones; it must arrive all the same, and never go round in a circle.
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
    """What to install on the switches, one after the other."""

    before_routes: tuple[Rules, ...]
    behind_routes: tuple[Rules, ...]


def immediate(installed: Rules, wanted: Rules) -> UpdateRounds:
    """For what is broken: all that is new; what no switch has to know any more goes last."""
    first = {name: rules | _uncovered(installed[name], rules) for name, rules in wanted.items()}
    return UpdateRounds((first,), (wanted,))


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


def make_before_break(distances: Distances, installed: Rules, wanted: Rules) -> UpdateRounds:
    """For what works already, and is to take a better way.

    What packets for a GPU meet is changed after all that they meet next: it is nearer to that GPU.
    So new ways over switches never lead back into old ones. Forwarding by GPUs needs their routes:
    what is further than a GPU comes behind these, and is not promised the same.
    """
    changes = {name: _changes(distances, name, installed[name], wanted[name]) for name in wanted}
    turns = {turn for of_one in changes.values() for c in of_one for turn in c.turns.values()}
    stages = [(turn, _stage(changes, turn)) for turn in sorted(turns | {UNREACHABLE})]
    return UpdateRounds(
        tuple(stage for turn, stage in stages if turn < GPU_TRANSIT),
        tuple(stage for turn, stage in stages if turn >= GPU_TRANSIT),
    )


def _stage(changes: Mapping[str, list[RuleChange]], turn: int) -> Rules:
    """The rules of every switch when all changes up to a turn have been made."""
    return {
        name: frozenset(chain.from_iterable(change.until(turn) for change in of_switch))
        for name, of_switch in changes.items()
    }


def _changes(
    distances: Distances, switch: str, installed: frozenset[Rule], wanted: frozenset[Rule]
) -> list[RuleChange]:
    def distance(address: IPv4Address) -> int:
        return distances.from_openflow_switches(addressing.gpu_at(address)).get(switch, UNREACHABLE)

    return rule_changes(installed, wanted, distances.topology.spec.domains, distance)


def routes_behind(gpu: Gpu, installed: frozenset[Route], wanted: frozenset[Route]) -> list[Route]:
    """The routes of a GPU that go last: over them it forwards between GPUs of another domain.

    Those GPUs return to their HB domain's own links with their own next change.
    """
    own = addressing.domain_network(gpu.domain)
    to_hb = (r for r in installed - wanted if r.destination.subnet_of(addressing.HB_NETWORK))
    return [route for route in to_hb if not route.destination.subnet_of(own)]
