"""The time of an iteration, term by term, its memory on a GPU, and the search for the fastest."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from model.fabric.spec import FabricKind
from model.training.job import Cluster, Job
from model.training.strategy import ANY, Numbers, Strategy, Wish, strategies
from model.training.transformer import Recomputation, Transformer

ACTIVATION_BYTES = GRADIENT_BYTES = 2
# Bytes that a layer's forward pass moves through memory outside matrix products, for each element
# of b s h: GeLU of 4h (16) and the bias of queries, keys and values (12) inside of tensor
# parallelism; two layer norms (read, write: 8) and two dropouts with residual (14) outside.
# Operations: arXiv 2205.05198, figures 3 to 5.
TENSOR_PARALLEL_BYTES, NORM_AND_DROPOUT_BYTES = 28, 22
# The same for each element of attention's a s² b scores: written by the first product (2), scaled,
# masked and normalized (4), dropped out with their mask (5), read by the second product (2).
SCORE_BYTES = 13
# An Adam step for each parameter: reads gradient, weight and two moments of 32 bit, writes the
# last three and the 16-bit weight.
OPTIMIZER_STEP_BYTES = 30
# A backward pass computes two products for each one of the forward pass.
BACKWARD = 2
# AllGather and ReduceScatter around attention and around the feed-forward block, in the forward and
# in the backward pass; without sequence parallelism, an AllReduce is both (arXiv 2205.05198,
# section 4.2.2).
TENSOR_COLLECTIVES = 8
# Mixed-precision Adam (ZeRO, arXiv 1910.02054): 16-bit weights, 32-bit gradients; 32-bit weights
# and two moments, which data-parallel ranks share.
WEIGHT_BYTES, MAIN_GRADIENT_BYTES, OPTIMIZER_BYTES = 2, 4, 12
# Bytes of a layer's activations for each element of b s h: inside and outside of tensor
# parallelism (arXiv 2205.05198, equations 2 to 6); attention has 5 a s/h more where it is stored.
TENSOR_ACTIVATIONS, OTHER_ACTIVATIONS, ATTENTION_ACTIVATIONS, INPUT_ACTIVATIONS = 24, 10, 5, 2


@dataclass(frozen=True)
class Terms:
    """Seconds of an iteration by cause; their sum is the iteration's time."""

    compute: Numbers
    tensor: Numbers
    expert: Numbers
    bubble: Numbers
    pipeline: Numbers
    data: Numbers
    optimizer: Numbers

    @property
    def total(self) -> Numbers:
        """The iteration's time."""
        return sum(getattr(self, field.name) for field in fields(self))


def iteration(job: Job, strategy: Strategy) -> Terms:
    """All terms of an iteration.

    The last stage also computes the logits, and every microbatch waits for it. The pipeline is
    empty for p-1 stages' time, 1/v of it if interleaved. Transfers between stages, and the sum of
    the gradients, are not hidden behind compute.
    """
    cluster, model = job.cluster, job.transformer
    microbatches = job.batch / (strategy.data * strategy.microbatch)
    layers = model.layers / strategy.pipeline
    compute = layers * layer_s(job, strategy)
    tensor = layers * _tensor_s(job, strategy)
    expert = model.expert_layers / strategy.pipeline * _expert_s(cluster, model, strategy)
    return Terms(
        compute=microbatches * (compute + logits_s(job, strategy)),
        tensor=microbatches * tensor,
        expert=microbatches * expert,
        bubble=(strategy.pipeline - 1) / strategy.interleave * (compute + tensor + expert),
        pipeline=2 * strategy.interleave * microbatches * _hop_s(cluster, model, strategy),
        data=_data_s(cluster, model, strategy),
        optimizer=optimizer_s(cluster, model, strategy),
    )


def logits_s(job: Job, strategy: Strategy) -> Numbers:
    """Seconds in which the last stage computes a microbatch's logits, forward and backward."""
    flops = job.transformer.head_flops(strategy.microbatch) / strategy.tensor
    return flops / job.cluster.accelerator.product_flops


def forward_s(job: Job, strategy: Strategy) -> Numbers:
    """Seconds in which a layer's forward pass of a microbatch is computed."""
    accelerator = job.cluster.accelerator
    flops = job.transformer.layer_flops(strategy.microbatch) / strategy.tensor
    moved = _moved(job, strategy) / accelerator.streaming_bandwidth
    return flops / accelerator.product_flops + moved


def layer_s(job: Job, strategy: Strategy) -> Numbers:
    """Seconds in which a layer's forward and backward pass of a microbatch are computed."""
    model, accelerator = job.transformer, job.cluster.accelerator
    flops, moved = model.layer_flops(strategy.microbatch), _moved(job, strategy)
    again_flops, again_moved = {
        Recomputation.NONE: (0.0, 0.0),
        Recomputation.SELECTIVE: (
            model.attention_flops(strategy.microbatch),
            _scores(model, strategy) / strategy.tensor,
        ),
        Recomputation.FULL: (flops, moved),
    }[job.recomputation]
    products = ((1 + BACKWARD) * flops + again_flops) / accelerator.product_flops
    streams = ((1 + BACKWARD) * moved + again_moved) / accelerator.streaming_bandwidth
    return products / strategy.tensor + streams


def _scores(model: Transformer, strategy: Strategy) -> Numbers:
    """Bytes that attention's scores move in a layer's forward pass, over all tensor ranks."""
    return SCORE_BYTES * model.heads * model.sequence**2 * strategy.microbatch


def _moved(job: Job, strategy: Strategy) -> Numbers:
    """Bytes that a layer's forward pass moves through a GPU's memory outside matrix products."""
    model = job.transformer
    elements = strategy.microbatch * model.sequence * model.hidden
    shared = TENSOR_PARALLEL_BYTES * elements + _scores(model, strategy)
    outside = NORM_AND_DROPOUT_BYTES * elements
    return shared / strategy.tensor + outside / (strategy.tensor if job.sequence_parallel else 1)


def activation_bytes(model: Transformer, strategy: Strategy) -> Numbers:
    """A microbatch's activations between two layers, over all tensor-parallel ranks."""
    return ACTIVATION_BYTES * strategy.microbatch * model.sequence * model.hidden


def gather_s(cluster: Cluster, size: Numbers, degree: Numbers, inside: Numbers) -> Numbers:
    """Seconds of a hierarchical AllGather or ReduceScatter of `size` bytes over `degree` ranks.

    `inside` of them are in a domain: (y-1)D/(xy C_S) + (x-1)D/(x C_F) with x inside, y across.
    """
    across = (degree / inside - 1) * size / (degree * cluster.nic)
    return across + (inside - 1) * size / (inside * cluster.hb)


def _tensor_s(job: Job, strategy: Strategy) -> Numbers:
    """Seconds of a layer's tensor-parallel collectives, forward and backward, of a microbatch."""
    size = activation_bytes(job.transformer, strategy)
    once = gather_s(job.cluster, size, strategy.tensor, strategy.tensor_inside)
    return tensor_collectives(job) * once


def tensor_collectives(job: Job) -> float:
    """Return the tensor-parallel collectives per layer and microbatch, recomputed ones included."""
    again = TENSOR_COLLECTIVES / 2 if job.recomputation is Recomputation.FULL else 0
    return TENSOR_COLLECTIVES + again


def _expert_s(cluster: Cluster, model: Transformer, strategy: Strategy) -> Numbers:
    """Seconds of a layer's all-to-alls: dispatch and combine, forward and backward.

    In two steps on rail-only, direct on rail-optimized (rail-only paper, section IV-B). Expert
    parallel ranks are data-parallel ranks.
    """
    if model.experts is None:
        return 0.0
    ranks = model.experts.parallel
    x: Any = np.gcd(np.asarray(strategy.data_inside, int), ranks)
    y, pair = ranks / x, expert_bytes(model, strategy) / ranks
    along_rails, within = x * (y - 1) * pair / cluster.nic, (x - 1) * pair / cluster.hb
    if cluster.kind is FabricKind.RAIL_ONLY:
        return 4 * (along_rails + y * within)
    return 4 * np.maximum(cluster.oversubscription * along_rails, within)


def expert_bytes(model: Transformer, strategy: Strategy) -> Numbers:
    """Bytes that a GPU holds for one all-to-all: its tokens, once for each visited expert."""
    visits = model.experts.visits if model.experts else 0
    return visits * activation_bytes(model, strategy) / strategy.tensor


def _hop_s(cluster: Cluster, model: Transformer, strategy: Strategy) -> Numbers:
    """Seconds of a transfer between two stages; each tensor-parallel rank sends its part.

    If the stages of a pipeline lie in several domains, the transfers between domains are slowest.
    """
    crosses = strategy.pipeline > strategy.pipeline_inside
    bandwidth = np.where(crosses, cluster.nic, cluster.hb)
    size = activation_bytes(model, strategy) / strategy.tensor
    return (strategy.pipeline > 1) * size / bandwidth


def gradient_bytes(model: Transformer, strategy: Strategy) -> tuple[Numbers, Numbers]:
    """Bytes of a GPU's gradients: those outside experts, and its experts'."""
    shared, held = gpu_parameters(model, strategy)
    return GRADIENT_BYTES * shared, GRADIENT_BYTES * held


def _data_s(cluster: Cluster, model: Transformer, strategy: Strategy) -> Numbers:
    """Seconds of the AllReduce of the gradients; an expert's are summed over its copies."""
    shared, held = gradient_bytes(model, strategy)
    whole = 2 * gather_s(cluster, shared, strategy.data, strategy.data_inside)
    if model.experts is None:
        return whole
    copies = np.maximum(strategy.data / model.experts.parallel, 1)
    inside = np.maximum(strategy.data_inside / model.experts.parallel, 1)
    return whole + 2 * gather_s(cluster, held, copies, inside)


def optimizer_s(cluster: Cluster, model: Transformer, strategy: Strategy) -> Numbers:
    """Seconds of an optimizer's step over a GPU's share of the parameters."""
    moved = OPTIMIZER_STEP_BYTES * optimized_parameters(model, strategy)
    return moved / cluster.accelerator.streaming_bandwidth


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


@dataclass(frozen=True)
class Evaluation:
    """A strategy's iteration: seconds by cause, memory in bytes, utilization as shares of 1.

    MFU counts the FLOPs that the model needs, HFU also the recomputed ones.
    """

    strategy: Strategy
    terms: Terms
    memory_bytes: float
    mfu: float
    hfu: float

    @property
    def iteration_s(self) -> float:
        """The iteration's time."""
        return float(self.terms.total)


def evaluate(job: Job, strategy: Strategy) -> Evaluation:
    """Evaluate one strategy."""
    terms = iteration(job, strategy)
    peak = float(terms.total) * job.cluster.gpus * job.cluster.accelerator.peak_flops
    return Evaluation(
        strategy,
        terms,
        float(memory_bytes(job, strategy)),
        job.transformer.model_flops(job.batch) / peak,
        job.transformer.hardware_flops(job.batch, job.recomputation) / peak,
    )


def best(job: Job, wish: Wish = ANY, *, must_fit: bool = True) -> Evaluation | None:
    """Return the fastest strategy, with `must_fit` of those that fit into memory; or `None`."""
    every = strategies(job, wish)
    if not len(every.tensor):
        return None
    times = iteration(job, every).total
    if must_fit:
        fits = memory_bytes(job, every) <= job.cluster.accelerator.memory_bytes
        times = np.where(fits, times, np.inf)
    fastest = int(np.argmin(times))
    return evaluate(job, every.at(fastest)) if np.isfinite(times[fastest]) else None
