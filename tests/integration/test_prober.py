"""Probes over real fabrics: only affected pairs lose probes, and only during the fault."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from execution.cases.emulation import Experiment
from linux.network.namespaces import namespace_of
from model.errors import EmulationError
from model.fabric import addressing
from model.fabric.spec import FabricKind
from model.fabric.topology import Gpu, LinkKind
from testbed.nodes.gpu_proxies import ProxyKind
from tests.integration.fabrics import fabric_up, small_spec
from tests.machine import wait_until
from traffic_gen.probes.blackout import PairRecord, blackouts, longest, lost
from traffic_gen.probes.prober_process import pair_name, probing

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

AFFECTED = ((Gpu(0, 0), Gpu(1, 0)), (Gpu(1, 0), Gpu(0, 0)))
UNAFFECTED = ((Gpu(0, 1), Gpu(1, 1)), (Gpu(0, 0), Gpu(0, 1)))
PAIRS = AFFECTED + UNAFFECTED
PATIENCE_S = 0.1


@pytest.fixture
def fabric() -> Iterator[Experiment]:
    with fabric_up(small_spec(FabricKind.RAIL_ONLY), ProxyKind.PROCESS) as running:
        yield running


def let_pass(seconds: float) -> None:
    end_s = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > end_s, f"{seconds} s pass")


def reaches(fabric: Experiment, source: Gpu, destination: Gpu) -> bool:
    """Whether a UDP datagram from one GPU arrives at another."""
    opened = []
    for gpu in (source, destination):
        with namespace_of(fabric.bed.proxies[gpu.name].process_id):
            opened.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with opened[0] as sender, opened[1] as receiver:
        receiver.bind((str(addressing.nic_address(destination)), 0))
        receiver.settimeout(PATIENCE_S)
        try:
            sender.sendto(b"there", receiver.getsockname())
            return receiver.recv(10) == b"there"
        except OSError:
            return False


def set_nic_link(fabric: Experiment, gpu: Gpu, state: str) -> int:
    """Set the switch's end of a GPU's NIC link up or down; return when, in nanoseconds."""
    links = fabric.bed.links
    port = fabric.topology.link_of(gpu, LinkKind.NIC).upper
    begun_ns = time.monotonic_ns()
    links.switches.link("set", index=links.index_of(port), state=state)
    return begun_ns


def by_pair(records: list[PairRecord]) -> dict[str, PairRecord]:
    return {record.name: record for record in records}


def test_nothing_is_lost_where_nothing_is_broken(fabric: Experiment, tmp_path: Path) -> None:
    begun_ns = time.monotonic_ns()
    with probing(fabric.bed.process_ids, PAIRS, tmp_path / "probes", fabric.bed.watch) as probes:
        let_pass(1)
        records = probes.stop()
        assert probes.stop() is records
    ended_ns = time.monotonic_ns()
    assert [record.name for record in records] == [pair_name(*pair) for pair in PAIRS]
    assert longest(records, begun_ns) is None
    for record in records:
        assert len(record.sent_ns) > 500
        assert begun_ns < record.sent_ns[0] < record.sent_ns[-1] < ended_ns
        delays = [record.arrived_ns[number] - sent for number, sent in enumerate(record.sent_ns)]
        assert all(0 < delay < 1e9 for delay in delays)
    assert "worst lateness" in probes.log.read_text()


def test_a_link_that_is_down_is_a_blackout_of_its_pairs(fabric: Experiment, tmp_path: Path) -> None:
    with probing(fabric.bed.process_ids, PAIRS, tmp_path, fabric.bed.watch) as probes:
        let_pass(0.2)
        broken_ns = set_nic_link(fabric, Gpu(0, 0), "down")
        let_pass(0.2)
        healed_ns = set_nic_link(fabric, Gpu(0, 0), "up")
        for pair in AFFECTED:
            wait_until(lambda ends=pair: reaches(fabric, *ends), "it works again")  # type: ignore[misc]
        again_ns = time.monotonic_ns()
        let_pass(0.2)
        records = by_pair(probes.stop())
    for pair in UNAFFECTED:
        assert blackouts(records[pair_name(*pair)]) == []
    for pair in AFFECTED:
        record = records[pair_name(*pair)]
        assert lost([record], (broken_ns, healed_ns)) >= 1
        assert lost([record], (0, broken_ns - int(PATIENCE_S * 1e9))) == 0
        assert lost([record], (again_ns, again_ns * 2)) == 0
        found = longest([record], broken_ns)
        assert found is not None
        assert found.end_ns is not None
        assert found.end_ns > broken_ns


def test_a_prober_that_dies_is_noticed(fabric: Experiment, tmp_path: Path) -> None:
    with (
        pytest.raises(EmulationError, match=r"the prober .* failed; its log"),
        probing(fabric.bed.process_ids, PAIRS, tmp_path, fabric.bed.watch) as probes,
    ):
        os.kill(probes.process.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("end", "said"),
    [(signal.SIGKILL, "died of SIGKILL; its log ends with"), (signal.SIGSTOP, "is stopped")],
)
def test_what_happens_to_a_prober_is_noticed_while_it_probes(
    fabric: Experiment, tmp_path: Path, end: signal.Signals, said: str
) -> None:
    watch = fabric.bed.watch

    def killed(process_id: int) -> bool:
        os.kill(process_id, end)
        watch.check()
        return False

    with (
        pytest.raises(EmulationError, match=f"the prober with UDP port .*{said}"),
        probing(fabric.bed.process_ids, PAIRS, tmp_path, watch) as probes,
    ):
        wait_until(lambda: killed(probes.process.pid), "the watch tells it")
    watch.check()


def test_a_plan_that_cannot_be_is_refused(fabric: Experiment, tmp_path: Path) -> None:
    """Only one prober at a time can receive a GPU's probes."""
    with (
        probing(fabric.bed.process_ids, PAIRS, tmp_path / "one", fabric.bed.watch),
        pytest.raises(EmulationError, match=r"did not start(.|\n)*Address already in use"),
        probing(fabric.bed.process_ids, PAIRS, tmp_path / "other", fabric.bed.watch),
    ):
        pytest.fail("it must not start")
