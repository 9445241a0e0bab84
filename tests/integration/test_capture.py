"""Captures on a real fabric: each direction of a link has the bytes of its transfers."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from scapy.utils import RawPcapReader

from execution.cases.observer import capturing
from model.errors import EmulationError
from model.fabric.spec import FabricKind
from model.workload.transfers.collective import Collective
from testbed.nodes.gpu_proxies import ProxyKind
from tests.integration.fabrics import fabric_up, slowed_down, small_spec
from tests.machine import wait_until
from traffic_gen.workloads.sized_collective import SizedCollective

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

LINKS = ("d0g0--rail0", "d0g0--hb0", "rail0--spine0")
SIZE_BYTES = 400_000
# What headers, acknowledgements and probes add at most.
OVERHEAD = 1.25


def captured_bytes(place: Path, not_before_s: float) -> int:
    """Bytes of all frames of a file, whose moments are in the present."""
    with RawPcapReader(str(place)) as reader:
        found = [about for _, about in reader]
    moments = [about.sec + about.usec / 1e9 for about in found]
    assert all(not_before_s - 1 < moment < time.time() + 1 for moment in moments)
    return sum(about.wirelen for about in found)


def test_each_direction_has_the_bytes_of_its_transfers(tmp_path: Path) -> None:
    fabric_spec = slowed_down(small_spec(FabricKind.RAIL_OPTIMIZED))
    schedule = SizedCollective(Collective.ALL_TO_ALL, "direct", (2, 2), 4 * SIZE_BYTES).steps()
    begun_s = time.time()
    with fabric_up(fabric_spec, ProxyKind.PROCESS) as fabric:
        links = [fabric.topology.link_by_name[name] for name in LINKS]
        prediction = fabric.predict(schedule)
        with capturing(links, tmp_path, fabric.bed.watch):
            (done,) = fabric.repeats(schedule, prediction, 1, check_data=False)
        assert done.complete
        before = {file: captured_bytes(file, begun_s) for file in tmp_path.glob("*.pcap")}
    found = json.loads((tmp_path / "capture.json").read_text())["links"]
    assert [entry["link"] for entry in found] == list(LINKS)
    assert [entry["dropped_by_kernel"] for entry in found] == [0, 0, 0]
    # d0g0 exchanges one part with its neighbour by the HB link, and two by its NIC.
    for link, parts in (("d0g0--hb0", 1), ("d0g0--rail0", 2)):
        for direction in ("up", "down"):
            carried = before[tmp_path / f"{link}.{direction}.pcap"]
            assert parts * SIZE_BYTES <= carried <= parts * SIZE_BYTES * OVERHEAD


def test_a_dead_capture_is_told(tmp_path: Path) -> None:
    with fabric_up(small_spec(FabricKind.RAIL_ONLY), ProxyKind.PROCESS) as fabric:
        link = fabric.topology.link_by_name["d0g0--rail0"]

        def is_told() -> bool:
            fabric.bed.watch.check()
            return False

        def kill_the_capture() -> None:
            with capturing([link], tmp_path, fabric.bed.watch):
                os.kill(capture_process(tmp_path), signal.SIGKILL)
                wait_until(is_told, "the death is told", 10)

        with pytest.raises(EmulationError, match=r"the capture \(process \d+\) died"):
            kill_the_capture()


def capture_process(folder: Path) -> int:
    """The id of the process that captures into a folder."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            words = (place / "cmdline").read_bytes().split(b"\0")
            if words[0] != b"setpriv" and os.fsencode(folder) in words:
                return int(place.name)
    raise AssertionError("no capture is running")
