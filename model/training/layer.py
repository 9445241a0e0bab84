"""A layer on a GPU: seconds of its passes, bytes of its communication; a GPU's parameters, memory.

All are of a mean layer and a microbatch where nothing else is said.
"""

from typing import Any

import numpy as np

from model.arrays import Bools
from model.training.job import Job, Numbers
from model.training.strategy import Strategy, stage_layers
from model.training.transformer import Recomputation, Transformer

ACTIVATION_BYTES = WEIGHT_BYTES = 2
# Share of an H800's 132 multiprocessors that compute while 20 send tokens to experts (DeepSeek-V3,
# arXiv 2412.19437, section 3.2.2).
BESIDE_EXPERTS = 112 / 132
# Bytes that a forward pass moves through memory outside matrix products, for each element: two
# layer norms (read, write: 8) and two dropouts with residual (14) of the hidden state; biases or
# rotation of queries, keys and values (read, write); an activation function reads its input, gated
# also the gate, and writes its output. Operations: arXiv 2205.05198, figures 3 to 5.
NORM_AND_DROPOUT_BYTES, READ_OR_WRITE_BYTES = 22, 2
# A token is copied to be sent to an expert, and copied again on its return: 2 reads, 2 writes.
EXPERT_COPIES = 4
# The same for each of attention's a s² b scores: written by the first product (2), scaled, masked
# and normalized (4), dropped out with their mask (5), read by the second product (2).
SCORE_BYTES = 13
# The loss, for each logit: read in 16 bits, written in 32 (6); read for its maximum (4), reduced by
# it, raised and divided in place (24), read for the sum (4); its gradient, scaled in place (8) and
# in 16 bits again (6). Operations: Megatron-LM, `tensor_parallel/cross_entropy.py`.
LOSS_BYTES = 52
# A backward pass computes two products for each one of the forward pass.
BACKWARD = 2
# AllGather and ReduceScatter around attention or the feed-forward block, forward and backward;
# without sequence parallelism, an AllReduce is both (arXiv 2205.05198, section 4.2.2).
BLOCK_COLLECTIVES = 4
# Dispatch and combine, in a forward and in a backward pass.
PASS_ALL_TO_ALLS = 2
# Keys and values are gathered in the forward pass and again in the backward pass, their gradients
# reduced and scattered (Llama 3, arXiv 2407.21783, section 3.3.2).
CONTEXT_COLLECTIVES = 3
# Mixed-precision Adam (ZeRO, arXiv 1910.02054): 16-bit weights, 32-bit gradients; 32-bit weights
# and two moments.
MAIN_GRADIENT_BYTES, OPTIMIZER_BYTES = 4, 12
# Bytes of a layer's stored activations for each element (arXiv 2205.05198, section 4.1): the hidden
# state outside of tensor parallelism, and as a layer's input; attention's scores, with dropout.
OTHER_ACTIVATIONS, INPUT_ACTIVATIONS, SCORE_ACTIVATIONS = 10, 2, 5
# The same of the last norm and the output layer, for each element of the hidden state and each
# logit (section 4.3).
LOGITS_ACTIVATIONS = 4


def product_flops(job: Job, strategy: Strategy) -> Numbers:
    """FLOP/s of the matrix products of a layer, on multiprocessors that send no tokens."""
    sends = job.overlap_experts and strategy.expert > 1
    return job.cluster.accelerator.product_flops * np.where(sends, BESIDE_EXPERTS, 1.0)


def forward_s(job: Job, strategy: Strategy) -> Numbers:
    """Seconds in which a forward pass is computed."""
    flops = job.transformer.layer_flops(strategy.microbatch)
    of_weights = flops - job.transformer.attention_flops(strategy.microbatch)
    # As many as take equally long in 16 bits.
    flops = flops - (1 - 1 / job.weights_speed) * of_weights
    seconds = flops / (strategy.tensor * strategy.context) / product_flops(job, strategy)
    return seconds + _moved(job, strategy) / _bandwidth(job)


def again_s(job: Job, strategy: Strategy) -> Numbers:
    """Seconds in which a backward pass computes again what was not stored.

    Fused attention computes its first product again, whatever is recomputed besides
    (FlashAttention, arXiv 2205.14135, algorithm 4).
    """
    model, ranks = job.transformer, strategy.tensor * strategy.context
    is_selective = job.recomputation is Recomputation.SELECTIVE
    flops, moved = model.attention_flops(strategy.microbatch), _scores(job, strategy)
    if job.fused_attention:
        flops *= model.query_width / (model.query_width + model.value_width)
    elif not is_selective:
        flops, moved = 0.0, 0.0
    if is_selective:
        flops += model.widening_flops(strategy.microbatch) / job.weights_speed
    seconds = flops / ranks / product_flops(job, strategy) + moved / _bandwidth(job)
    is_full = job.recomputation is Recomputation.FULL
    return seconds + forward_s(job, strategy) if is_full else seconds


def layer_s(job: Job, strategy: Strategy) -> Numbers:
    """Seconds in which a forward and a backward pass are computed."""
    return (1 + BACKWARD) * forward_s(job, strategy) + again_s(job, strategy)


def logits_s(job: Job, strategy: Strategy) -> Numbers:
    """Seconds in which the last stage computes the logits and the loss, forward and backward."""
    model, ranks = job.transformer, strategy.tensor * strategy.context
    flops = model.head_flops(strategy.microbatch) / ranks
    logits = tokens_of(model, strategy) * model.vocabulary / strategy.tensor
    return flops / product_flops(job, strategy) + LOSS_BYTES * logits / _bandwidth(job)


def behind_s(job: Job, strategy: Strategy, each_s: Numbers) -> Numbers:
    """Seconds by which the logits make the last stage slower than the largest one.

    They take the place of a layer that the last stage lacks, which takes `each_s`.
    """
    layers, pipeline = job.transformer.layers, strategy.pipeline
    lacking = stage_layers(layers, pipeline) - layers // pipeline
    return np.maximum(logits_s(job, strategy) - lacking * each_s, 0)


def _bandwidth(job: Job) -> float:
    return job.cluster.accelerator.streaming_bandwidth


def _scores(job: Job, strategy: Strategy) -> Numbers:
    """Bytes that attention's scores move through a GPU's memory in a forward pass."""
    if job.fused_attention:
        return 0.0
    model, ranks = job.transformer, strategy.tensor * strategy.context
    return SCORE_BYTES * model.heads * model.sequence**2 * strategy.microbatch / ranks


def _moved(job: Job, strategy: Strategy) -> Numbers:
    """Bytes that a forward pass moves through a GPU's memory outside matrix products."""
    model, tokens = job.transformer, tokens_of(job.transformer, strategy)
    width = (3 if model.gated else 2) * model.active_width
    width += 2 * (model.query_width + model.key_value_width)
    width += EXPERT_COPIES * model.visits * model.hidden
    outside = NORM_AND_DROPOUT_BYTES * model.hidden / outside_ranks(job, strategy)
    inside = READ_OR_WRITE_BYTES * width / strategy.tensor
    return tokens * (inside + outside) + _scores(job, strategy)


def tokens_of(model: Transformer, strategy: Strategy) -> Numbers:
    """A microbatch's tokens on a context-parallel rank."""
    return strategy.microbatch * model.sequence / strategy.context


def outside_ranks(job: Job, strategy: Strategy) -> Numbers:
    """The ranks that share norms and dropouts."""
    return strategy.tensor if job.sequence_parallel else 1


def activation_bytes(model: Transformer, strategy: Strategy) -> Numbers:
    """Bytes of the activations between two layers, over all tensor-parallel ranks."""
    return ACTIVATION_BYTES * tokens_of(model, strategy) * model.hidden


def passes(job: Job) -> int:
    """The passes through a layer: forward, backward, and forward again if it is recomputed."""
    return 3 if job.recomputation is Recomputation.FULL else 2


def tensor_collectives(job: Job) -> float:
    """The tensor-parallel collectives, recomputed ones included; experts have none."""
    blocks = 1 + job.transformer.split_feed_forward
    return BLOCK_COLLECTIVES / 2 * blocks * passes(job)


def expert_bytes(job: Job, strategy: Strategy) -> Numbers:
    """Bytes that a GPU holds for one all-to-all of an expert layer: tokens, once for each visit.

    With FP8 it is the mean of dispatch, in FP8, and of combine, in 16 bits.
    """
    model = job.transformer
    visits = model.experts.visits if model.experts else 0
    mean = (job.stored_bytes + ACTIVATION_BYTES) / (2 * ACTIVATION_BYTES)
    return mean * visits * activation_bytes(model, strategy) / strategy.tensor


def context_bytes(model: Transformer, strategy: Strategy) -> Numbers:
    """Bytes of the keys and values that context-parallel ranks gather.

    More tensor-parallel ranks than heads of keys and values have equal ones.
    """
    tokens = strategy.microbatch * model.sequence
    ranks = np.minimum(strategy.tensor, model.key_value_heads or model.heads)
    return ACTIVATION_BYTES * tokens * model.key_value_width / ranks


def gpu_parameters(model: Transformer, strategy: Strategy) -> tuple[Numbers, Numbers]:
    """Parameters that a GPU computes with: those outside experts, and its experts'."""
    shared = model.shared_parameters / (strategy.tensor * strategy.pipeline)
    return shared, model.expert_parameters / (strategy.expert * strategy.pipeline)


def weight_bytes(model: Transformer, strategy: Strategy) -> tuple[Numbers, Numbers]:
    """Bytes of a GPU's weights: those outside experts, and its experts'."""
    shared, held = gpu_parameters(model, strategy)
    return WEIGHT_BYTES * shared, WEIGHT_BYTES * held


def exchanges(job: Job, microbatches: Numbers) -> Numbers:
    """How often as many bytes as of the weights are reduced or gathered."""
    return job.gradient_width * job.reductions(microbatches) + job.gathers(microbatches)


def optimized_parameters(model: Transformer, strategy: Strategy) -> Numbers:
    """The parameters that a GPU's optimizer updates: its share of those that its copies hold."""
    shared, held = gpu_parameters(model, strategy)
    return shared / strategy.data + held / strategy.copies


def memory_bytes(job: Job, strategy: Strategy) -> Numbers:
    """Bytes that a GPU of the first stage needs, which has the embedding and most activations."""
    shared, held = held_parameters(job.transformer, strategy)
    whole, part = shared + held, shared / strategy.data + held / strategy.copies
    states = (
        (part if job.shares_weights else whole) * WEIGHT_BYTES
        + (part if job.shares_gradients else whole) * MAIN_GRADIENT_BYTES
        + (0.0 if job.offload else part * OPTIMIZER_BYTES)
    )
    return states + _activations(job, strategy)


def host_memory_bytes(job: Job, strategy: Strategy) -> Numbers:
    """Bytes of the host that a GPU needs for offload: 16-bit gradients, and the optimizer's states.

    ZeRO-Offload, arXiv 2101.06840, section 3.
    """
    shared, held = held_parameters(job.transformer, strategy)
    part = shared / strategy.data + held / strategy.copies
    return job.offload * (WEIGHT_BYTES + OPTIMIZER_BYTES) * part


def fits(job: Job, strategy: Strategy) -> Bools:
    """Whether a GPU's memory, and its part of the host's, are large enough."""
    gpu = job.cluster.accelerator
    on_host = host_memory_bytes(job, strategy) <= gpu.host_memory_bytes
    return np.asarray((memory_bytes(job, strategy) <= gpu.memory_bytes) & on_host)


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

    One more with overlap of experts (DeepSeek-V3, arXiv 2412.19437, table 2).
    An only stage computes the logits as well; else the last one does, which has fewer under way.
    """
    layers = stage_layers(job.transformer.layers, strategy.pipeline)
    more = (strategy.pipeline - 1) / strategy.interleave * (strategy.interleave > 1)
    microbatches = job.batch / (strategy.replicas * strategy.microbatch)
    under_way: Any = np.minimum(microbatches, strategy.pipeline + more + job.overlap_experts)
    # The last norm and the output layer: of GPT, 4bsh/t (1 + V/h).
    model = job.transformer
    width = model.hidden / outside_ranks(job, strategy) + model.vocabulary / strategy.tensor
    logits = LOGITS_ACTIVATIONS * tokens_of(model, strategy) * width
    of_layers = layers * under_way * layer_activations(job, strategy)
    return of_layers + (strategy.pipeline == 1) * logits


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
