"""Convergence, times and epochs of a failure, read from the controller's journal."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.fabric.spec import FabricKind
from model.job.placement import job_placement
from model.measurement.records import FaultRecord
from scenarios.execution.convergence import REROUTED, epochs_of, fault_times, is_converged
from tests.unit.fabrics import spec

LINK = "d0g0--rail0"


def event(milliseconds: float, name: str, **facts: Any) -> dict[str, Any]:
    return {"ns": round(milliseconds * 1e6), "event": name, **facts}


EVENTS = [
    event(0, "computed", failed=[]),
    event(1, "confirmed"),
    event(2, "settled"),
    event(110, "detected", link=LINK, failed="carrier"),
    event(113, "computed", failed=[LINK]),
    event(114, "sent", switch="rail0"),
    event(118, "confirmed"),
    event(600, "settled"),
]


def test_it_has_converged_when_the_last_answer_is_done_and_is_for_this() -> None:
    assert is_converged(EVENTS, frozenset({LINK}))
    assert not is_converged(EVENTS, frozenset())
    assert is_converged(EVENTS[:3], frozenset())
    assert is_converged(EVENTS[:4], frozenset())
    assert not is_converged([], frozenset())


@given(st.integers(5, 7))
def test_an_update_under_way_has_not_converged(until: int) -> None:
    assert not is_converged(EVENTS[:until], frozenset({LINK}))


@pytest.mark.parametrize(("until", "reached"), [(6, False), (7, True), (8, True)])
def test_pairs_are_rerouted_before_the_old_paths_are_removed(until: int, reached: bool) -> None:
    assert is_converged(EVENTS[:until], frozenset({LINK}), REROUTED) is reached


def test_times_count_from_the_fault() -> None:
    record = FaultRecord(f"{LINK} down", round(100e6), round(400e6))
    times = fault_times(record, round(50e6), EVENTS)
    assert (times.begun_s, times.ended_s) == (0.05, 0.35)
    assert (times.detected_ms, times.computed_ms, times.sent_ms) == (10, 13, 14)
    assert times.confirmed_ms == 18


def test_what_the_controller_did_not_need_to_answer_has_no_times() -> None:
    times = fault_times(FaultRecord("controller kill", round(700e6), None), 0, EVENTS)
    assert (times.ended_s, times.detected_ms, times.confirmed_ms) == (None, None, None)


def test_epochs_begin_when_they_are_confirmed() -> None:
    placement = job_placement(spec(FabricKind.RAIL_ONLY, 2, 2))
    epochs = epochs_of(EVENTS, round(100e6), placement)
    assert [(epoch.begin_s, epoch.health.failed) for epoch in epochs] == [
        (0.0, frozenset()),
        (0.018, frozenset({LINK})),
    ]
