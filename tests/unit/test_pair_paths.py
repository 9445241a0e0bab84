"""Paths of many pairs at once are those that packets take hop by hop."""

from collections import Counter
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from model.fabric.build import build_topology
from model.fabric.health import HEALTHY, Epoch, Health
from model.fabric.spec import FabricKind, SpineSelection
from model.fabric.topology import Hop, LinkKind, Topology
from model.fabric.transport import Transport
from model.prediction.network import FIRST_LINK, PADDING, Directions, PairPaths, networks
from model.routing.paths import Routing
from tests.unit.fabrics import by_roce, fabrics_with_failures, spec, topologies


@given(
    st.one_of(topologies().map(lambda found: (found, HEALTHY)), fabrics_with_failures(5, 4)),
)
def test_every_pair_has_the_path_of_its_packets(case: tuple[Topology, Health]) -> None:
    topology, health = case
    routing, directions = Routing(topology, health), Directions()
    sources, destinations = np.nonzero(~np.eye(len(topology.gpus), dtype=bool))
    lanes = topology.spec.lanes
    rows = PairPaths(routing, directions).rows(sources, destinations * lanes)
    for source, destination, row in zip(sources, destinations, rows, strict=True):
        hops = tuple(directions.hops[n - FIRST_LINK] for n in row if n != PADDING)
        gpus = topology.gpus
        assert hops == (routing.path_if_any(gpus[source], gpus[destination]) or ())


@given(topologies(4, 3), st.integers(1, 4), st.sampled_from(SpineSelection), st.booleans())
def test_pairs_by_roce_have_the_uplinks_of_all_their_paths(
    topology: Topology, queue_pairs: int, selection: SpineSelection, split: bool
) -> None:
    """Where packets take several at once, each uplink stands as often as a path has it."""
    # A custom fabric may not spray, nor split data over several ports of a GPU.
    refused = selection is SpineSelection.SPRAY or (split and topology.spec.lanes > 1)
    assume(not (refused and topology.spec.nic.links))
    spec = by_roce(topology, queue_pairs, selection).spec
    spec = replace(spec, roce=replace(spec.roce, split=split))
    fabric, numbers = build_topology(spec), range(spec.entropies)
    ends = [
        (a, b, n)
        for a, b in permutations(range(len(fabric.gpus)), 2)
        for n in (numbers if spec.ways == 1 else [0])
    ]
    one, other, entropy = np.array(ends).T
    (net,) = networks([Epoch(fabric)], fabric.gpus, (one, other, np.zeros_like(one), entropy))
    routing, gpus = Routing(fabric), fabric.gpus
    for row, (a, b, n) in zip(net.paths, ends, strict=True):
        found = Counter(net.hops[number - FIRST_LINK] for number in row if number >= FIRST_LINK)
        crosses = gpus[a].domain != gpus[b].domain
        taken = numbers if spec.ways > 1 and crosses else [n]
        paths = [Counter(routing.path(gpus[a], gpus[b], number)) for number in taken]
        uplinks = sum(paths, Counter[Hop]())
        wanted = {h: uplinks[h] if h.link.kind is LinkKind.UPLINK else 1 for h in uplinks}
        assert found == wanted
    for hop, rate in zip(net.hops, net.rate[FIRST_LINK:], strict=True):
        several = spec.ways if hop.link.kind is LinkKind.UPLINK else 1
        assert rate * 8 == pytest.approx(several * hop.link.rate_bps, abs=8 * several)


@given(topologies(4, 4, most_missing=3))
def test_pairs_of_different_domains_send_by_roce(topology: Topology) -> None:
    fabric = build_topology(replace(topology.spec, transport=Transport.ROCE))
    gpus = fabric.gpus
    one, other = np.nonzero(~np.eye(len(gpus), dtype=bool))
    (net,) = networks([Epoch(fabric)], gpus, (one, other, np.zeros_like(one), np.zeros_like(one)))
    crosses = [gpus[a].domain != gpus[b].domain for a, b in zip(one, other, strict=True)]
    assert net.by_roce.tolist() == crosses


def test_tcp_over_spines_has_one_path_and_all_of_its_ways() -> None:
    """GPUs of one domain without their HB switch send by TCP, whose packets have one path."""
    plain = build_topology(spec(FabricKind.RAIL_OPTIMIZED, 2, 2, spines=2))
    fabric = build_topology(by_roce(plain, 1, SpineSelection.SPRAY).spec)
    hb = [link.name for link in fabric.links if link.kind is LinkKind.HB]
    (net,) = networks(
        [Epoch(fabric, Health(frozenset(hb)))],
        fabric.gpus,
        (np.array([0]), np.array([1]), np.zeros(1, int), np.zeros(1, int)),
    )
    assert fabric.spec.ways == 2
    shares = np.broadcast_to(net.share, net.links)
    found = Counter(number for number in net.paths[0].tolist() if number != PADDING)
    assert {number: count * shares[number] for number, count in found.items()} == dict.fromkeys(
        found, 1
    )
