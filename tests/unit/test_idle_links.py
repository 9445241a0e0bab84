"""Idle links: a switch that is upgraded is ended once its links carry no data."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from model.fabric.build import build_topology
from model.fabric.link_probes import probe_interval_s
from model.fabric.spec import FabricKind
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
    counts, times_s = iter([0, packets]), iter([0, intervals * INTERVAL_S])

    def read(_: Path) -> str:
        count = next(counts)
        lines = (f"{link.upper.interface}: 0 {count} 0 0 0 0 0 0 0 {count}" for link in links)
        return "\n".join(["", "", *lines])

    clock = SimpleNamespace(monotonic=lambda: next(times_s), sleep=lambda _: None)
    monkeypatch.setattr(injector, "time", clock)
    monkeypatch.setattr(Path, "read_text", read)
    daemon = SimpleNamespace(process_id=1)
    bed = SimpleNamespace(topology=TOPOLOGY, open_vswitch=daemon, links=None)
    links = TOPOLOGY.links_of("rail0")
    assert FaultInjector(cast(Any, bed))._are_idle(links) is idle
