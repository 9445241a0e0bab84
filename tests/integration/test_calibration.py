"""Links of a real fabric, each measured alone."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from execution.cases.emulation import Experiment
from execution.cases.progress import SILENT
from execution.link_check import calibrate, require_calibrated
from execution.run import run
from linux.machine.clocks import wall_clock_ahead_ns
from model.errors import EmulationError
from model.fabric.spec import FabricKind
from model.fabric.topology import Hop, Link, LinkKind
from model.measurement.link_quality import Direction, DirectionCalibration, Outcome, representatives
from scenarios.library_files import LIBRARY
from scenarios.load import load
from testbed.fabric.shaping import reshape
from testbed.faults.injector import FaultInjector
from testbed.instruments.link_calibration import measure
from testbed.instruments.pauses import watching_pauses
from testbed.nodes.controller_process import read_journal
from testbed.nodes.gpu_proxies import ProxyKind
from tests.integration.fabrics import fabric_up, small_spec
from tests.unit.fabrics import with_hb_leaves

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

RAIL_ONLY, RAIL_OPTIMIZED = FabricKind.RAIL_ONLY, FabricKind.RAIL_OPTIMIZED
# Other traffic that may be on links: the controller's probes, for some seconds.
A_FEW_PROBES_BYTES = 50_000
ATTEMPTS = 3
HOUR_NS = 3600 * 10**9
AHEAD = "testbed.instruments.link_calibration.wall_clock_ahead_ns"


def degrade(fabric: Experiment, link: Link, percent: int) -> None:
    """Change the shaper at a link's upper end, without the testbed's knowledge."""
    links = fabric.bed.links
    slower = replace(link.shaper, rate_bps=link.rate_bps * percent // 100)
    with links.netlink_of(link.upper) as netlink:
        reshape(netlink, links.index_of(link.upper), slower)


def test_a_measurement_during_which_the_clock_is_set_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ahead_ns = wall_clock_ahead_ns()
    # Before and after each measurement: it is set during the first two.
    read = iter([0, -HOUR_NS, -HOUR_NS, 0, 0, 0])
    with fabric_up(small_spec(RAIL_ONLY), ProxyKind.PROCESS) as fabric, watching_pauses() as watch:
        hop = Hop(fabric.topology.links[0], fabric.topology.links[0].lower.node)
        with monkeypatch.context() as patch:
            patch.setattr(AHEAD, lambda: ahead_ns + next(read))
            measured = measure(fabric.bed, hop, watch)
            assert (next(read, None), measured.latency_s < 1) == (None, True)
            read = iter([0, HOUR_NS] * 3)
            with pytest.raises(EmulationError, match="clock was set in 3 measurements"):
                measure(fabric.bed, hop, watch)


def by_direction(
    found: Sequence[DirectionCalibration],
) -> dict[tuple[str, Direction], DirectionCalibration]:
    return {(each.counted.link, each.counted.direction): each for each in found}


def one_of_each_class(fabric: Experiment) -> list[Link]:
    """One link of each kind, of those that calibration measures."""
    chosen = {link.kind: link for link in representatives(fabric.topology)}
    return list(chosen.values())


@pytest.mark.parametrize(
    ("kind", "proxies"),
    [(RAIL_ONLY, ProxyKind.CONTAINER), (RAIL_OPTIMIZED, ProxyKind.PROCESS)],
)
def test_a_fabric_that_has_come_up_is_within_tolerance(
    kind: FabricKind, proxies: ProxyKind
) -> None:
    with fabric_up(small_spec(kind, 3, 3), proxies) as fabric:
        begin, before = (
            fabric.bed.controller.journal_length(),
            fabric.bed.links.read_counters().counters,
        )
        found = calibrate(fabric)
        after = fabric.bed.links.read_counters().counters
        require_calibrated(kind, found)
        events = read_journal(fabric.bed.controller.journal)[begin:]
    directions = [
        (link.name, direction)
        for link in representatives(fabric.topology)
        for direction in Direction
    ]
    assert list(by_direction(found)) == directions
    assert Outcome.WRONG not in {each.outcome for each in found}
    for each in found:
        assert [trial.trial for trial in each.trials] == list(range(1, len(each.trials) + 1))
    assert [line for line in events if line["event"] == "detected"] == []
    for name in after:
        assert after[name].dropped_packets == before[name].dropped_packets
        flooded_bytes = after[name].sent_bytes - before[name].sent_bytes
        assert (name, Direction.UP) in directions or flooded_bytes < A_FEW_PROBES_BYTES


def was_quiet(direction: DirectionCalibration) -> bool:
    """Whether nothing that the machine does could leave these trials inconclusive."""
    return all(
        trial.watched and trial.pauses.total_s == 0 and trial.can_be_filled
        for trial in direction.trials
    )


def test_shapers_that_are_changed_are_found() -> None:
    spec = with_hb_leaves(small_spec(RAIL_OPTIMIZED), 2)
    with fabric_up(spec, ProxyKind.PROCESS) as fabric:
        links = one_of_each_class(fabric)
        assert {link.kind for link in links} == set(LinkKind)
        for link in links:
            degrade(fabric, link, 98)
        # On a busy machine a link may stay inconclusive: it is then called neither wrong nor right.
        for _ in range(ATTEMPTS):
            found = calibrate(fabric)
            if all(each.outcome is not Outcome.INCONCLUSIVE for each in found):
                break
    slowed = {(link.name, Direction.DOWN) for link in links}
    outcomes = {where: each.outcome for where, each in by_direction(found).items()}
    found_wrong = {where for where in outcomes if outcomes[where] is Outcome.WRONG}
    quiet = {where for where, each in by_direction(found).items() if was_quiet(each)}
    assert quiet & slowed <= found_wrong <= slowed
    assert not {where for where in outcomes if outcomes[where] is Outcome.RIGHT} & slowed
    if wrong := [link for link in links if outcomes[link.name, Direction.DOWN] is Outcome.WRONG]:
        with pytest.raises(EmulationError) as raised:
            require_calibrated("rail-optimized", found)
        for link in wrong:
            where = f"rail-optimized: {link.kind} {link.name}, downwards: carries "
            assert where in str(raised.value)


def test_a_link_that_carries_nothing_is_named() -> None:
    with fabric_up(small_spec(RAIL_ONLY), ProxyKind.PROCESS) as fabric:
        link = fabric.topology.link_by_name["d0g0--rail0"]
        faults = FaultInjector(fabric.bed)
        undo = faults.blackhole([link.upper])
        with (
            watching_pauses() as watch,
            pytest.raises(
                EmulationError, match="d0g0--rail0: calibration frames from rail0 did not arrive"
            ),
        ):
            measure(fabric.bed, Hop(link, "rail0"), watch)
        undo()


def test_a_run_with_a_link_out_of_tolerance_stops_with_exit_code_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tampered(fabric: Experiment) -> tuple[DirectionCalibration, ...]:
        degrade(fabric, one_of_each_class(fabric)[0], 90)
        return calibrate(fabric)

    monkeypatch.setattr("execution.link_check.calibrate", tampered)
    scenario = load(LIBRARY / "quickstart.yaml", ["fabric.kinds=rail-only", "fabric.domains=2"])
    wrong = r"carries 16[12](\.\d)? Mbit/s instead of 180"
    with pytest.raises(EmulationError, match=wrong) as raised:
        run(scenario, ProxyKind.PROCESS, tmp_path, SILENT)
    assert raised.value.exit_code == 4
    (folder,) = tmp_path.iterdir()
    assert json.loads((folder / "state.json").read_text())["state"] == "incomplete"
    kept = json.loads((folder / "calibration-rail-only.json").read_text())
    assert [link["outcome"] for link in kept["links"]].count("wrong") == 1
