"""Bytes of real training jobs: published configurations and the sizes that follow from them.

Formulas: section III of the rail-only paper (arXiv 2307.12169) with the volumes of MegatronLM
(arXiv 2104.04473) and, for mixtures of experts, of DeepSpeed-MoE (arXiv 2201.05596).
"""

from dataclasses import dataclass

ACTIVATION_BYTES = 2
GRADIENT_BYTES = 2


@dataclass(frozen=True)
class GptConfiguration:
    """From a row of table 1 of arXiv 2104.04473."""

    parameters: float
    tensor_parallel: int
    pipeline_parallel: int


GPT_146B = GptConfiguration(145.6e9, 8, 8)
GPT_1T = GptConfiguration(1008.0e9, 8, 64)


@dataclass(frozen=True)
class MoeConfiguration:
    """A mixture-of-experts model whose experts are spread over `gpus`."""

    hidden: int
    sequence: int
    batch: int
    top_k: int
    gpus: int


# 1.3B+MoE-128 of arXiv 2201.05596, on 16 DGX A100 (arXiv 2307.12169, section III-C).
DEEPSPEED_MOE_1P3B = MoeConfiguration(2048, 2048, 512, 1, 128)


def gradient_bytes(model: GptConfiguration) -> float:
    """The buffer that a GPU's data-parallel AllReduce sums in an iteration, in bytes."""
    shards = model.tensor_parallel * model.pipeline_parallel
    return GRADIENT_BYTES * model.parameters / shards


def all_to_all_bytes(model: MoeConfiguration) -> float:
    """Bytes a GPU holds for one all-to-all of one MoE layer: its tokens' activations."""
    tokens = model.batch * model.sequence / model.gpus
    return tokens * model.hidden * ACTIVATION_BYTES * model.top_k


# Sizes that scenarios may name; in bytes, as nccl-tests count the size of the collective.
PUBLISHED_SIZES = {
    "gpt-146b-gradients": gradient_bytes(GPT_146B),
    "gpt-1t-gradients": gradient_bytes(GPT_1T),
    "deepspeed-moe-1.3b-all-to-all": all_to_all_bytes(DEEPSPEED_MOE_1P3B),
}
