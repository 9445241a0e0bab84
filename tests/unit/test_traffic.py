"""Traffic volumes against published figures."""

import pytest

from scenarios.format.units import (
    DEEPSPEED_MOE_1P3B,
    GPT_1T,
    GPT_146B,
    all_to_all_bytes,
    gradient_bytes,
)


def test_gpt_1t_sends_about_six_gigabytes_of_gradients() -> None:
    """Figure 3 of arXiv 2307.12169: about 6 GB for each GPU, of which six hold the same shard."""
    assert 2 * 5 / 6 * gradient_bytes(GPT_1T) == pytest.approx(6.56e9, rel=0.001)


def test_sizes_that_scenarios_name() -> None:
    assert gradient_bytes(GPT_146B) == pytest.approx(4.55e9)
    assert all_to_all_bytes(DEEPSPEED_MOE_1P3B) == 8192 * 2048 * 2
