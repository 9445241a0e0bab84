"""Observations of a real fabric: bytes are conserved, and a saturated machine is noticed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from execution.cases.emulation import Experiment
from execution.cases.observer import carried, observing, probed
from linux.network.netlink import NetlinkSocket, read_queues
from model.fabric.spec import COMPARED, Datapath, FabricKind
from model.fabric.topology import Hop
from model.job.probing import background_interval_s
from model.workload.transfers.collective import Collective
from results.verdicts.byte_conservation import Span, link_reasons, payload_reasons
from results.verdicts.fidelity import FULL_FRAME_BYTES, Fidelity, machine_headroom, machine_reasons
from results.verdicts.verdict import Verdict
from testbed.nodes.datapath import default_datapath
from testbed.nodes.gpu_proxies import ProxyKind
from tests.integration.fabrics import fabric_up, small_spec
from traffic_gen.probes.prober_process import background, probing
from traffic_gen.workloads.sized_collective import SizedCollective

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

KINDS = pytest.mark.parametrize("kind", COMPARED)
HOG = "print(flush=True)\nwhile True: pass"
HOGS_A_CORE = 6
NOT_OBSERVED = "the machine was not observed: its speed cannot be judged"


@contextmanager
def hogs() -> Iterator[None]:
    """Saturate all cores with busy processes.

    Sessions share cores fairly, whatever their niceness (sched(7), autogroup): each process has
    its own session.
    """
    count = HOGS_A_CORE * (os.cpu_count() or 1)
    command = [sys.executable, "-c", HOG]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        for _ in range(count)
    ]
    try:
        for hog in running:
            assert hog.stdout is not None
            assert hog.stdout.readline() == b"\n"
        yield
    finally:
        for hog in running:
            hog.kill()
            hog.wait()
            assert hog.stdout is not None
            hog.stdout.close()


def observed(fabric: Experiment, folder: Path, size_bytes: int = 1_500_000) -> Fidelity:
    """Fidelity of two all-to-alls of about half a second each."""
    shape = fabric.topology.spec.job_shape
    schedule = SizedCollective(Collective.ALL_TO_ALL, "direct", shape, size_bytes).steps()
    prediction = fabric.predict(schedule)
    with observing(fabric, folder) as observer:
        done = list(fabric.repeats(schedule, prediction, 2, check_data=False))
        for repeat in done:
            observer.note(repeat)
    headroom = machine_headroom(observer.observations(done), 0)
    return Fidelity.of(machine_reasons(headroom), headroom=headroom)


def test_a_machine_without_time_is_not_believed(tmp_path: Path) -> None:
    fast = replace(small_spec(FabricKind.RAIL_OPTIMIZED, 4, 4), bandwidth_scale=1000)
    with fabric_up(fast, ProxyKind.PROCESS) as fabric, hogs():
        found = observed(fabric, tmp_path, 5_000_000)
    assert found.verdict is not Verdict.PASS
    if found.headroom is None:  # not even the observer had time
        assert found.reasons == (NOT_OBSERVED,)
    else:
        assert found.headroom.idle_mean < 0.1


def test_windows_are_kept_with_the_execution_they_are_of(tmp_path: Path) -> None:
    with fabric_up(small_spec(FabricKind.RAIL_OPTIMIZED), ProxyKind.PROCESS) as fabric:
        found = observed(fabric, tmp_path)
    header, *rows = [line.split(",") for line in (tmp_path / "vitals.csv").read_text().split()]
    assert header[:3] == ["execution", "begin_ns", "end_ns"]
    assert {row[0] for row in rows} == {"", "0", "1"}
    assert found.headroom is not None
    assert found.headroom.windows <= len([row for row in rows if row[0]])
    seen = found.headroom
    assert 0 <= seen.switch_share_mean <= seen.switch_share_max <= 1
    # In the kernel's datapath, packets pass without the switch's process.
    assert seen.switch_share_max or default_datapath() is Datapath.KERNEL


@KINDS
def test_bytes_add_up_and_doctored_ones_do_not(kind: FabricKind) -> None:
    with fabric_up(small_spec(kind, 3, 2), ProxyKind.PROCESS) as fabric:
        schedule = SizedCollective(Collective.ALL_TO_ALL, "direct", (3, 2), 600_000).steps()
        prediction = fabric.predict(schedule)
        before = fabric.bed.links.read_counters()
        done = list(fabric.repeats(schedule, prediction, 2, check_data=False))
        found = carried(fabric, before, fabric.bed.links.read_counters())
        epoch, gpus = fabric.placement.epoch, fabric.placement.gpus
        left = max(queue.backlog_bytes for _, queue in fabric.bed.links.queues())
    assert list(payload_reasons(schedule, done)) == []
    assert list(link_reasons(schedule, epoch, gpus, done, found)) == []
    assert left < FULL_FRAME_BYTES
    short = replace(done[1], received_bytes=(0, *done[1].received_bytes[1:]))
    assert [verdict for verdict, _ in payload_reasons(schedule, [short])] == [Verdict.FAIL]
    hop = Hop(fabric.topology.links[0], fabric.topology.links[0].lower.node)
    stray = replace(found, bytes={**found.bytes, hop: 10 * found.bytes[hop]})
    assert Verdict.FAIL in [v for v, _ in link_reasons(schedule, epoch, gpus, done, stray)]


@KINDS
def test_every_background_probe_is_counted_on_every_link_of_its_path(
    kind: FabricKind, tmp_path: Path
) -> None:
    with fabric_up(small_spec(kind, 3, 2), ProxyKind.PROCESS) as fabric:
        placement, bed = fabric.placement, fabric.bed
        pairs = list(permutations(placement.gpus, 2))
        cadence = background(background_interval_s(placement, pairs))
        schedule = SizedCollective(Collective.ALL_TO_ALL, "direct", (3, 2), 600_000).steps()
        with probing(bed.process_ids, pairs, tmp_path, bed.watch, cadence) as probes:
            prediction = fabric.predict(schedule)
            before = bed.links.read_counters()
            done = list(fabric.repeats(schedule, prediction, 2, check_data=False))
            found = carried(fabric, before, bed.links.read_counters())
            records = probes.stop()
    epoch, gpus, spans = placement.epoch, placement.gpus, probed(found, placement, pairs, records)
    known = replace(found, probed=spans)
    assert set(spans) == set(found.bytes)
    assert min(span.least for span in spans.values()) > 0
    assert list(link_reasons(schedule, epoch, gpus, done, known)) == []
    # Segments that a busy machine retransmits would explain as many bytes.
    regular = [replace(repeat, retransmitted=(), out_of_order=()) for repeat in done]
    # Twice the most is too many, however long a busy machine took to read the counters.
    twice = {hop: Span(2 * span.most, 2 * span.most) for hop, span in spans.items()}
    for wrong in ({}, twice):
        doctored = replace(found, probed=wrong)
        reasons = link_reasons(schedule, epoch, gpus, regular, doctored)
        assert Verdict.FAIL in [verdict for verdict, _ in reasons]


def test_all_queues_of_the_switches_are_read_at_once() -> None:
    with fabric_up(small_spec(FabricKind.RAIL_ONLY), ProxyKind.PROCESS) as fabric:
        netlink = NetlinkSocket()
        found = {queue.interface for queue in read_queues(netlink)}
        netlink.close()
        links = fabric.topology.links
        assert found == {fabric.bed.links.index_of(link.upper) for link in links}
