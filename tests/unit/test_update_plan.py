"""Every packet arrives while rules change, switch by switch, in update rounds."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.planner import DesiredState
from controller.rollout import immediate, make_before_break, transit_routes_to_remove
from model.fabric.build import build_topology
from model.fabric.health import Health
from model.fabric.spec import FabricKind, SpineSelection
from model.fabric.topology import Gpu, Topology
from model.fabric.wiring import Wire
from model.routing.paths import LiveLinks, Routing, Unreachable
from tests.unit.fabrics import desired_state, fabrics_with_failures, spec, wired
from tests.unit.pipeline import Pipeline

Case = tuple[Topology, Health]


def assert_all_arrive(pipeline: Pipeline, pairs: Iterable[tuple[Gpu, Gpu]]) -> None:
    """Send a packet for each pair; `Pipeline` fails for a loop or a loss."""
    for source, destination in pairs:
        pipeline.nodes(source, destination)


def by_switches(routing: Routing) -> Iterator[tuple[Gpu, Gpu]]:
    """Yield the pairs on whose path no switch hands packets to a transit GPU.

    Other paths take routes of several GPUs, which do not change at the same moment.
    """
    gpus = routing.topology.gpu_by_name
    for source, destination in permutations(routing.topology.gpus, 2):
        try:
            hops = routing.path(source, destination)
        except Unreachable:
            continue
        handed = {hop.receiver for hop in hops if hop.sender in routing.topology.switch_by_name}
        if handed & gpus.keys() <= {destination.name}:
            yield source, destination


def forwarding(topology: Topology, old: DesiredState, new: DesiredState) -> DesiredState:
    """Return the new state, with the routes by which GPUs still forward for old paths."""
    return replace(
        new,
        routes={
            gpu.name: new.routes[gpu.name].union(
                transit_routes_to_remove(gpu, old.routes[gpu.name], new.routes[gpu.name])
            )
            for gpu in topology.gpus
        },
    )


def assert_nobody_is_lost(
    topology: Topology,
    before: Health,
    after: Health,
    real: Health,
    ahead: Callable[[], set[str]] = set,
) -> None:
    """Update from `before` to the better health `after`, on a fabric whose health is `real`.

    `ahead` returns the switches that already have a round's rules while others have the old ones.
    """
    old, new = desired_state(topology, before), desired_state(topology, after)
    rounds = make_before_break(LiveLinks(topology, after), old.rules, new.rules)
    pairs = {*by_switches(Routing(topology, before))} & {*by_switches(Routing(topology, after))}
    first = (old.rules, *rounds.before_routes)
    for hosts, sequence in (
        (old, first),
        (forwarding(topology, old, new), (first[-1], *rounds.after_routes)),
    ):
        for one, following in pairwise(sequence):
            early = ahead()
            mixed = {name: (following if name in early else one)[name] for name in one}
            assert_all_arrive(Pipeline(topology, real, replace(hosts, rules=mixed)), pairs)
    assert dict(rounds.after_routes[-1]) == new.rules


def some_switches(topology: Topology) -> st.SearchStrategy[set[str]]:
    """Any set of a fabric's rail and spine switches."""
    return st.sets(st.sampled_from(topology.openflow_switches))


@settings(deadline=None)
@given(fabrics_with_failures(), st.data())
def test_nobody_is_lost_while_links_return(case: Case, data: st.DataObject) -> None:
    topology, before = case
    names = sorted(before.failed)
    returned = data.draw(st.sets(st.sampled_from(names))) if names else set()
    after = Health(before.failed - returned)
    some = some_switches(topology)
    assert_nobody_is_lost(topology, before, after, after, lambda: data.draw(some))


@pytest.mark.parametrize(
    ("size", "spines", "seed", "returned", "others"),
    [
        # A rule for a whole rail, and other rules for GPUs of that rail that are farther away.
        (
            3,
            6,
            3,
            {"rail1--spine4"},
            {"d0g0--hb0", "d0g1--rail1", "d1g0--hb1", "d1g0--rail0", "d2g0--hb2", "d2g1--hb2"}
            | {"d2g2--hb2", "rail0--spine0", "rail1--spine0", "rail2--spine0"},
        ),
        # A spine switch gets its first rules for a rail before others send to it.
        (3, 1, 0, {"rail0--spine0"}, set()),
        # A rule for a whole rail is replaced; a GPU of that rail is behind a transit GPU.
        (
            2,
            2,
            0,
            {"rail1--spine0", "d1g1--hb1", "rail0--spine0"},
            {"d0g0--hb0", "d1g0--rail0", "rail0--spine1", "rail1--spine1"},
        ),
    ],
)
def test_nobody_is_lost_where_gpus_of_a_rail_are_not_equally_far(
    size: int, spines: int, seed: int, returned: set[str], others: set[str]
) -> None:
    topology = build_topology(spec(FabricKind.RAIL_OPTIMIZED, 3, size, spines=spines, seed=seed))
    before, after = Health(frozenset(returned | others)), Health(frozenset(others))
    for ahead in ((), *zip(topology.openflow_switches)):
        assert_nobody_is_lost(topology, before, after, after, partial(set, ahead))


def test_nobody_is_lost_where_a_port_needs_its_rule_no_more() -> None:
    """By hash, leaf0 has a rule for the port of each GPU: d0g0 goes back to its HB link."""
    hashed = spec(FabricKind.RAIL_OPTIMIZED, 2, 3, spine_selection=SpineSelection.HASH)
    ends = [(gpu, "leaf1" if gpu == "d0g2" else "leaf0") for gpu in hashed.gpu_names]
    ends += [(leaf, spine) for leaf in ("leaf0", "leaf1") for spine in ("agg0", "agg1")]
    topology = build_topology(wired(hashed, [Wire(*pair, 10**11) for pair in ends]))
    before, after = (
        Health(frozenset(f"{gpu}--hb0" for gpu in gpus)) for gpus in (("d0g0", "d0g1"), ("d0g1",))
    )
    assert_nobody_is_lost(topology, before, after, after, lambda: {"leaf0"})


def test_nobody_is_lost_where_a_drained_nic_leaves_a_path_over_spines_with_pxn() -> None:
    """Only the spine leads to d0g2 then: as a last resort, but over no transit GPU."""
    topology = build_topology(spec(FabricKind.RAIL_OPTIMIZED, 2, 3, spines=1, pxn=True))
    before = Health(frozenset({"d0g2--hb0"}))
    after = Health(before.failed | {"d1g2--rail2"}, drained=frozenset({"d1g2--rail2"}))
    assert_nobody_is_lost(topology, before, after, before)


@settings(deadline=None)
@given(fabrics_with_failures())
def test_all_is_there_before_the_routes_and_nothing_else_behind(case: Case) -> None:
    topology, health = case
    old, new = desired_state(topology), desired_state(topology, health)
    rounds = immediate(old.rules, new.rules)
    pairs = {*permutations(topology.gpus, 2)}
    connected = [(a, b) for a, b in pairs if (a.name, b.name) not in new.cut_off]
    rules = dict(rounds.before_routes[-1])
    assert_all_arrive(Pipeline(topology, health, replace(new, rules=rules)), connected)
    assert dict(rounds.after_routes[-1]) == new.rules


@given(fabrics_with_failures())
def test_an_old_rule_stays_for_a_while_if_no_new_one_is_for_its_destination(case: Case) -> None:
    topology, health = case
    states = desired_state(topology).rules, desired_state(topology, health).rules
    for old, new in permutations(states):
        (first,) = immediate(old, new).before_routes
        for name, rules in new.items():
            networks = {rule.destination for rule in rules}
            stays = {
                rule
                for rule in old[name]
                if not any(rule.destination.subnet_of(network) for network in networks)
            }
            assert first[name] == rules | stays
