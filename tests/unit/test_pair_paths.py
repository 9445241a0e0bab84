"""Paths of many pairs at once are those that packets take hop by hop."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from model.fabric.build import build_topology
from model.fabric.health import HEALTHY, Epoch, Health
from model.fabric.topology import Topology
from model.fabric.transport import Transport
from model.prediction.network import FIRST_LINK, PADDING, Directions, PairPaths, networks
from model.routing.paths import Routing
from tests.unit.fabrics import fabrics_with_failures, topologies


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


@given(topologies(4, 4, most_missing=3))
def test_pairs_of_different_domains_send_by_roce(topology: Topology) -> None:
    fabric = build_topology(replace(topology.spec, transport=Transport.ROCE))
    gpus = fabric.gpus
    one, other = np.nonzero(~np.eye(len(gpus), dtype=bool))
    (net,) = networks([Epoch(fabric)], gpus, (one, other, np.zeros_like(one)))
    crosses = [gpus[a].domain != gpus[b].domain for a, b in zip(one, other, strict=True)]
    assert net.by_roce.tolist() == crosses
