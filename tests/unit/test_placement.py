"""Placement of jobs after a fault, and the pairs that are probed during it."""

from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from execution.cases.observer import dropped
from model.fabric.build import build_topology
from model.fabric.spec import COMPARED, FabricKind, FabricSpec, Spares
from model.fabric.topology import Gpu, LinkKind
from model.faults import (
    POSSIBLE,
    Component,
    Fault,
    FaultMode,
    broken_links,
    components,
    health_under,
    loses_links,
)
from model.job.placement import Placement, RecoveryStrategy, job_placement, placement_after
from model.job.probing import (
    AFFECTED_SHARE,
    BACKGROUND_PER_S,
    BACKGROUND_SHARE,
    PROBE_BYTES,
    SHORTEST_INTERVAL_S,
    affected_interval_s,
    background_interval_s,
    pairs_by_hop,
    probed_pairs,
)
from model.routing.paths import Routing
from testbed.fabric.links import Counters, Reading
from tests.unit.fabrics import spec

KINDS = pytest.mark.parametrize("kind", COMPARED)


def spared(kind: FabricKind) -> FabricSpec:
    """A job of 2 domains of 3 GPUs, with a spare of everything."""
    full = spec(kind, 3, 5, 3)
    return replace(full, spares=Spares(domains=1, gpus=2, rail_switches=1))


def after(
    kind: FabricKind, strategy: RecoveryStrategy, component: Component, target: str
) -> Placement:
    fault = Fault(component, FaultMode.DOWN, target)
    return placement_after(job_placement(spared(kind)), fault, strategy, group_size=1)


def rail_of(placement: Placement, gpu: Gpu) -> str:
    return placement.topology.link_of(gpu, LinkKind.NIC).upper.node


@KINDS
def test_a_domain_moves_to_a_spare_one_on_the_same_rails(kind: FabricKind) -> None:
    placement = after(kind, RecoveryStrategy.SPARE_DOMAIN, Component.DOMAIN, "d1")
    moved = {Gpu(2, rail) for rail in range(3)}
    assert set(placement.gpus) == {Gpu(0, rail) for rail in range(3)} | moved
    assert [gpu.rail for gpu in placement.gpus] == [0, 1, 2] * 2
    assert placement.cross_connects == job_placement(spared(kind)).cross_connects


@KINDS
def test_a_spare_gpu_is_on_the_lost_ones_rail_or_reaches_all(kind: FabricKind) -> None:
    placement = after(kind, RecoveryStrategy.SPARE_GPU, Component.GPU, "d0g1")
    assert placement.gpus[1] == Gpu(0, 3)
    moved = kind is FabricKind.RAIL_ONLY
    assert rail_of(placement, Gpu(0, 3)) == ("rail1" if moved else "rail3")
    assert rail_of(placement, Gpu(0, 1)) == ("rail3" if moved else "rail1")


def test_a_spare_rail_switch_takes_all_nic_links_of_its_rail() -> None:
    placement = after(
        FabricKind.RAIL_ONLY, RecoveryStrategy.SPARE_RAIL_SWITCH, Component.RAIL_SWITCH, "rail1"
    )
    for gpu in placement.topology.gpus:
        expected = "rail5" if gpu.rail == 1 else f"rail{gpu.rail}"
        assert rail_of(placement, gpu) == expected


def test_a_group_moves_with_its_rails() -> None:
    home = job_placement(replace(spec(FabricKind.RAIL_ONLY, 3, 6), spares=Spares(gpus=2)))
    fault = Fault(Component.GPU, FaultMode.KILL, "d0g3")
    placement = placement_after(home, fault, RecoveryStrategy.SWAP_GROUP, group_size=2)
    assert placement.gpus[2:4] == (Gpu(1, 4), Gpu(1, 5))
    assert [rail_of(placement, gpu) for gpu in placement.gpus[2:4]] == ["rail2", "rail3"]
    assert len(set(placement.gpus)) == len(home.gpus)


def test_a_remote_gpu_is_in_another_domain() -> None:
    placement = after(FabricKind.RAIL_OPTIMIZED, RecoveryStrategy.REMOTE_GPU, Component.GPU, "d0g1")
    assert placement.gpus[1] == Gpu(2, 0)


@KINDS
@pytest.mark.parametrize("strategy", RecoveryStrategy)
def test_every_ocs_port_has_one_nic_link_and_every_rank_one_gpu(
    kind: FabricKind, strategy: RecoveryStrategy
) -> None:
    switch = strategy is RecoveryStrategy.SPARE_RAIL_SWITCH
    component, target = (Component.RAIL_SWITCH, "rail1") if switch else (Component.GPU, "d0g1")
    placement = after(kind, strategy, component, target)
    ocs_ports = [ocs_port for of_domain in placement.cross_connects for ocs_port in of_domain]
    assert len(set(ocs_ports)) == len(ocs_ports)
    assert len(set(placement.gpus)) == 6


@given(st.sampled_from(COMPARED), st.sampled_from(Component), st.data())
def test_probed_pairs_are_affected_and_have_another_path_or_are_unaffected(
    kind: FabricKind, component: Component, data: st.DataObject
) -> None:
    placement = job_placement(spec(kind, 3, 3, 3))
    names = components(placement.topology, component)
    if not names:
        return
    mode = data.draw(st.sampled_from(sorted(filter(loses_links, POSSIBLE[component]))))
    fault = Fault(component, mode, data.draw(st.sampled_from(names)))
    affected, unaffected = probed_pairs(placement, [fault], 4)
    failed = broken_links(placement.topology, fault)
    health = health_under(placement.topology, [fault])
    for pair in affected:
        assert {hop.link.name for hop in Routing(placement.topology).path(*pair)} & failed
        hops = Routing(placement.topology, health).path(*pair)
        assert not {hop.link.name for hop in hops} & failed
    for pair in unaffected:
        assert not {hop.link.name for hop in Routing(placement.topology).path(*pair)} & failed
    assert len(affected) <= 4
    reachable = [pair for pair in permutations(placement.gpus, 2) if pair not in unaffected]
    for pair in reachable:
        assert {hop.link.name for hop in Routing(placement.topology).path(*pair)} & failed


def test_a_pair_that_a_first_fault_leads_to_the_link_of_a_second_is_not_unaffected() -> None:
    """Traffic leaves a slow link for one that fails later; all of it returns then."""
    placement = job_placement(spec(FabricKind.RAIL_ONLY, 3, 2))
    slow = Fault(Component.NIC_LINK, FaultMode.DEGRADE, "d0g0--rail0", rate_bps=2_000_000)
    dead = Fault(Component.NIC_LINK, FaultMode.DOWN, "d0g1--rail1")
    between = Routing(placement.topology, health_under(placement.topology, [slow]))
    pair = Gpu(0, 0), Gpu(1, 0)
    assert dead.target in {hop.link.name for hop in between.path(*pair)}
    assert pair in probed_pairs(placement, [dead], 100)[1]
    affected, unaffected = probed_pairs(placement, [slow, dead], 100)
    assert pair in affected
    assert pair not in unaffected


def test_pairs_of_each_fault_are_probed_however_few_it_breaks() -> None:
    """Else a blackout is missed that only the few have."""
    placement = job_placement(spec(FabricKind.RAIL_OPTIMIZED, 3, 3))
    switch = Fault(Component.RAIL_SWITCH, FaultMode.DOWN, "rail0")
    uplink = Fault(Component.UPLINK, FaultMode.BLACKHOLE, "rail1--spine0")
    alone = broken_links(placement.topology, uplink) - broken_links(placement.topology, switch)
    for faults in ([switch, uplink], [uplink, switch]):
        pairs, _ = probed_pairs(placement, faults, 4)
        paths = (Routing(placement.topology).path(*pair) for pair in pairs)
        assert sum(alone <= {hop.link.name for hop in path} for path in paths) > 1
        assert len(set(pairs)) == 4


@pytest.mark.parametrize("for_s", [0.2, None])
def test_a_pair_is_affected_that_a_slow_link_moves_to_one_that_breaks_again(
    for_s: float | None,
) -> None:
    """The degraded phase begins a temporary fault again, when the slow link is drained."""
    placement = job_placement(spec(FabricKind.RAIL_ONLY, 2, 2))
    down = Fault(Component.NIC_LINK, FaultMode.DOWN, "d0g1--rail1", 0.1, for_s=for_s)
    slow = Fault(Component.NIC_LINK, FaultMode.DEGRADE, "d0g0--rail0", 0.5, rate_bps=10**6)
    _, unaffected = probed_pairs(placement, [down, slow], 9)
    source, destination = (placement.topology.gpu_by_name[name] for name in ("d0g0", "d1g0"))
    assert ((source, destination) in unaffected) is (for_s is None)


def test_a_pair_is_affected_that_moves_when_an_earlier_fault_is_over() -> None:
    """The slow link is the only one of a GPU that has lost its HB link, until that is back."""
    placement = job_placement(spec(FabricKind.RAIL_ONLY, 2, 3))
    cut = Fault(Component.HB_LINK, FaultMode.DOWN, "d0g0--hb0", 0.1, for_s=0.2)
    slow = Fault(Component.NIC_LINK, FaultMode.DEGRADE, "d0g0--rail0", 0.5, rate_bps=10**6)
    down = Fault(Component.NIC_LINK, FaultMode.DOWN, "d0g1--rail1", 0.6)
    _, unaffected = probed_pairs(placement, [cut, slow, down], 9)
    routing = Routing(placement.topology, health_under(placement.topology, [slow]))
    for pair in unaffected:
        assert down.target not in {hop.link.name for hop in routing.path(*pair)}


@KINDS
@pytest.mark.parametrize("left", [1, 0.01])
def test_the_probes_of_all_unaffected_pairs_keep_to_their_budget(
    kind: FabricKind, left: float
) -> None:
    """Also on a link that a fault slows down, which is not drained."""
    placement = job_placement(spec(kind, 3, 3, 3))
    rate_bps = round(left * placement.topology.link_by_name["d0g0--hb0"].rate_bps)
    slow = Fault(Component.HB_LINK, FaultMode.DEGRADE, "d0g0--hb0", rate_bps=rate_bps)
    pairs = list(permutations(placement.gpus, 2))
    interval_s = background_interval_s(placement, pairs, [slow])
    assert len(pairs) / interval_s <= BACKGROUND_PER_S
    after = replace(placement, health=health_under(placement.topology, [slow]))
    shares = [
        count * PROBE_BYTES * 8 / interval_s / state.health.rate_bps(hop)
        for state in (placement, after)
        for hop, count in pairs_by_hop(state, pairs).items()
    ]
    assert max(shares) == pytest.approx(BACKGROUND_SHARE)


@KINDS
@pytest.mark.parametrize("slowdown", [1, 1000])
def test_the_probes_of_affected_pairs_take_a_twentieth_of_slow_links(
    kind: FabricKind, slowdown: int
) -> None:
    """Before the fault and with it, when they share the links that are left."""
    fabric = spec(kind, 3, 3, 3)
    placement = job_placement(
        replace(fabric, bandwidth_scale=slowdown * fabric.bandwidth_scale / 100)
    )
    fault = Fault(Component.RAIL_SWITCH, FaultMode.DOWN, "rail0")
    affected, _ = probed_pairs(placement, [fault], 8)
    interval_s = affected_interval_s(placement, [fault], affected, 58)
    after = replace(placement, health=health_under(placement.topology, [fault]))
    shares = [
        count * 58 * 8 / interval_s / hop.link.rate_bps
        for state in (placement, after)
        for hop, count in pairs_by_hop(state, affected).items()
    ]
    if slowdown == 1:
        assert interval_s == SHORTEST_INTERVAL_S
        assert max(shares) < AFFECTED_SHARE
    else:
        assert max(shares) == pytest.approx(AFFECTED_SHARE)


@KINDS
def test_pairs_whose_links_an_optical_switch_moves_are_not_unaffected(kind: FabricKind) -> None:
    home = job_placement(replace(spec(kind, 3, 4, 3), spares=Spares(gpus=2)))
    fault = Fault(Component.GPU, FaultMode.KILL, "d0g1")
    later = placement_after(home, fault, RecoveryStrategy.SWAP_GROUP, 2)
    _, staying = probed_pairs(home, [fault], 4, later)
    _, unaffected = probed_pairs(home, [fault], 4)
    moved = {pair for pair in unaffected if pair not in staying}
    assert moved
    assert all(Gpu(0, 0) in pair or Gpu(0, 1) in pair for pair in moved)


def test_drops_of_a_broken_link_are_meant_where_an_optical_switch_has_moved_it() -> None:
    home = job_placement(replace(spec(FabricKind.RAIL_ONLY, 2, 3), spares=Spares(gpus=1)))
    fault = Fault(Component.GPU, FaultMode.BLACKHOLE, "d0g1")
    later = placement_after(home, fault, RecoveryStrategy.SPARE_GPU, 1)
    later = replace(later, health=health_under(later.topology, [fault]))
    (lost,) = home.topology.nic_links(Gpu(0, 1))
    assert lost.name not in later.health.failed
    names = home.topology.link_by_name
    counters = {name: Counters(0, 0, 0, 0, 5 if name == lost.name else 1) for name in names}
    before = {name: Counters(0, 0, 0, 0, 0) for name in names}
    fabric: Any = SimpleNamespace(placement=later, bed=SimpleNamespace(topology=home.topology))
    counted = dropped(fabric, Reading(before, (0, 0)), Reading(counters, (0, 0)))
    assert counted == len(names) - len(home.topology.links_of("d0g1"))


def test_a_domain_is_all_links_of_its_gpus() -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 3, 2))
    links = broken_links(topology, Fault(Component.DOMAIN, FaultMode.DOWN, "d1"))
    assert links == {"d1g0--hb1", "d1g1--hb1", "d1g0--rail0", "d1g1--rail1"}
