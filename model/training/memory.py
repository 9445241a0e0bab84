"""The memory of a GPU in a training iteration: weights, gradients, optimizer, activations."""

from typing import Any

import numpy as np

from model.training.job import Job, Numbers
from model.training.layer import outside_ranks, tokens_of
from model.training.strategy import Strategy, stage_layers
from model.training.transformer import Recomputation, Transformer

# Mixed-precision Adam (ZeRO, arXiv 1910.02054): 16-bit weights, 32-bit gradients; 32-bit weights
# and two moments.
WEIGHT_BYTES, MAIN_GRADIENT_BYTES, OPTIMIZER_BYTES = 2, 4, 12
# Bytes of a layer's stored activations for each element (arXiv 2205.05198, section 4.1): the hidden
# state outside of tensor parallelism, and as a layer's input; attention's scores, with dropout.
OTHER_ACTIVATIONS, INPUT_ACTIVATIONS, SCORE_ACTIVATIONS = 10, 2, 5
# The same of the last norm and the output layer, for each element of the hidden state and each
# logit (section 4.3).
LOGITS_ACTIVATIONS = 4


def memory_bytes(job: Job, strategy: Strategy) -> Numbers:
    """Bytes that a GPU of the first stage needs, which has the embedding and most activations."""
    return _states(job, strategy) + _activations(job, strategy)


def _states(job: Job, strategy: Strategy) -> Numbers:
    shared, held = held_parameters(job.transformer, strategy)
    whole, part = shared + held, shared / strategy.data + held / strategy.copies
    return (
        (part if job.shares_weights else whole) * WEIGHT_BYTES
        + (part if job.shares_gradients else whole) * MAIN_GRADIENT_BYTES
        + (0.0 if job.offload else part * OPTIMIZER_BYTES)
    )


def held_parameters(model: Transformer, strategy: Strategy) -> tuple[Numbers, Numbers]:
    """Parameters on a GPU of the first stage: those outside experts, and its experts'.

    It has the embedding and as many layers as the largest stage, an only one also the output layer
    (Megatron-LM, `megatron/training/theoretical_memory_usage.py`).
    """
    layers = stage_layers(model.layers, strategy.pipeline) / model.layers
    shared = layers * model.block_parameters + model.embedding_parameters
    shared = shared + (strategy.pipeline == 1) * model.head_parameters
    return shared / strategy.tensor, layers * model.expert_parameters / strategy.expert


def _activations(job: Job, strategy: Strategy) -> Numbers:
    """Activations of the microbatches under way: p of them in 1F1B, p + (p-1)/v interleaved.

    An only stage computes the logits as well; else the last one does, which has fewer under way.
    """
    layers = stage_layers(job.transformer.layers, strategy.pipeline)
    interleaved = (strategy.pipeline - 1) / strategy.interleave * (strategy.interleave > 1)
    microbatches = job.batch / (strategy.replicas * strategy.microbatch)
    under_way: Any = np.minimum(microbatches, strategy.pipeline + interleaved)
    logits = (strategy.pipeline == 1) * _logits_activations(job, strategy)
    return layers * under_way * layer_activations(job, strategy) + logits


def _logits_activations(job: Job, strategy: Strategy) -> Numbers:
    """Bytes that the last norm and the output layer store on a GPU: of GPT, 4bsh/t (1 + V/h)."""
    model = job.transformer
    width = model.hidden / outside_ranks(job, strategy) + model.vocabulary / strategy.tensor
    return LOGITS_ACTIVATIONS * tokens_of(model, strategy) * width


def layer_activations(job: Job, strategy: Strategy) -> Numbers:
    """Bytes of a layer's stored activations on a GPU: of GPT, bsh/t (34 + 5as/h).

    Inside of tensor parallelism: queries, keys, values, attention's result; the feed-forward
    block's input to its activation function, and the output; tokens at experts. With selective
    recomputation, latent attention stores its narrower states (arXiv 2412.19437, section 3.2.3).
    """
    model, tokens = job.transformer, tokens_of(job.transformer, strategy)
    outside = model.hidden / outside_ranks(job, strategy)
    if job.recomputation is Recomputation.FULL:
        return INPUT_ACTIVATIONS * tokens * outside
    is_selective = job.recomputation is Recomputation.SELECTIVE
    width = model.narrow_width if is_selective else model.query_width + model.key_value_width
    width += model.value_width
    width += (3 if model.gated else 2) * model.active_width + model.visits * model.hidden
    stored = job.stored_bytes * width
    if job.recomputation is Recomputation.NONE and not job.fused_attention:
        stored += SCORE_ACTIVATIONS * model.heads * model.sequence
    return tokens * (OTHER_ACTIVATIONS * outside + stored / strategy.tensor)
