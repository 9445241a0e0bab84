"""TCP's least retransmission timeout on fast and slow links."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.fabric.shaping import MAX_RATE_BPS, MIN_RATE_BPS, least_timeout_s

RATES = st.integers(MIN_RATE_BPS, MAX_RATE_BPS)


def test_the_usual_rates_have_the_usual_timeout() -> None:
    assert least_timeout_s(20_000_000) == 0.2


@given(RATES, RATES)
def test_a_slower_link_has_no_shorter_timeout(one: int, other: int) -> None:
    slow, fast = sorted((one, other))
    assert least_timeout_s(slow) >= least_timeout_s(fast)


@given(st.integers(MIN_RATE_BPS, 4_000_000))
def test_time_is_stretched_as_the_link_is(rate_bps: int) -> None:
    assert least_timeout_s(rate_bps) * rate_bps == pytest.approx(0.2 * 20e6, rel=0.05)


def test_linux_accepts_the_longest_timeout() -> None:
    """None is longer than two minutes (TCP_RTO_MAX in the kernel's include/net/tcp.h)."""
    assert least_timeout_s(MIN_RATE_BPS) < 120
