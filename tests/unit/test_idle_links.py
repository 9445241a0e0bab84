"""Idle links: a switch that is upgraded is ended once its links carry no data."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from model.fabric.build import build_topology
from model.fabric.link_probes import probe_interval_s
from model.fabric.spec import FabricKind
from testbed.fabric.links import Counters, Reading
from testbed.faults import injector
from testbed.faults.injector import FaultInjector
from tests.unit.fabrics import spec

TOPOLOGY = build_topology(spec(FabricKind.RAIL_ONLY, 2, 2))
INTERVAL_S = probe_interval_s(TOPOLOGY)


@pytest.mark.parametrize(
    ("intervals", "packets", "idle"),
    [(2, 2, True), (2, 8, False), (20, 20, True), (20, 40, False)],
)
def test_probes_leave_a_link_idle_however_long_the_readings_take(
    monkeypatch: pytest.MonkeyPatch, intervals: int, packets: int, idle: bool
) -> None:
    """A reading takes as long as four probes where the processor is busy."""
    counts = iter([0, packets])

    def read(links: Any) -> Reading:
        sent = next(counts)
        now = Counters(0, sent, 0, sent, 0)
        ns = round(intervals * INTERVAL_S * 1e9) if sent else 0
        return Reading({link.name: now for link in links}, (ns, ns))

    monkeypatch.setattr(injector, "IDLE_S", 0)
    bed = SimpleNamespace(topology=TOPOLOGY, links=SimpleNamespace(read_counters=read))
    links = TOPOLOGY.links_of("rail0")
    assert FaultInjector(cast(Any, bed))._are_idle(links) is idle
