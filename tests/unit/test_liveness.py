"""When a link counts as failed, and when as usable again; tests pass in the time."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.detection.fabric_state import (
    FLAP_WINDOW_S,
    HOLD_DOWN_S,
    LONGEST_HOLD_DOWN_S,
    Liveness,
)
from model.fabric.link_probes import LOST_PROBES

LINK, ENDS = "to-d0g0", ("lower", "upper")
SOON_S = 1e-6


def flap(liveness: Liveness, now_s: float) -> None:
    """Lose carrier and have it again at once."""
    liveness.carrier(LINK, "upper", False, now_s)
    liveness.carrier(LINK, "upper", True, now_s)


def held_s(liveness: Liveness, now_s: float) -> float:
    """Return for how many seconds from now a link is held down, found by bisection."""
    low, high = 0.0, 2 * LONGEST_HOLD_DOWN_S
    assert not liveness.unusable(now_s + high)
    while high - low > SOON_S:
        middle = (low + high) / 2
        low, high = (middle, high) if liveness.unusable(now_s + middle) else (low, middle)
    return high


def miss(liveness: Liveness, count: int, now_s: float, sender: str = "lower") -> None:
    for _ in range(count):
        liveness.probed(LINK, sender, False, now_s)


def test_a_link_that_never_failed_is_usable_at_once() -> None:
    liveness = Liveness()
    liveness.carrier(LINK, "upper", True, 0)
    liveness.probed(LINK, "lower", True, 0)
    assert liveness.unusable(0) == frozenset()


@pytest.mark.parametrize("end", ENDS)
def test_lost_carrier_is_a_failure_at_once(end: str) -> None:
    liveness = Liveness()
    liveness.carrier(LINK, end, False, 5)
    assert liveness.unusable(5) == {LINK}
    assert not liveness.has_gray_failure(LINK)


def test_carrier_is_needed_at_both_ends() -> None:
    liveness = Liveness()
    for end in ENDS:
        liveness.carrier(LINK, end, False, 0)
    liveness.carrier(LINK, "lower", True, 1)
    assert liveness.unusable(100) == {LINK}
    liveness.carrier(LINK, "upper", True, 101)
    assert liveness.unusable(102) == frozenset()


@pytest.mark.parametrize("sender", ENDS)
def test_some_lost_probes_are_no_failure_but_more_in_a_row_are(sender: str) -> None:
    liveness = Liveness()
    for _ in range(5):
        miss(liveness, LOST_PROBES - 1, 0, sender)
        liveness.probed(LINK, sender, True, 0)
    assert liveness.unusable(0) == frozenset()
    miss(liveness, LOST_PROBES, 0, sender)
    assert liveness.unusable(0) == {LINK}
    assert liveness.has_gray_failure(LINK)


def test_misses_of_the_two_directions_do_not_add_up() -> None:
    liveness = Liveness()
    for sender in ENDS:
        miss(liveness, LOST_PROBES - 1, 0, sender)
    assert liveness.unusable(0) == frozenset()


def test_probes_that_arrive_one_way_do_not_excuse_the_other() -> None:
    liveness = Liveness()
    miss(liveness, LOST_PROBES, 0, "lower")
    liveness.probed(LINK, "upper", True, 1)
    assert liveness.unusable(100) == {LINK}


def test_carrier_alone_does_not_end_a_gray_failure_nor_probes_a_loss_of_carrier() -> None:
    liveness = Liveness()
    miss(liveness, LOST_PROBES, 0)
    liveness.carrier(LINK, "upper", False, 1)
    assert not liveness.has_gray_failure(LINK)
    liveness.carrier(LINK, "upper", True, 2)
    assert liveness.has_gray_failure(LINK)
    assert liveness.unusable(100) == {LINK}
    liveness.carrier(LINK, "upper", False, 101)
    liveness.probed(LINK, "lower", True, 102)
    assert liveness.unusable(200) == {LINK}
    liveness.carrier(LINK, "upper", True, 201)
    assert held_s(liveness, 201) == pytest.approx(HOLD_DOWN_S, abs=2 * SOON_S)


def test_a_failure_seen_by_both_means_counts_once() -> None:
    liveness = Liveness()
    liveness.carrier(LINK, "upper", False, 0)
    miss(liveness, LOST_PROBES, 1)
    liveness.carrier(LINK, "upper", True, 2)
    liveness.probed(LINK, "lower", True, 3)
    assert held_s(liveness, 3) == pytest.approx(HOLD_DOWN_S, abs=2 * SOON_S)


def test_each_failure_doubles_the_time_a_link_is_held_down_up_to_a_cap() -> None:
    liveness, held = Liveness(), []
    for number in range(8):
        flap(liveness, number / 10)
        held.append(held_s(liveness, number / 10))
    expected = [min(HOLD_DOWN_S * 2**number, LONGEST_HOLD_DOWN_S) for number in range(8)]
    assert held == pytest.approx(expected, abs=2 * SOON_S)
    assert held[-1] == pytest.approx(LONGEST_HOLD_DOWN_S, abs=2 * SOON_S)


def test_a_failure_while_held_down_begins_the_wait_anew() -> None:
    liveness = Liveness()
    flap(liveness, 0)
    flap(liveness, HOLD_DOWN_S / 2)
    assert liveness.unusable(HOLD_DOWN_S / 2 + 1.99 * HOLD_DOWN_S) == {LINK}
    assert liveness.unusable(HOLD_DOWN_S / 2 + 2.01 * HOLD_DOWN_S) == frozenset()


def test_failures_of_long_ago_are_forgotten() -> None:
    liveness = Liveness()
    for moment_s in (0, 1, 2):
        flap(liveness, moment_s)
    later_s = 2 + FLAP_WINDOW_S
    flap(liveness, later_s)
    assert held_s(liveness, later_s) == pytest.approx(HOLD_DOWN_S, abs=2 * SOON_S)


def test_links_know_nothing_of_each_other() -> None:
    liveness = Liveness()
    flap(liveness, 0)
    liveness.carrier("to-d1g0", "upper", False, 0)
    assert liveness.unusable(1) == {"to-d1g0"}


@given(st.lists(st.floats(0, 20), min_size=1, max_size=12).map(sorted))
def test_a_link_is_used_after_a_quiet_time_but_never_sooner_than_the_hold_down(
    moments_s: list[float],
) -> None:
    liveness = Liveness()
    for moment_s, following_s in pairwise([*moments_s, moments_s[-1] + 2 * LONGEST_HOLD_DOWN_S]):
        flap(liveness, moment_s)
        if following_s > moment_s:
            almost_s = min(moment_s + 0.99 * HOLD_DOWN_S, following_s)
            assert liveness.unusable(almost_s) == {LINK}
    assert liveness.unusable(moments_s[-1] + 1.01 * LONGEST_HOLD_DOWN_S) == frozenset()
