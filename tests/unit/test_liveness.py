"""When a link counts as failed, and when as usable again; tests pass in the time."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.detection.fabric_state import (
    FLAP_WINDOW_S,
    HOLD_DOWN_S,
    LONGEST_HOLD_DOWN_S,
    LinkState,
)
from model.fabric.link_probes import LOST_PROBES

ENDS = "lower", "upper"
SOON_S = 1e-6


def flap(link: LinkState, now_s: float) -> None:
    """Lose carrier and have it again at once."""
    link.carrier("upper", False, now_s)
    link.carrier("upper", True, now_s)


def held_s(link: LinkState, now_s: float) -> float:
    """Return for how many seconds from now a link is held down, found by bisection."""
    low, high = 0.0, 2 * LONGEST_HOLD_DOWN_S
    assert link.is_usable(now_s + high)
    while high - low > SOON_S:
        middle = (low + high) / 2
        low, high = (low, middle) if link.is_usable(now_s + middle) else (middle, high)
    return high


def miss(link: LinkState, count: int, now_s: float, sender: str = "lower") -> None:
    for _ in range(count):
        link.probed(sender, False, now_s)


def test_a_link_that_never_failed_is_usable_at_once() -> None:
    link = LinkState()
    link.carrier("upper", True, 0)
    link.probed("lower", True, 0)
    assert link.is_usable(0)


@pytest.mark.parametrize("end", ENDS)
def test_lost_carrier_is_a_failure_at_once(end: str) -> None:
    link = LinkState()
    link.carrier(end, False, 5)
    assert not link.is_usable(5)
    assert not link.has_gray_failure()


def test_carrier_is_needed_at_both_ends() -> None:
    link = LinkState()
    for end in ENDS:
        link.carrier(end, False, 0)
    link.carrier("lower", True, 1)
    assert not link.is_usable(100)
    link.carrier("upper", True, 101)
    assert link.is_usable(102)


@pytest.mark.parametrize("sender", ENDS)
def test_some_lost_probes_are_no_failure_but_more_in_a_row_are(sender: str) -> None:
    link = LinkState()
    for _ in range(5):
        miss(link, LOST_PROBES - 1, 0, sender)
        link.probed(sender, True, 0)
    assert link.is_usable(0)
    miss(link, LOST_PROBES, 0, sender)
    assert not link.is_usable(0)
    assert link.has_gray_failure()


def test_misses_of_the_two_directions_do_not_add_up() -> None:
    link = LinkState()
    for sender in ENDS:
        miss(link, LOST_PROBES - 1, 0, sender)
    assert link.is_usable(0)


def test_probes_that_arrive_one_way_do_not_excuse_the_other() -> None:
    link = LinkState()
    miss(link, LOST_PROBES, 0, "lower")
    link.probed("upper", True, 1)
    assert not link.is_usable(100)


def test_carrier_alone_does_not_end_a_gray_failure_nor_probes_a_loss_of_carrier() -> None:
    link = LinkState()
    miss(link, LOST_PROBES, 0)
    link.carrier("upper", False, 1)
    assert not link.has_gray_failure()
    link.carrier("upper", True, 2)
    assert link.has_gray_failure()
    assert not link.is_usable(100)
    link.carrier("upper", False, 101)
    link.probed("lower", True, 102)
    assert not link.is_usable(200)
    link.carrier("upper", True, 201)
    assert held_s(link, 201) == pytest.approx(HOLD_DOWN_S, abs=2 * SOON_S)


def test_a_failure_seen_by_both_means_counts_once() -> None:
    link = LinkState()
    link.carrier("upper", False, 0)
    miss(link, LOST_PROBES, 1)
    link.carrier("upper", True, 2)
    link.probed("lower", True, 3)
    assert held_s(link, 3) == pytest.approx(HOLD_DOWN_S, abs=2 * SOON_S)


def test_each_failure_doubles_the_time_a_link_is_held_down_up_to_a_cap() -> None:
    link, held = LinkState(), []
    for number in range(8):
        flap(link, number / 10)
        held.append(held_s(link, number / 10))
    expected = [min(HOLD_DOWN_S * 2**number, LONGEST_HOLD_DOWN_S) for number in range(8)]
    assert held == pytest.approx(expected, abs=2 * SOON_S)
    assert held[-1] == pytest.approx(LONGEST_HOLD_DOWN_S, abs=2 * SOON_S)


def test_a_failure_while_held_down_begins_the_wait_anew() -> None:
    link = LinkState()
    flap(link, 0)
    flap(link, HOLD_DOWN_S / 2)
    assert not link.is_usable(HOLD_DOWN_S / 2 + 1.99 * HOLD_DOWN_S)
    assert link.is_usable(HOLD_DOWN_S / 2 + 2.01 * HOLD_DOWN_S)


def test_failures_of_long_ago_are_forgotten() -> None:
    link = LinkState()
    for moment_s in (0, 1, 2):
        flap(link, moment_s)
    later_s = 2 + FLAP_WINDOW_S
    flap(link, later_s)
    assert held_s(link, later_s) == pytest.approx(HOLD_DOWN_S, abs=2 * SOON_S)


def test_links_know_nothing_of_each_other() -> None:
    link, other = LinkState(), LinkState()
    flap(link, 0)
    other.carrier("upper", False, 0)
    assert link.is_usable(1)
    assert not other.is_usable(1)


@given(st.lists(st.floats(0, 20), min_size=1, max_size=12).map(sorted))
def test_a_link_is_used_after_a_quiet_time_but_never_sooner_than_the_hold_down(
    moments_s: list[float],
) -> None:
    link = LinkState()
    for moment_s, following_s in pairwise([*moments_s, moments_s[-1] + 2 * LONGEST_HOLD_DOWN_S]):
        flap(link, moment_s)
        if following_s > moment_s:
            almost_s = min(moment_s + 0.99 * HOLD_DOWN_S, following_s)
            assert not link.is_usable(almost_s)
    assert link.is_usable(moments_s[-1] + 1.01 * LONGEST_HOLD_DOWN_S)
