"""Convergence, times and epochs of a failure, read from the controller's journal."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from execution.faults.convergence import (
    REROUTED,
    epochs_of,
    fault_times,
    has_detected,
    is_converged,
    rate_changes,
)
from model.fabric.build import build_topology
from model.fabric.spec import FabricKind
from model.faults import Component, Fault, FaultMode
from model.job.placement import job_placement
from model.measurement.records import FaultRecord
from model.prediction.fluid import predict
from model.workload.transfers.collective import Collective
from results.verdicts.fault_impact import FaultTimes
from tests.unit.fabrics import spec
from traffic_gen.workloads.sized_collective import SizedCollective

LINK = "d0g0--rail0"


def event(milliseconds: float, name: str, **facts: Any) -> dict[str, Any]:
    return {"ns": round(milliseconds * 1e6), "event": name, **facts}


def fault_of(mode: FaultMode, rate_bps: int | None = None) -> Fault:
    """A fault of the link."""
    return Fault(Component.NIC_LINK, mode, LINK, rate_bps=rate_bps)


def times_of(
    record: FaultRecord, events: Sequence[dict[str, Any]], start_ns: int = 0
) -> FaultTimes:
    """The times of a fault on two domains of two GPUs."""
    return fault_times(record, start_ns, events, build_topology(spec(FabricKind.RAIL_ONLY, 2, 2)))


EVENTS = [
    event(0, "computed", failed=[]),
    event(1, "confirmed"),
    event(2, "settled"),
    event(110, "detected", link=LINK, failed="carrier"),
    event(113, "computed", failed=[LINK]),
    event(114, "sent", switch="rail0"),
    event(115, "installed"),
    event(117, "routes", added=3, removed=1),
    event(118, "confirmed"),
    event(600, "settled"),
]


def test_it_has_converged_when_the_last_answer_is_done_and_is_for_this() -> None:
    assert is_converged(EVENTS, frozenset({LINK}))
    assert not is_converged(EVENTS, frozenset())
    assert is_converged(EVENTS[:3], frozenset())
    assert is_converged(EVENTS[:4], frozenset())
    assert not is_converged([], frozenset())


@given(st.integers(5, 9))
def test_an_update_under_way_has_not_converged(until: int) -> None:
    assert not is_converged(EVENTS[:until], frozenset({LINK}))


@pytest.mark.parametrize(("until", "reached"), [(8, False), (9, True), (10, True)])
def test_pairs_are_rerouted_before_the_old_paths_are_removed(until: int, reached: bool) -> None:
    assert is_converged(EVENTS[:until], frozenset({LINK}), REROUTED) is reached


def test_a_job_aborts_by_a_failure_since_its_start_and_by_no_return(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    returned = event(400, "detected", link=LINK, usable="carrier")
    for since_ms, last, aborts in (
        (109, event(601, "sent", switch="rail0"), True),
        (110, returned, False),
        (110, event(601, "died", proxy="d0g0"), True),
    ):
        journal.write_text("".join(f"{json.dumps(one)}\n" for one in (*EVENTS, last)))
        assert has_detected(journal, round(since_ms * 1e6)) is aborts


def test_times_count_from_the_fault() -> None:
    record = FaultRecord(fault_of(FaultMode.DOWN), round(100e6), round(400e6))
    times = times_of(record, EVENTS, round(50e6))
    assert (times.begun_s, times.ended_s) == (0.05, 0.35)
    assert (times.detected_ms, times.computed_ms, times.sent_ms) == (10, 13, 14)
    assert times.confirmed_ms == 18


def test_a_degraded_link_is_slow_until_it_is_drained_and_while_it_lasts() -> None:
    """Another link fails meanwhile; both have their part in each epoch."""
    placement = job_placement(spec(FabricKind.RAIL_ONLY, 2, 2))
    slow = Fault(Component.NIC_LINK, FaultMode.DEGRADE, "d1g0--rail0", rate_bps=1000)
    down = Fault(Component.NIC_LINK, FaultMode.DOWN, LINK)
    records = [
        FaultRecord(slow, round(105e6), round(300e6)),
        FaultRecord(down, round(109e6), None),
    ]
    rates = rate_changes(placement.topology, records)
    epochs = epochs_of(EVENTS, round(100e6), placement, rates)
    assert [(e.begin_s, e.health.failed, e.health.rates_bps) for e in epochs] == [
        (0.0, frozenset(), {}),
        (0.005, frozenset(), {"d1g0--rail0": 1000}),
        (0.009, frozenset(), {"d1g0--rail0": 1000, LINK: 0}),
        (0.017, frozenset({LINK}), {"d1g0--rail0": 1000, LINK: 0}),
        (0.2, frozenset({LINK}), {LINK: 0}),
    ]


def test_all_links_of_a_slow_component_are_slow_and_have_the_lowest_rate() -> None:
    placement = job_placement(spec(FabricKind.RAIL_ONLY, 2, 2))
    switch = Fault(Component.RAIL_SWITCH, FaultMode.DEGRADE, "rail0", rate_bps=2000)
    link = Fault(Component.NIC_LINK, FaultMode.DEGRADE, LINK, rate_bps=1000)
    records = [
        FaultRecord(link, round(105e6), round(300e6)),
        FaultRecord(switch, round(109e6), None),
    ]
    changes = list(rate_changes(placement.topology, records))
    both = {LINK: 2000, "d1g0--rail0": 2000}
    assert changes == [
        (round(105e6), {"rates_bps": {LINK: 1000}}),
        (round(109e6), {"rates_bps": {**both, LINK: 1000}}),
        (round(300e6), {"rates_bps": both}),
    ]


def test_faults_of_the_same_name_slow_a_link_down_to_their_own_rates() -> None:
    placement = job_placement(spec(FabricKind.RAIL_ONLY, 2, 2))
    slower, slow = (fault_of(FaultMode.DEGRADE, rate_bps) for rate_bps in (1000, 2000))
    assert slower.name == slow.name
    records = [
        FaultRecord(slower, round(105e6), round(200e6)),
        FaultRecord(slow, round(109e6), round(300e6)),
    ]
    assert list(rate_changes(placement.topology, records)) == [
        (round(105e6), {"rates_bps": {LINK: 1000}}),
        (round(109e6), {"rates_bps": {LINK: 1000}}),
        (round(200e6), {"rates_bps": {LINK: 2000}}),
        (round(300e6), {"rates_bps": {}}),
    ]


def flapping(*edges_ms: tuple[float, str]) -> list[dict[str, Any]]:
    """A link that the controller finds failed, or usable again, with its response."""
    return [
        one
        for ms, state in edges_ms
        for one in (
            event(ms, "detected", link=LINK, **{state: "carrier"}),
            event(ms + 3, "computed", failed=[LINK] if state == "failed" else []),
            event(ms + 4, "sent", switch="rail0"),
            event(ms + 8, "confirmed"),
        )
    ]


def test_a_link_that_is_held_down_while_it_flaps_fails_unnoticed() -> None:
    """The controller detects the first two failures of four, and the return long after the last."""
    events = flapping((102, "failed"), (400, "usable"), (502, "failed"), (3000, "usable"))
    begins_ms = (100, 500, 900, 1300)
    records = [
        FaultRecord(fault_of(FaultMode.FLAP), ms * 10**6, (ms + 200) * 10**6) for ms in begins_ms
    ]
    times = [times_of(record, events) for record in records]
    assert [one.detected_ms for one in times] == [2, 2, None, None]
    assert [one.confirmed_ms for one in times] == [10, 10, None, None]
    assert [one.usable_ms for one in times] == [100, 2300, 1900, 1500]
    assert [one.returned_ms for one in times] == [108, 2308, 1908, 1508]
    second = [times_of(record, events[4:]) for record in records]
    assert [one.detected_ms for one in second] == [None, 2, None, None]


def test_the_response_to_a_short_fault_may_come_after_its_end() -> None:
    events = flapping((102, "failed"), (400, "usable"))
    times = times_of(FaultRecord(fault_of(FaultMode.DOWN), 100 * 10**6, 104 * 10**6), events)
    assert (times.detected_ms, times.computed_ms, times.confirmed_ms) == (2, 5, 10)


def test_the_return_counts_from_the_faults_end() -> None:
    events = flapping((102, "failed"), (400, "usable"))
    times = times_of(FaultRecord(fault_of(FaultMode.DOWN), 100 * 10**6, 300 * 10**6), events)
    assert (times.usable_ms, times.returned_ms) == (100, 108)


def test_a_return_that_the_next_flap_undoes_was_never_used_by_all() -> None:
    """The link fails while its return is under way: the next confirmation is of its absence."""
    events = flapping((102, "failed"), (400, "usable"), (420, "failed"), (800, "usable"))
    undone = [one for one in events if one["ns"] != round(408e6)]
    flaps = [(100, 300), (418, 600)]
    times = [
        times_of(FaultRecord(fault_of(FaultMode.FLAP), begun * 10**6, ended * 10**6), undone)
        for begun, ended in flaps
    ]
    assert [one.confirmed_ms for one in times] == [10, 10]
    assert [one.usable_ms for one in times] == [100, 200]
    assert [one.returned_ms for one in times] == [None, 208]


def test_the_return_of_a_slow_link_is_no_response_to_it() -> None:
    """A link that is not slow enough to be drained needs no new paths."""
    events = [
        event(101, "detected", link=LINK, degraded="rate", rate_bps=9),
        event(300, "detected", link=LINK, usable="rate", rate_bps=10),
        event(500, "computed", failed=[]),
    ]
    times = times_of(FaultRecord(fault_of(FaultMode.DEGRADE), 100 * 10**6, None), events)
    assert (times.detected_ms, times.computed_ms) == (1, None)


def test_a_link_that_is_slow_and_down_has_the_times_of_each() -> None:
    down, slow = fault_of(FaultMode.DOWN), fault_of(FaultMode.DEGRADE, 9)
    events = [
        event(101, "detected", link=LINK, degraded="rate", rate_bps=9),
        event(104, "detected", link=LINK, failed="carrier"),
        event(301, "detected", link=LINK, usable="rate", rate_bps=10),
        event(400, "detected", link=LINK, usable="carrier"),
    ]
    both = [times_of(FaultRecord(one, 100 * 10**6, 300 * 10**6), events) for one in (down, slow)]
    assert [(times.detected_ms, times.usable_ms) for times in both] == [(4, 100), (1, 1)]


def test_what_the_controller_did_not_need_to_answer_has_no_times() -> None:
    kill = Fault(Component.CONTROLLER, FaultMode.KILL, "controller")
    times = times_of(FaultRecord(kill, round(700e6), None), EVENTS)
    assert (times.ended_s, times.detected_ms, times.confirmed_ms) == (None, None, None)


OTHER = "d1g1--rail1"
# The controller finds OTHER without carrier 3 ms after a blackhole of LINK, which takes 110 ms.
BOTH = [
    event(0, "computed", failed=[]),
    event(103, "detected", link=OTHER, failed="carrier"),
    event(106, "computed", failed=[OTHER]),
    event(107, "sent", switch="rail1"),
    event(112, "confirmed"),
    event(210, "detected", link=LINK, failed="probes"),
    event(213, "computed", failed=[LINK, OTHER]),
    event(214, "sent", switch="rail0"),
    event(219, "confirmed"),
    event(310, "detected", link=OTHER, usable="carrier"),
    event(313, "computed", failed=[LINK]),
    event(318, "confirmed"),
    event(560, "detected", link=LINK, usable="probes"),
    event(563, "computed", failed=[]),
    event(568, "confirmed"),
]


def test_each_of_two_faults_has_its_own_times() -> None:
    hole = FaultRecord(fault_of(FaultMode.BLACKHOLE), 100 * 10**6, 300 * 10**6)
    other = Fault(Component.NIC_LINK, FaultMode.DOWN, OTHER)
    times = [
        times_of(record, BOTH) for record in (hole, FaultRecord(other, 100 * 10**6, 300 * 10**6))
    ]
    assert [(one.detected_ms, one.computed_ms, one.sent_ms) for one in times] == [
        (110, 113, 114),
        (3, 6, 7),
    ]
    assert [one.confirmed_ms for one in times] == [119, 12]
    assert [(one.usable_ms, one.returned_ms) for one in times] == [(260, 268), (10, 18)]


def test_a_fault_that_is_not_detected_has_no_times_of_another() -> None:
    unnoticed = Fault(Component.NIC_LINK, FaultMode.DOWN, "d1g0--rail0")
    times = times_of(FaultRecord(unnoticed, 100 * 10**6, 101 * 10**6), BOTH)
    assert (times.detected_ms, times.computed_ms, times.usable_ms) == (None, None, None)


def test_a_controller_that_was_dead_responds_to_a_fault_when_it_is_back() -> None:
    """It finds the link as it is: it has not seen it fail."""
    record = FaultRecord(fault_of(FaultMode.DOWN), 100 * 10**6, None)
    times = times_of(record, [event for event in EVENTS if event["event"] != "detected"])
    assert (times.detected_ms, times.computed_ms, times.confirmed_ms) == (None, 13, 18)


@pytest.mark.parametrize(
    ("update", "moved_s"),
    [
        ([event(115, "installed"), event(217, "routes", added=3, removed=0)], 0.117),
        ([event(115, "installed"), event(215, "installed")], 0.115),
    ],
)
def test_epochs_begin_when_traffic_moves_not_when_that_is_sure(
    update: Sequence[dict[str, Any]], moved_s: float
) -> None:
    """With the host routes if these change, else with the last rules of the switches."""
    placement = job_placement(spec(FabricKind.RAIL_ONLY, 2, 2))
    unchanged = event(316, "routes", added=0, removed=0)
    epochs = epochs_of(
        [*EVENTS[:5], *update, unchanged, event(316, "confirmed")], round(100e6), placement
    )
    assert [(epoch.begin_s, epoch.health.failed) for epoch in epochs] == [
        (0.0, frozenset()),
        (moved_s, frozenset({LINK})),
    ]


@pytest.mark.parametrize("back_s", [0.5, 3.0])
def test_a_broken_link_carries_nothing_until_a_controller_that_was_dead_is_back(
    back_s: float,
) -> None:
    home = job_placement(spec(FabricKind.RAIL_ONLY, 2, 2))
    schedule = SizedCollective(Collective.ALL_REDUCE, "ring", (2, 2), 1_000_000).steps()
    back = [event(back_s * 1e3, "computed", failed=[LINK]), event(back_s * 1e3, "confirmed")]
    down = FaultRecord(fault_of(FaultMode.DOWN), round(1e6), None)
    epochs = epochs_of([*EVENTS[:3], *back], 0, home, rate_changes(home.topology, [down]))
    assert predict(schedule, epochs, defaultdict(float)).completion_s > back_s
