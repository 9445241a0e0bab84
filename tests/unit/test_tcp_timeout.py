"""TCP's least retransmission timeout on fast and slow links."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.fabric.shaping import MAX_RATE_BPS, MIN_RATE_BPS, least_timeout_s

RATES = st.integers(MIN_RATE_BPS, MAX_RATE_BPS)
DOMAINS = st.integers(1, 128)


@given(st.integers(1, 8))
def test_the_usual_rates_have_the_usual_timeout(domains: int) -> None:
    assert least_timeout_s(20_000_000, domains) == 0.2


@given(RATES, RATES, DOMAINS)
def test_a_slower_link_has_no_shorter_timeout(one: int, other: int, domains: int) -> None:
    slow, fast = sorted((one, other))
    assert least_timeout_s(slow, domains) >= least_timeout_s(fast, domains)


@given(st.integers(MIN_RATE_BPS, 4_000_000), st.integers(1, 8))
def test_time_is_stretched_as_the_link_is(rate_bps: int, domains: int) -> None:
    assert least_timeout_s(rate_bps, domains) * rate_bps == pytest.approx(0.2 * 20e6, rel=0.05)


def test_a_segment_waits_for_those_of_all_other_domains() -> None:
    eight_s, fifteen_s = (least_timeout_s(1_000_000, domains) for domains in (8, 15))
    assert fifteen_s == pytest.approx(2 * eight_s)


@given(RATES, DOMAINS)
def test_linux_accepts_every_timeout(rate_bps: int, domains: int) -> None:
    """None is longer than two minutes (TCP_RTO_MAX in the kernel's include/net/tcp.h)."""
    assert 0.2 <= least_timeout_s(rate_bps, domains) <= 120
