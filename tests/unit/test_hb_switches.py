"""HB domains of two tiers: names, rates, paths, ports, bounds, and mistakes in scenarios."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from execution.live.feed import picture
from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.health import Epoch, without
from model.fabric.spec import COMPARED, FabricKind, FabricSpec, Spares
from model.fabric.topology import Hop, LinkKind, Port, Topology
from model.faults import Component, components
from model.prediction.fluid import path_class, predict
from model.prediction.machine import Machine
from model.prediction.network import FIRST_LINK, PADDING, Directions, PairPaths
from model.routing.paths import Routing
from model.workload.transfers.collective import Collective
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.planning.auto import MAX_LINK_BPS
from scenarios.planning.plan import estimate_of
from tests.unit.fabrics import spec, with_hb_leaves
from tests.unit.machines import TWO_CORES
from traffic_gen.workloads.sized_collective import SizedCollective

HB, TRUNK = LinkKind.HB, LinkKind.HB_TRUNK


@st.composite
def two_tiers(draw: st.DrawFn) -> Topology:
    """Fabrics of both kinds whose HB domains have 2 to 4 leaf switches."""
    leaves, each = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    kind, domains = draw(st.sampled_from(COMPARED)), draw(st.integers(2, 3))
    fabric = spec(kind, domains, leaves * each, spines=draw(st.integers(1, 3)))
    slower = draw(st.sampled_from([1.0, 2.0, 3.5]))
    return build_topology(with_hb_leaves(fabric, leaves, slower))


@given(two_tiers())
def test_names_of_nodes_ports_and_interfaces_are_unique(topology: Topology) -> None:
    ports = [port for link in topology.links for port in (link.lower, link.upper)]
    assert len(set(ports)) == len({(port.node, port.number) for port in ports}) == len(ports)
    at_switches = [port.interface for port in ports if port.node not in topology.gpu_by_name]
    assert len(set(at_switches)) == len(at_switches)
    assert max(map(len, at_switches)) <= 15
    nodes = (*topology.hb_switches, *topology.hb_leaves, *topology.openflow_switches)
    assert {port.node for port in ports} == {*nodes, *topology.gpu_by_name}


@given(two_tiers())
def test_a_trunk_has_the_rate_of_its_leafs_links_by_the_oversubscription(
    topology: Topology,
) -> None:
    assert len(topology.trunks) == topology.spec.domains * topology.spec.hb.leaves
    for leaf, trunk in topology.trunks.items():
        below = sum(link.rate_bps for link in topology.links_below(leaf))
        assert trunk.rate_bps * topology.spec.hb.oversubscription == pytest.approx(below, rel=1e-6)


@given(two_tiers())
def test_paths_in_a_domain_cross_the_second_level_only_between_leaves(topology: Topology) -> None:
    routing = Routing(topology)
    for source, destination in permutations(topology.domain(1), 2):
        hops = routing.path(source, destination)
        ends = [topology.link_of(gpu, HB).upper.node for gpu in (source, destination)]
        expected = (HB, HB) if ends[0] == ends[1] else (HB, TRUNK, TRUNK, HB)
        assert path_class(hops) == expected
        assert [hop.receiver for hop in hops[:-1]] == [hop.sender for hop in hops[1:]]
        assert (hops[0].sender, hops[-1].receiver) == (source.name, destination.name)


@given(two_tiers())
def test_every_pair_has_the_path_of_its_packets(topology: Topology) -> None:
    routing, directions = Routing(topology), Directions()
    sources, destinations = np.nonzero(~np.eye(len(topology.gpus), dtype=bool))
    rows = PairPaths(routing, directions).rows(sources, destinations)
    for source, destination, row in zip(sources, destinations, rows, strict=True):
        hops = tuple(directions.hops[n - FIRST_LINK] for n in row if n != PADDING)
        assert hops == routing.path(topology.gpus[source], topology.gpus[destination])


@given(two_tiers())
def test_frames_that_follow_the_ports_of_bridges_take_the_path_of_the_model(
    topology: Topology,
) -> None:
    """Each port of an HB switch leads to other GPUs, and all of its domain to exactly one."""
    ports = {n: topology.hb_ports(n) for n in (*topology.hb_switches, *topology.hb_leaves)}
    link_at = {port: link for link in topology.links for port in (link.lower, link.upper)}
    for source, destination in permutations(topology.domain(0), 2):
        first = topology.link_of(source, HB)
        hops = [Hop(first, source.name)]
        while hops[-1].receiver in ports:
            here: Mapping[Port, Any] = ports[hops[-1].receiver]
            (port,) = (port for port, gpus in here.items() if destination in gpus)
            hops.append(Hop(link_at[port], port.node))
        assert tuple(hops) == topology.hb_hops(source, destination)


def test_one_tier_is_as_before() -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 4))
    assert (topology.hb_leaves, topology.trunks) == ((), {})
    assert set(topology.hb_ports("hb1").values()) == {(gpu,) for gpu in topology.domain(1)}


@pytest.mark.parametrize("slower", [1.0, 4.0])
def test_a_ring_in_the_domain_is_as_slow_as_its_trunks(slower: float) -> None:
    """An all-to-all within domains of 2 x 2 GPUs: two GPUs send two thirds over their trunk."""
    fabric = with_hb_leaves(spec(FabricKind.RAIL_ONLY, 2, 4), 2, slower)
    size = 40_000_000
    direct = Collective.ALL_TO_ALL, "direct", (2, 4), size
    schedule = SizedCollective(*direct, communicator="domains").steps()
    topology = build_topology(fabric)
    latency = {(HB, HB): 1e-4, (HB, TRUNK, TRUNK, HB): 1e-4}
    found = predict(schedule, [Epoch(topology)], latency)
    free = predict(schedule, [Epoch(build_topology(with_hb_leaves(fabric, 1, slower)))], latency)
    pair = size / 4
    links_s = [3 * pair / topology.link_of(topology.gpus[0], HB).rate_bps]
    links_s.append(4 * pair / topology.trunks["hb0l0"].rate_bps)
    assert found.completion_s / free.completion_s == pytest.approx(
        max(links_s) / links_s[0], rel=0.02
    )
    assert found.lower_bound_s <= found.completion_s


def test_switches_of_both_tiers_and_trunks_can_break() -> None:
    fabric = replace(with_hb_leaves(spec(FabricKind.RAIL_ONLY, 2, 4), 2), spares=Spares(domains=1))
    topology = build_topology(fabric)
    assert components(topology, Component.HB_SWITCH) == ("hb0l0", "hb0l1", "hb0")
    assert components(topology, Component.HB_TRUNK) == ("hb0l0--hb0", "hb0l1--hb0")


def test_without_a_trunk_leaves_reach_each_other_over_rails_and_another_domain() -> None:
    topology = build_topology(with_hb_leaves(spec(FabricKind.RAIL_ONLY, 2, 4), 2))
    routing = Routing(topology, without(topology, links=["hb0l1--hb0"]))
    near, peer, far = topology.gpu_at[0, 0], topology.gpu_at[0, 1], topology.gpu_at[0, 2]
    assert path_class(routing.path(near, peer)) == (HB, HB)
    hops = routing.path(near, far)
    assert TRUNK in path_class(hops)
    assert {hop.link.name for hop in hops}.isdisjoint({"hb0l0--hb0", "hb0l1--hb0"})
    assert path_class(routing.path(topology.gpu_at[1, 0], topology.gpu_at[1, 2])) == (
        HB,
        TRUNK,
        TRUNK,
        HB,
    )


def test_the_live_picture_has_leaves_above_the_second_level() -> None:
    fabric = with_hb_leaves(spec(FabricKind.RAIL_ONLY, 2, 4), 2)
    nodes = {node["name"]: node for node in picture(build_topology(fabric))["nodes"]}
    shown = {
        name: (node["level"], node["first"], node["columns"])
        for name, node in nodes.items()
        if node["kind"] == "hb-switch" and node["row"] == 1
    }
    assert shown == {"hb1l0": (0, 0, 2), "hb1l1": (0, 2, 2), "hb1": (1, 0, 4)}


HEAD = "fabric: {domains: 2, domain_size: 4, platform: gh200, bandwidth_scale: 20000, "
WORK = "workloads: [{collective: all-reduce, algorithm: hierarchical, size: 1 GB, size_scale: 200}]"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            "hb_leaves: 3",
            "x.yaml:1 fabric.hb_leaves: 3 leaf HB switches must divide 4 GPUs, spares included "
            "(use a divisor of 4)",
        ),
        (
            "hb_leaves: 0",
            "x.yaml:1 fabric.hb_leaves: must be at least 1, got 0",
        ),
        (
            "hb_oversubscription: 2.0",
            "x.yaml:1 fabric.hb_oversubscription: needs trunks; a single HB switch has none "
            "(use hb_leaves of 2 or more)",
        ),
        (
            "hb_leaves: 2, hb_oversubscription: 10000.0",
            "x.yaml:1 fabric.bandwidth_scale: leaves a trunk between HB switches 0.036 Mbit/s, "
            "below the 0.1 Mbit/s that can be shaped (bandwidth_scale 20000) "
            "(use at most 7200)",
        ),
    ],
)
def test_mistakes_of_two_tiers_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(f"{HEAD}{keys}}}\n{WORK}\n")
    with pytest.raises(InputError) as caught:
        load(Path("x.yaml"))
    assert [str(problem) for problem in caught.value.problems] == [message]


@pytest.mark.parametrize("machine", [None, TWO_CORES])
def test_no_trunk_is_faster_than_links_that_were_measured(
    tmp_path: Path, machine: Machine | None
) -> None:
    place, head = tmp_path / "x.yaml", HEAD.replace("bandwidth_scale: 20000, ", "")
    place.write_text(f"{head}hb_leaves: 2}}\n{WORK}\n".replace("domain_size: 4", "domain_size: 8"))
    for fabric in load(place, machine=machine).fabrics:
        assert fabric.emulated_hb_trunk_bps <= MAX_LINK_BPS


def test_the_scenario_of_the_library_has_two_tiers_on_both_fabrics() -> None:
    scenario = load(LIBRARY / "two-tier-domains.yaml")
    assert {fabric.hb.leaves for fabric in scenario.fabrics} == {2}


def test_a_large_domain_is_estimated_by_a_smaller_one_of_two_tiers(tmp_path: Path) -> None:
    place = tmp_path / "x.yaml"
    place.write_text(f"{HEAD}hb_leaves: 8}}\n{WORK}\n".replace("domain_size: 4", "domain_size: 64"))
    scenario = load(place, ["allow_overload=true"])
    for case, fabric in zip(scenario.cases, scenario.fabrics, strict=True):
        assert isinstance(fabric, FabricSpec)
        assert estimate_of(case, fabric).completion_s > 0
