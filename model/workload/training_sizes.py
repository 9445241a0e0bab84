"""Bytes of real training jobs: published configurations and the volumes that follow from them.

Formulas: section III of the rail-only paper (arXiv 2307.12169) with the volumes of MegatronLM
(arXiv 2104.04473) and, for mixtures of experts, of DeepSpeed-MoE (arXiv 2201.05596).
"""

from dataclasses import dataclass

ACTIVATION_BYTES = 2
GRADIENT_BYTES = 2


@dataclass(frozen=True)
class GptConfiguration:
    """A row of table 1 of arXiv 2104.04473; sequences of 2048 tokens."""

    parameters: float
    hidden: int
    layers: int
    tensor_parallel: int
    pipeline_parallel: int
    gpus: int
    batch: int
    sequence: int = 2048

    @property
    def data_parallel(self) -> int:
        """The data-parallel degree, d."""
        return self.gpus // (self.tensor_parallel * self.pipeline_parallel)


GPT_146B = GptConfiguration(145.6e9, 12288, 80, 8, 8, 1536, 2304)
GPT_1T = GptConfiguration(1008.0e9, 25600, 128, 8, 64, 3072, 3072)


@dataclass(frozen=True)
class MoeConfiguration:
    """A mixture-of-experts model whose experts are spread over `expert_parallel` GPUs."""

    hidden: int
    sequence: int
    batch: int
    top_k: int
    expert_parallel: int
    gpus: int
    moe_layers: int


# 1.3B+MoE-128 of arXiv 2201.05596, on 16 DGX A100 (arXiv 2307.12169, section III-C).
DEEPSPEED_MOE_1P3B = MoeConfiguration(2048, 2048, 512, 1, 128, 128, 12)


def gradient_bytes(model: GptConfiguration) -> float:
    """The buffer that a GPU's data-parallel AllReduce sums in an iteration, in bytes."""
    shards = model.tensor_parallel * model.pipeline_parallel
    return GRADIENT_BYTES * model.parameters / shards


def data_parallel_bytes(model: GptConfiguration) -> float:
    """Bytes a GPU sends for data parallelism in an iteration: 2 (d-1)/d of its gradients."""
    d = model.data_parallel
    return 2 * (d - 1) / d * gradient_bytes(model)


def pipeline_bytes(model: GptConfiguration, microbatch: int, microbatches: int) -> float:
    """Bytes a GPU sends to one pipeline neighbour in an iteration: m · 2bsh/t."""
    activations = ACTIVATION_BYTES * microbatch * model.sequence * model.hidden
    return microbatches * activations / model.tensor_parallel


def tensor_parallel_bytes(model: GptConfiguration, microbatch: int, microbatches: int) -> float:
    """Bytes a GPU sends for tensor parallelism in an iteration: 8 (L/p) m · 2bsh (t-1)/t.

    Four AllGather and four ReduceScatter a layer, with sequence parallelism.
    """
    t = model.tensor_parallel
    layers = model.layers / model.pipeline_parallel
    activations = ACTIVATION_BYTES * microbatch * model.sequence * model.hidden
    return 8 * layers * microbatches * activations * (t - 1) / t


def all_to_all_bytes(model: MoeConfiguration) -> float:
    """Bytes a GPU holds for one all-to-all of one MoE layer: its tokens' activations."""
    tokens = model.batch * model.sequence / model.gpus
    return tokens * model.hidden * ACTIVATION_BYTES * model.top_k


def expert_parallel_bytes(model: MoeConfiguration) -> float:
    """Bytes a GPU sends for expert parallelism in an iteration: 4 · 2bsh·k (e-1)/e an MoE layer.

    Dispatch and combine, forward and backward, each an all-to-all over e expert ranks; tokens are
    spread uniformly, and 1/e of them stay.
    """
    e = model.expert_parallel
    return model.moe_layers * 4 * all_to_all_bytes(model) * (e - 1) / e


# Sizes that scenarios may name; in bytes, as nccl-tests count the size of the collective.
PUBLISHED_SIZES = {
    "gpt-146b-gradients": gradient_bytes(GPT_146B),
    "gpt-1t-gradients": gradient_bytes(GPT_1T),
    "deepspeed-moe-1.3b-all-to-all": all_to_all_bytes(DEEPSPEED_MOE_1P3B),
}
