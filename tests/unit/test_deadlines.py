"""Deadlines of waits: they grow with the time that the work takes."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from execution.cases.emulation import PATIENCE, PATIENCE_S, longest_s
from execution.faults import convergence
from execution.faults.convergence import DEADLINE_S, wait_until_converged
from linux.processes.lifetime import Watch
from model.errors import EmulationError
from model.fabric.build import build_topology
from model.fabric.link_probes import longest_detection_s
from model.fabric.spec import FabricKind
from model.fabric.topology import Topology
from model.fabric.transport import Roce, Transport
from testbed.nodes import controller_process
from testbed.nodes.controller_process import READY_DEADLINE_S, ControllerProcess
from tests.unit.fabrics import spec
from traffic_gen.agents.client import LOAD_DEADLINE_S, checking_s, load_deadline_s

FAST = spec(FabricKind.RAIL_ONLY, 2, 2)
SLOWEST = replace(FAST, bandwidth_scale=FAST.nic.rate_bps / 500_000)
SLOW = Roce(timeout_s=30, retries=4)
FABRICS = [build_topology(FAST), build_topology(SLOWEST)]
BOTH_FABRICS = pytest.mark.parametrize("topology", FABRICS, ids=["20 Mbit/s", "0.5 Mbit/s"])


class Waits:
    """The deadlines of waits, which end at once."""

    def __init__(self) -> None:
        self.deadlines_s: list[float] = []

    def wait_for(self, _condition: object, _what: str, deadline_s: float, _check: object) -> None:
        self.deadlines_s.append(deadline_s)


@BOTH_FABRICS
def test_the_controller_has_time_to_find_a_gray_failure(
    monkeypatch: pytest.MonkeyPatch, topology: Topology
) -> None:
    waits = Waits()
    monkeypatch.setattr(convergence, "wait_for", waits.wait_for)
    ready = SimpleNamespace(wait_for_event=lambda _: None)
    bed = SimpleNamespace(topology=topology, watch=Watch(), controller=ready)
    wait_until_converged(cast(Any, bed), frozenset())
    assert waits.deadlines_s == [DEADLINE_S + longest_detection_s(topology)]


@BOTH_FABRICS
def test_the_controller_has_time_to_become_ready(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, topology: Topology
) -> None:
    waits, lock = Waits(), SimpleNamespace(folder=tmp_path, environment={})
    monkeypatch.setattr(controller_process, "wait_for", waits.wait_for)
    ControllerProcess(topology, {}, cast(Any, lock), Watch()).wait_for_event("ready")
    assert waits.deadlines_s == [READY_DEADLINE_S + longest_detection_s(topology)]


@BOTH_FABRICS
def test_an_execution_has_time_to_wait_for_new_paths(topology: Topology) -> None:
    prediction = cast(Any, SimpleNamespace(completion_s=2.0))
    stalled_s = longest_detection_s(topology) + topology.tcp_timeout_s
    beside_s = longest_s(prediction, topology) - 2 * stalled_s
    assert beside_s == pytest.approx(PATIENCE * 2.0 + PATIENCE_S)


def test_a_queue_pair_has_time_to_break() -> None:
    prediction = cast(Any, SimpleNamespace(completion_s=2.0))
    by_tcp, by_roce = (
        longest_s(prediction, build_topology(replace(FAST, transport=transport, roce=SLOW)))
        for transport in (Transport.TCP, Transport.ROCE)
    )
    assert by_roce - by_tcp == pytest.approx((1 + SLOW.retries) * 30)


def test_a_gray_failure_of_the_slowest_links_takes_four_seconds_to_be_found() -> None:
    fast_s, slow_s = map(longest_detection_s, FABRICS)
    assert fast_s == pytest.approx(0.1056)
    assert slow_s == pytest.approx(4.224)


@given(st.integers(1, 2000), st.integers(1, 200), st.integers(0, 5000))
def test_agents_have_time_to_read_their_programs_and_to_connect(
    ranks: int, peers: int, transfers: int
) -> None:
    """A processor of a billion instructions a second reads an end of a transfer in 0.024 ms."""
    entries: list[int] = [0] * transfers
    program = {"peers": dict.fromkeys(range(peers)), "sends": entries, "receives": entries}
    needed_s = ranks * (0.001 * peers + 0.000024 * 2 * transfers)
    assert load_deadline_s([program] * ranks) > max(LOAD_DEADLINE_S, needed_s)


@given(st.integers(1, 64), st.integers(1, 10**9), st.integers(1, 64))
def test_agents_have_time_to_make_and_compare_real_data(
    chunks: int, elements: int, ranks: int
) -> None:
    """A processor of a billion instructions a second takes 0.2 us for an element of either."""
    check = {
        "elements": [elements] * chunks,
        "initial": list(range(chunks)),
        "expected": [(chunk, [0]) for chunk in range(chunks)],
    }
    program: dict[str, Any] = {"peers": {}, "sends": [], "receives": []}
    checked = {**program, "check": check}
    assert checking_s(program) == 0
    assert checking_s(checked) >= 2 * 2e-7 * chunks * elements
    added_s = load_deadline_s([checked] * ranks) - load_deadline_s([program] * ranks)
    assert added_s == pytest.approx(ranks * checking_s(checked))


def test_a_restarted_controller_converges_without_a_switch_that_is_dead(tmp_path: Path) -> None:
    """It is never ready; what the one before it wrote does not count."""
    lock = SimpleNamespace(folder=tmp_path, environment={})
    process = ControllerProcess(FABRICS[0], {}, cast(Any, lock), Watch())
    process._deadline_s = 0
    bed = cast(Any, SimpleNamespace(topology=FABRICS[0], watch=Watch(), controller=process))
    lines = '{"event": "computed", "failed": ["d0g0--rail0"]}\n{"event": "settled"}\n'
    process.journal.write_text(lines)
    wait_until_converged(bed, frozenset({"d0g0--rail0"}))
    process._earlier_lines = process.journal_length()
    with pytest.raises(EmulationError, match="the controller: settled"):
        wait_until_converged(bed, frozenset({"d0g0--rail0"}))
