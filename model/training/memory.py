"""Memory of a GPU: parameters with their optimizer, and stored activations."""

from typing import Any

import numpy as np

from model.training.job import Job
from model.training.strategy import Numbers, Strategy
from model.training.transformer import Recomputation, Transformer

# Mixed-precision Adam (ZeRO, arXiv 1910.02054): 16-bit weights, 32-bit gradients; 32-bit weights
# and two moments, which data-parallel ranks share.
WEIGHT_BYTES, MAIN_GRADIENT_BYTES, OPTIMIZER_BYTES = 2, 4, 12
# Bytes of a layer's activations for each element of b s h: inside and outside of tensor
# parallelism (arXiv 2205.05198, equations 2 to 6); attention has 5 a s/h more where it is stored.
TENSOR_ACTIVATIONS, OTHER_ACTIVATIONS, ATTENTION_ACTIVATIONS, INPUT_ACTIVATIONS = 24, 10, 5, 2


def memory_bytes(job: Job, strategy: Strategy) -> Numbers:
    """Bytes that a GPU of the first pipeline stage needs, which stores the most activations."""
    return _states(job.transformer, strategy) + _activations(job, strategy)


def gpu_parameters(transformer: Transformer, strategy: Strategy) -> tuple[Numbers, Numbers]:
    """Parameters that a GPU holds: those outside experts, and its experts'."""
    shards = strategy.tensor * strategy.pipeline
    parallel = transformer.experts.parallel if transformer.experts else 1
    return transformer.shared_parameters / shards, transformer.expert_parameters / parallel / shards


def optimized_parameters(transformer: Transformer, strategy: Strategy) -> Numbers:
    """Return the parameters that a GPU's optimizer updates; replicas share them evenly.

    All data-parallel ranks hold the parameters outside experts; only copies of a GPU's experts hold
    the experts'.
    """
    shared, held = gpu_parameters(transformer, strategy)
    parallel = transformer.experts.parallel if transformer.experts else 1
    return shared / strategy.data + held / np.maximum(strategy.data / parallel, 1)


def _states(transformer: Transformer, strategy: Strategy) -> Numbers:
    whole = sum(gpu_parameters(transformer, strategy)) * (WEIGHT_BYTES + MAIN_GRADIENT_BYTES)
    return whole + OPTIMIZER_BYTES * optimized_parameters(transformer, strategy)


def _activations(job: Job, strategy: Strategy) -> Numbers:
    """Activations of the microbatches under way: p of them in 1F1B, p + (p-1)/v interleaved."""
    transformer = job.transformer
    elements = strategy.microbatch * transformer.sequence * transformer.hidden
    stage = transformer.layers / strategy.pipeline
    interleaved = (strategy.pipeline - 1) / strategy.interleave * (strategy.interleave > 1)
    microbatches = job.batch / (strategy.data * strategy.microbatch)
    under_way: Any = np.minimum(microbatches, strategy.pipeline + interleaved)
    return elements * stage * under_way * _bytes_per_element(job, strategy)


def _bytes_per_element(job: Job, strategy: Strategy) -> Numbers:
    """Bytes of a layer's activations on a GPU for each element of b s h."""
    transformer = job.transformer
    others = strategy.tensor if job.sequence_parallel else 1
    attention = ATTENTION_ACTIVATIONS * transformer.heads * transformer.sequence
    stored = TENSOR_ACTIVATIONS / strategy.tensor + OTHER_ACTIVATIONS / others
    return {
        Recomputation.NONE: stored + attention / transformer.hidden / strategy.tensor,
        Recomputation.SELECTIVE: stored,
        Recomputation.FULL: INPUT_ACTIVATIONS / others,
    }[job.recomputation]
