"""Traffic volumes against published figures."""

import pytest

from scenarios.format.units import PUBLISHED_SIZES


def test_gpt_1t_sends_about_six_gigabytes_of_gradients() -> None:
    """Figure 3 of arXiv 2307.12169: about 6 GB for each GPU, of which six hold the same shard."""
    assert 2 * 5 / 6 * PUBLISHED_SIZES["gpt-1t-gradients"] == pytest.approx(6.56e9, rel=0.001)


def test_sizes_that_scenarios_name() -> None:
    assert PUBLISHED_SIZES["gpt-146b-gradients"] == pytest.approx(4.55e9)
    assert PUBLISHED_SIZES["deepspeed-moe-1.3b-all-to-all"] == 8192 * 2048 * 2
