"""Links of a real fabric, each measured alone."""

import pytest

from model.calibration import Direction, representatives
from model.errors import EmulationError
from model.fabric import FabricKind
from model.shaping import Shaper
from model.topology import LinkKind, Port
from scenarios.calibrating import calibrate, require_calibrated
from scenarios.experiment import Experiment
from testbed.controller_process import read_journal
from testbed.proxies import ProxyKind
from testbed.shapers import reshape
from tests.integration.fabrics import fabric_up, small_spec

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

FABRICS = [
    (FabricKind.RAIL_ONLY, ProxyKind.CONTAINER),
    (FabricKind.RAIL_OPTIMIZED, ProxyKind.PROCESS),
]


@pytest.mark.parametrize(("kind", "proxies"), FABRICS)
def test_a_fabric_that_has_come_up_is_within_tolerance(
    kind: FabricKind, proxies: ProxyKind
) -> None:
    with fabric_up(small_spec(kind), proxies) as fabric:
        begin = fabric.bed.controller.written()
        before = fabric.counters()
        found = calibrate(fabric)
        require_calibrated(kind, found)
        of_fabric = {link.kind for link in fabric.topology.links}
        assert {direction.kind for direction in found} == of_fabric
        assert {direction.direction for direction in found} == set(Direction)
        measured = {direction.link for direction in found}
        for name, counters in fabric.counters().items():
            assert counters.dropped_packets == before[name].dropped_packets
            if name not in measured:
                assert counters.sent_bytes - before[name].sent_bytes < 10_000, "nothing is flooded"
        detected = [
            line for line in read_journal(fabric.bed.journal)[begin:] if line["event"] == "detected"
        ]
        assert detected == [], "the controller's probes are not disturbed"


def change_shaper(fabric: Experiment, port: Port, rate_bps: int) -> None:
    """Behind everyone's back: not as a fault that the testbed makes."""
    wires = fabric.bed.wires
    reshape(wires.netlink_of(port), wires.index_of(port), Shaper(rate_bps))


@pytest.mark.parametrize("kind", LinkKind)
def test_a_direction_whose_shaper_is_changed_is_found(kind: LinkKind) -> None:
    with fabric_up(small_spec(FabricKind.RAIL_OPTIMIZED), ProxyKind.PROCESS) as fabric:
        link = next(link for link in representatives(fabric.topology) if link.kind is kind)
        change_shaper(fabric, link.upper, link.rate_bps * 9 // 10)
        found = calibrate(fabric)
        flawed = [(direction.link, direction.direction) for direction in found if direction.flaws]
        assert flawed == [(link.name, Direction.DOWN)]
        with pytest.raises(EmulationError, match=rf"{link.name}, downwards: carries .* \(-10"):
            require_calibrated("rail-optimized", found)
