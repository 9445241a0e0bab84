"""The time of an iteration, term by term, and what it makes of the GPUs."""

from dataclasses import dataclass, fields

import numpy as np

from model.fabric.spec import FabricKind
from model.training import layer
from model.training.job import Cluster, Job, Numbers
from model.training.strategy import Strategy, stage_layers
from model.training.transformer import Transformer

# An Adam step for each parameter: reads the gradient for its norm (4); reads gradient, weight and
# two moments of 32 bits and writes the last three (28); makes the 16-bit weight of the other (6).
# Before, copies divide all gradients by their number (8); behind, gradients become zero (4).
# Operations: Megatron-LM, `optimizer` and `distributed/param_and_grad_buffer.py`.
OPTIMIZER_STEP_BYTES, MEAN_BYTES, ZERO_BYTES = 38, 8, 4


@dataclass(frozen=True)
class Terms:
    """Seconds of an iteration by cause; their sum is the iteration's time."""

    compute: Numbers
    tensor: Numbers
    context: Numbers
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

    Every microbatch waits for the slowest stage: the largest one, with the most layers of experts,
    or the last one, which also computes the logits. The bubble is a microbatch's time in all other
    stages, 1/v of it if interleaved, at most; no other microbatch hides its all-to-alls there
    (DeepSeek-V3, arXiv 2412.19437, table 2: 1F1B). Transfers between stages are not hidden.
    """
    cluster, model = job.cluster, job.transformer
    microbatches = job.batch / (strategy.replicas * strategy.microbatch)
    layers = stage_layers(model.layers, strategy.pipeline)
    with_experts = stage_layers(model.expert_layers, strategy.pipeline)
    parts = layer.layer_s(job, strategy), _tensor_s(job, strategy), _context_s(job, strategy)
    sent_s, each_s = _all_to_all_s(job, strategy), sum(parts)
    exposed_s = sent_s - _hidden_s(job, strategy, microbatches)
    mean_s = each_s + with_experts / layers * exposed_s
    logits_s, behind_s = layer.logits_s(job, strategy), layer.behind_s(job, strategy, mean_s)
    others_s = (model.layers - layers) * each_s + (model.expert_layers - with_experts) * sent_s
    return Terms(
        compute=microbatches * (layers * parts[0] + behind_s),
        tensor=microbatches * layers * parts[1],
        context=microbatches * layers * parts[2],
        expert=microbatches * with_experts * exposed_s,
        bubble=(others_s + logits_s - behind_s) / strategy.interleave,
        pipeline=2 * strategy.interleave * microbatches * _hop_s(cluster, model, strategy),
        data=_data_s(job, strategy, microbatches),
        optimizer=optimizer_s(job, strategy),
    )


def gather_s(cluster: Cluster, size: Numbers, degree: Numbers, inside: Numbers) -> Numbers:
    """Seconds of a hierarchical AllGather or ReduceScatter of `size` bytes over `degree` ranks.

    `inside` of them are in a domain: (y-1)D/(xy C_S) + (x-1)D/(x C_F) with x inside, y across.
    """
    across = (degree / inside - 1) * size / (degree * cluster.nic)
    return across + (inside - 1) * size / (inside * cluster.hb)


def _tensor_s(job: Job, strategy: Strategy) -> Numbers:
    """Seconds of a layer's tensor-parallel collectives, forward and backward, of a microbatch."""
    size = layer.activation_bytes(job.transformer, strategy)
    once = gather_s(job.cluster, size, strategy.tensor, strategy.tensor_inside)
    return layer.tensor_collectives(job) * once


def _context_s(job: Job, strategy: Strategy) -> Numbers:
    """Seconds of a layer's gathers of keys and values among the ranks that share a sequence."""
    size = layer.context_bytes(job.transformer, strategy)
    once = gather_s(job.cluster, size, strategy.context, strategy.context_inside)
    return (layer.CONTEXT_COLLECTIVES + layer.passes(job) - 2) * once


def _hidden_s(job: Job, strategy: Strategy, microbatches: Numbers) -> Numbers:
    """Seconds of an expert layer's all-to-alls that overlap with another microbatch's compute.

    The first microbatch's forward pass and the last one's backward pass have none beside them.
    """
    hidden = np.minimum(_all_to_all_s(job, strategy), layer.layer_s(job, strategy))
    return job.overlap_experts * (1 - 1 / microbatches) * hidden


def _all_to_all_s(job: Job, strategy: Strategy) -> Numbers:
    """Seconds of an expert layer's all-to-alls: dispatch and combine in each pass.

    In two steps on rail-only, direct on rail-optimized (rail-only paper, section IV-B).
    """
    cluster, model = job.cluster, job.transformer
    if model.experts is None:
        return 0.0
    ranks, x = strategy.expert, strategy.expert_inside
    y, pair = ranks / x, layer.expert_bytes(job, strategy) / ranks
    along_rails = x * (y - 1) * pair / (cluster.scatter * cluster.nic)
    within = (x - 1) * pair / cluster.hb
    count = layer.PASS_ALL_TO_ALLS * layer.passes(job)
    if cluster.kind is FabricKind.RAIL_ONLY:
        return count * (along_rails + y * within)
    return count * np.maximum(cluster.oversubscription * along_rails, within)


def _hop_s(cluster: Cluster, model: Transformer, strategy: Strategy) -> Numbers:
    """Seconds of a transfer between two stages; each tensor-parallel rank sends its part.

    If the stages of a pipeline lie in several domains, the transfers between domains are slowest.
    """
    crosses = strategy.pipeline > strategy.pipeline_inside
    bandwidth = np.where(crosses, cluster.nic, cluster.hb)
    size = layer.activation_bytes(model, strategy) / strategy.tensor
    return (strategy.pipeline > 1) * size / bandwidth


def _data_s(job: Job, strategy: Strategy, microbatches: Numbers) -> Numbers:
    """Seconds of the gradients' ReduceScatter and the weights' AllGather, as far as not hidden.

    An expert's are exchanged among its copies. ZeRO's stage 2 reduces the gradients of each
    microbatch, stage 3 also gathers the weights for each pass. Overlapped traffic hides behind the
    stage's pass of a microbatch, but for one layer's, where it hides no all-to-alls already.
    """
    shared, held = layer.weight_bytes(job.transformer, strategy)
    once = gather_s(job.cluster, shared, strategy.data, strategy.data_inside)
    once = once + gather_s(job.cluster, held, strategy.copies, strategy.copies_inside)
    forward, backward = once, (job.gradient_width + job.shares_weights) * once
    gathers = microbatches if job.shares_weights else 1
    if job.overlap:
        model, layers = job.transformer, stage_layers(job.transformer.layers, strategy.pipeline)
        taken = _hidden_s(job, strategy, microbatches) / layer.layer_s(job, strategy)
        free = layers - stage_layers(model.expert_layers, strategy.pipeline) * taken
        pass_s = free * layer.forward_s(job, strategy)
        again_s = free * layer.again_s(job, strategy)
        forward = np.maximum(forward - pass_s, forward / layers)
        backward = np.maximum(backward - 2 * pass_s - again_s, backward / layers)
    return gathers * forward + job.reductions(microbatches) * backward


def optimizer_s(job: Job, strategy: Strategy) -> Numbers:
    """Seconds of an optimizer's step over a GPU's share of the parameters, and of all gradients.

    Offloaded, gradients go to the host, which steps in its own memory, and weights return.
    """
    accelerator = job.cluster.accelerator
    count = layer.optimized_parameters(job.transformer, strategy)
    moved = ZERO_BYTES + MEAN_BYTES * (strategy.data > 1)
    moved = moved * sum(layer.gpu_parameters(job.transformer, strategy))
    if not job.offload:
        return (OPTIMIZER_STEP_BYTES * count + moved) / accelerator.streaming_bandwidth
    host_s = OPTIMIZER_STEP_BYTES * count / accelerator.host_memory_bandwidth
    host_s += 2 * layer.WEIGHT_BYTES * count / accelerator.host_link
    return host_s + moved / accelerator.streaming_bandwidth


@dataclass(frozen=True)
class Evaluation:
    """A job's iteration by a strategy: seconds by cause, memory in bytes, utilization, shares of 1.

    MFU counts the FLOPs that the model needs, HFU also the recomputed ones.
    """

    job: Job
    strategy: Strategy
    terms: Terms
    memory_bytes: float
    host_memory_bytes: float
    fits: bool
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
        job,
        strategy,
        terms,
        float(layer.memory_bytes(job, strategy)),
        float(layer.host_memory_bytes(job, strategy)),
        bool(layer.fits(job, strategy)),
        job.transformer.model_flops(job.batch) / peak,
        job.transformer.hardware_flops(job.batch, job.recomputation) / peak,
    )
