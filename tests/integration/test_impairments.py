"""Delay and loss of a real fabric's links; if the kernel has no netem, the error message."""

import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from commands.options import require_possible
from model.errors import InputError
from model.fabric.shaping import Impairment
from model.fabric.spec import FabricKind
from model.fabric.topology import Gpu
from scenarios.library_files import LIBRARY
from scenarios.load import load
from testbed.fabric.shaping import missing_netem
from testbed.nodes.gpu_proxies import ProxyKind
from tests.integration.fabrics import fabric_up, small_spec
from tests.machine import wait_until
from traffic_gen.probes.blackout import PairRecord
from traffic_gen.probes.prober_process import probing

NIC = Impairment(delay_s=0.005, loss=0.02)
ACROSS, WITHIN = (Gpu(0, 0), Gpu(1, 0)), (Gpu(0, 0), Gpu(0, 1))
PROBING_S = 2
LINKS = 2  # on each of the two paths

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]


def test_links_delay_and_lose_packets_or_are_refused(tmp_path: Path) -> None:
    if missing_netem():
        with pytest.raises(InputError, match="modprobe sch_netem"):
            require_possible(load(LIBRARY / "quickstart.yaml", ["fabric.nic_delay=0.005"]))
        return
    small = small_spec(FabricKind.RAIL_ONLY)
    fabric = replace(small, nic=replace(small.nic, impairment=NIC))
    with fabric_up(fabric, ProxyKind.PROCESS) as running:
        running.bed.links.impair()
        with probing(
            running.bed.process_ids, (ACROSS, WITHIN), tmp_path, running.bed.watch
        ) as probes:
            end_s = time.monotonic() + PROBING_S
            wait_until(lambda: time.monotonic() > end_s, "probes were sent")
            across, within = probes.stop()
    assert 0.5 * LINKS * NIC.loss < lost_part(across) < 2 * LINKS * NIC.loss
    assert lost_part(within) == 0
    assert LINKS * NIC.delay_s <= median(delays_s(across)) < (LINKS + 1) * NIC.delay_s
    assert median(delays_s(within)) < NIC.delay_s


def lost_part(record: PairRecord) -> float:
    """Fraction of a pair's probes that did not arrive."""
    return 1 - len(record.arrived_ns) / len(record.sent_ns)


def delays_s(record: PairRecord) -> list[float]:
    """Delay in seconds of each probe that arrived."""
    arrived = record.arrived_ns.items()
    return [(arrived_ns - record.sent_ns[number]) / 1e9 for number, arrived_ns in arrived]
