"""Traffic volumes against published figures."""

import pytest

from model.workload.training_sizes import (
    DEEPSPEED_MOE_1P3B,
    GPT_1T,
    GPT_146B,
    all_to_all_bytes,
    data_parallel_bytes,
    expert_parallel_bytes,
    gradient_bytes,
    pipeline_bytes,
    tensor_parallel_bytes,
)


def test_gpt_1t_sends_about_six_gigabytes_in_the_nic_domain() -> None:
    """Figure 3 of arXiv 2307.12169: about 6 GB for each GPU."""
    assert GPT_1T.data_parallel == 6
    assert data_parallel_bytes(GPT_1T) == pytest.approx(6.56e9, rel=0.001)
    assert pipeline_bytes(GPT_1T, 1, 512) == pytest.approx(6.7e9, rel=0.002)


def test_tensor_parallelism_is_most_of_the_traffic() -> None:
    """Figure 2: 75 % or more of the bytes of GPT 146B to 1T."""
    for model, microbatches in ((GPT_146B, 96), (GPT_1T, 512)):
        tensor = tensor_parallel_bytes(model, 1, microbatches)
        others = data_parallel_bytes(model) + 2 * pipeline_bytes(model, 1, microbatches)
        assert tensor / (tensor + others) >= 0.75


def test_sizes_that_scenarios_name() -> None:
    assert gradient_bytes(GPT_146B) == pytest.approx(4.55e9)
    assert all_to_all_bytes(DEEPSPEED_MOE_1P3B) == 8192 * 2048 * 2


def test_expert_parallelism_is_four_all_to_alls_a_layer() -> None:
    """12 MoE layers x 4 x 33.6 MB, of which 127 of 128 parts leave the GPU."""
    assert expert_parallel_bytes(DEEPSPEED_MOE_1P3B) == 12 * 4 * 33_554_432 * 127 / 128
