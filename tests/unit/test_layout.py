"""Placement of jobs after a fault, and the pairs that are probed during it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.fabric.spec import FabricKind, FabricSpec
from model.fabric.topology import Gpu, LinkKind, build_topology
from model.faults import POSSIBLE, Component, Fault, FaultMode, broken_links, health_under, parts
from model.job.placement import Layout, job_layout, probed_pairs
from model.job.recovery import RecoveryStrategy, layout_after
from model.routing.paths import path
from tests.unit.fabrics import spec

KINDS = pytest.mark.parametrize("kind", FabricKind)


def spared(kind: FabricKind) -> FabricSpec:
    """A job of 2 domains of 3 GPUs, with a spare of everything."""
    full = spec(kind, 3, 5, 3)
    return replace(full, spare_domains=1, spare_gpus=2, spare_rail_switches=1)


def after(kind: FabricKind, reaction: RecoveryStrategy, what: Component, target: str) -> Layout:
    fault = Fault(what, FaultMode.DOWN, target)
    return layout_after(job_layout(spared(kind)), fault, reaction, group_size=1)


def rail_of(layout: Layout, gpu: Gpu) -> str:
    return layout.topology.link_of(gpu, LinkKind.NIC).upper.node


@KINDS
def test_a_domain_moves_to_a_spare_one_on_the_same_rails(kind: FabricKind) -> None:
    layout = after(kind, RecoveryStrategy.SPARE_DOMAIN, Component.DOMAIN, "d1")
    moved = {Gpu(2, rail) for rail in range(3)}
    assert set(layout.placement) == {Gpu(0, rail) for rail in range(3)} | moved
    assert [gpu.rail for gpu in layout.placement] == [0, 1, 2] * 2
    assert layout.circuits == job_layout(spared(kind)).circuits


@KINDS
def test_a_spare_gpu_is_on_the_lost_ones_rail_or_reaches_all(kind: FabricKind) -> None:
    layout = after(kind, RecoveryStrategy.SPARE_GPU, Component.GPU, "d0g1")
    assert layout.placement[1] == Gpu(0, 3)
    moved = kind is FabricKind.RAIL_ONLY
    assert rail_of(layout, Gpu(0, 3)) == ("rail1" if moved else "rail3")
    assert rail_of(layout, Gpu(0, 1)) == ("rail3" if moved else "rail1")


def test_a_spare_rail_switch_takes_all_nic_links_of_its_rail() -> None:
    layout = after(
        FabricKind.RAIL_ONLY, RecoveryStrategy.SPARE_RAIL_SWITCH, Component.RAIL_SWITCH, "rail1"
    )
    for gpu in layout.topology.gpus:
        expected = "rail5" if gpu.rail == 1 else f"rail{gpu.rail}"
        assert rail_of(layout, gpu) == expected


def test_a_group_moves_with_its_rails() -> None:
    home = job_layout(replace(spec(FabricKind.RAIL_ONLY, 3, 6), spare_gpus=2))
    fault = Fault(Component.GPU, FaultMode.KILL, "d0g3")
    layout = layout_after(home, fault, RecoveryStrategy.SWAP_GROUP, group_size=2)
    assert layout.placement[2:4] == (Gpu(1, 4), Gpu(1, 5))
    assert [rail_of(layout, gpu) for gpu in layout.placement[2:4]] == ["rail2", "rail3"]
    assert len(set(layout.placement)) == len(home.placement)


def test_a_remote_gpu_is_in_another_domain() -> None:
    layout = after(FabricKind.RAIL_OPTIMIZED, RecoveryStrategy.REMOTE_GPU, Component.GPU, "d0g1")
    assert layout.placement[1] == Gpu(2, 0)


@KINDS
@pytest.mark.parametrize("reaction", RecoveryStrategy)
def test_every_slot_has_one_nic_link_and_every_rank_one_gpu(
    kind: FabricKind, reaction: RecoveryStrategy
) -> None:
    switch = reaction is RecoveryStrategy.SPARE_RAIL_SWITCH
    what, target = (Component.RAIL_SWITCH, "rail1") if switch else (Component.GPU, "d0g1")
    layout = after(kind, reaction, what, target)
    slots = [slot for of_domain in layout.circuits for slot in of_domain]
    assert len(set(slots)) == len(slots)
    assert len(set(layout.placement)) == 6


@given(st.sampled_from(FabricKind), st.sampled_from(Component), st.data())
def test_probed_pairs_are_hit_and_have_another_way_or_are_not_touched(
    kind: FabricKind, what: Component, data: st.DataObject
) -> None:
    layout = job_layout(spec(kind, 3, 3, 3))
    names = parts(layout.topology, what)
    if not names:
        return
    how = data.draw(st.sampled_from(sorted(POSSIBLE[what] - {FaultMode.DEGRADE})))
    fault = Fault(what, how, data.draw(st.sampled_from(names)))
    hit, untouched = probed_pairs(layout, [fault], 4)
    failed = broken_links(layout.topology, fault)
    health = health_under(layout.topology, [fault])
    for pair in hit:
        assert {hop.link.name for hop in path(layout.topology, *pair)} & failed
        assert not {hop.link.name for hop in path(layout.topology, *pair, health)} & failed
    for pair in untouched:
        assert not {hop.link.name for hop in path(layout.topology, *pair)} & failed
    assert max(len(hit), len(untouched)) <= 4


def test_a_domain_is_all_links_of_its_gpus() -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 3, 2))
    links = broken_links(topology, Fault(Component.DOMAIN, FaultMode.DOWN, "d1"))
    assert links == {"d1g0--hb1", "d1g1--hb1", "d1g0--rail0", "d1g1--rail1"}
