"""Paths of many pairs at once are those that packets take hop by hop."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from model.fabric.health import HEALTHY, Health
from model.fabric.topology import Topology
from model.prediction.network import FIRST_LINK, PADDING, Directions, PairPaths
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
