"""A training iteration made small enough for an emulated fabric, by rules that keep its ratios.

A GPU of the reduced iteration computes as long for a microbatch as one of the full iteration, and
sends as many bytes for it in each parallel dimension. Reduced are the ranks of each degree, the
microbatches (with the same share of the bubble), and the layers (each stands for several). The
gradients shrink with the microbatches, and so does the optimizer's step.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd, inf
from typing import Any

from model.training.iteration import (
    TENSOR_COLLECTIVES,
    activation_bytes,
    expert_bytes,
    forward_s,
    gradient_bytes,
    layer_s,
    logits_s,
    optimizer_s,
)
from model.training.job import Job
from model.training.strategy import Strategy, divisors
from model.training.traffic import Dimension
from model.training.transformer import Recomputation

# Most microbatches: more of them repeat the same steps.
MOST_MICROBATCHES = 16
# Passes of all layers at all ranks; each is about twenty steps, which take time and memory.
MOST_PASSES = 10_000


class NoReduction(ValueError):
    """A configuration cannot be reduced to a fabric; the message says why."""


@dataclass(frozen=True)
class Wanted:
    """Requested degrees and numbers; `None` follows the rules."""

    tensor: int | None = None
    pipeline: int | None = None
    microbatches: int | None = None
    layers: int = 1


@dataclass(frozen=True)
class Change:
    """A number of the full iteration, and of the reduced one."""

    what: str
    full: float
    reduced: float


@dataclass(frozen=True)
class ReducedIteration:
    """An iteration of `microbatches`, on as many ranks as the strategy's degrees multiply to.

    Seconds and bytes are the real platform's: of a layer's pass of a microbatch (`again_s`: its
    forward pass, computed again before the backward pass), of the logits and the optimizer's step;
    of one tensor-parallel collective, one transfer between stages, one all-to-all, and of the
    gradients outside experts and of experts. `layers` is the number of a chunk's layers, `experts`
    the number of ranks that share experts.
    """

    strategy: Strategy
    microbatches: int
    layers: int
    experts: int
    forward_s: float
    again_s: float
    backward_s: float
    logits_s: float
    optimizer_s: float
    tensor_bytes: float
    hop_bytes: float
    expert_bytes: float
    gradient_bytes: float
    expert_gradient_bytes: float
    changes: tuple[Change, ...] = ()

    @property
    def gpus(self) -> int:
        """The number of ranks."""
        return int(self.strategy.tensor * self.strategy.pipeline * self.strategy.data)

    @property
    def size_bytes(self) -> float:
        """Data of all collectives and transfers of a rank, the same on every fabric."""
        passes = self.microbatches * self.strategy.interleave
        layer_passes = 3 if self.again_s else 2
        collectives = TENSOR_COLLECTIVES // 2 * layer_passes
        layer = collectives * self.tensor_bytes + 4 * self.expert_bytes
        hops = 2 * passes * self.hop_bytes if self.strategy.pipeline > 1 else 0.0
        gradients = 2 * (self.gradient_bytes + self.expert_gradient_bytes)
        return float(passes * self.layers * layer + hops + gradients)

    @property
    def sent_bytes(self) -> dict[Dimension, float]:
        """The least bytes that all ranks together send in each dimension.

        Of a collective, a rank sends all but its own part. All-to-alls in two steps send more.
        """
        strategy, experts = self.strategy, self.experts
        passes = self.microbatches * strategy.interleave * self.layers
        collectives = TENSOR_COLLECTIVES // 2 * (3 if self.again_s else 2)
        hops = 2 * self.microbatches * (strategy.pipeline * strategy.interleave - 1)
        shared = _to_others(self.gradient_bytes, strategy.data)
        of_experts = _to_others(self.expert_gradient_bytes, strategy.data // experts)
        of_a_rank = {
            Dimension.TENSOR: passes * collectives * _to_others(self.tensor_bytes, strategy.tensor),
            Dimension.DATA: 2 * (shared + of_experts),
            Dimension.PIPELINE: hops / strategy.pipeline * self.hop_bytes,
            Dimension.EXPERT: passes * 4 * _to_others(self.expert_bytes, experts),
        }
        return {dimension: self.gpus * size for dimension, size in of_a_rank.items()}


def reduced(
    job: Job, full: Strategy, domains: int, domain_size: int, wanted: Wanted
) -> ReducedIteration:
    """Reduce an iteration to a grid of GPUs; raises `NoReduction` if it is impossible."""
    strategy = _degrees(full, domains * domain_size, domain_size, wanted)
    microbatches = job.batch // (full.data * full.microbatch)
    fewer = wanted.microbatches or _microbatches(full, strategy, microbatches)
    if strategy.interleave > 1 and fewer % strategy.pipeline:
        raise NoReduction(
            f"interleaving needs a multiple of {strategy.pipeline} microbatches, got {fewer}"
        )
    passes = domains * domain_size * fewer * strategy.interleave * wanted.layers
    if passes > MOST_PASSES:
        raise NoReduction(
            f"{domains * domain_size} GPUs with {fewer} microbatches and "
            f"{strategy.interleave * wanted.layers} layers have {passes} layer passes; at most "
            f"{MOST_PASSES} are possible"
        )
    small = _Reduction(job, full, strategy, fewer / microbatches, wanted.layers)
    return replace(
        small.iteration(fewer), changes=tuple(_changes(job, full, small, microbatches, fewer))
    )


@dataclass(frozen=True)
class _Reduction:
    """The full iteration's strategy, the reduced one's, and the share of microbatches that is kept.

    `layers` is the number of a chunk's layers that are executed.
    """

    job: Job
    full: Strategy
    strategy: Strategy
    part: float
    layers: int

    def iteration(self, microbatches: int) -> ReducedIteration:
        """The reduced iteration."""
        job, full = self.job, self.full
        again_s = forward_s(job, full) if job.recomputation is Recomputation.FULL else 0.0
        backward_s = layer_s(job, full) - forward_s(job, full) - again_s
        shared, held = gradient_bytes(job.transformer, full)
        expert_layers = job.transformer.expert_layers / job.transformer.layers
        experts, fewer = self.experts
        size = activation_bytes(job.transformer, full)
        return ReducedIteration(
            strategy=self.strategy,
            microbatches=microbatches,
            layers=self.layers,
            experts=fewer,
            forward_s=self.merged * forward_s(job, full),
            again_s=self.merged * again_s,
            backward_s=self.merged * backward_s,
            logits_s=logits_s(job, full),
            optimizer_s=self.part * optimizer_s(job.cluster, job.transformer, full),
            tensor_bytes=self.merged * _same_bytes(size, full.tensor, self.strategy.tensor),
            hop_bytes=size / full.tensor,
            expert_bytes=self.merged
            * expert_layers
            * _same_bytes(expert_bytes(job.transformer, full), experts, fewer),
            gradient_bytes=self.part * _same_bytes(shared, full.data, self.strategy.data),
            expert_gradient_bytes=self.part
            * _same_bytes(held, full.data // experts, self.strategy.data // fewer),
        )

    @property
    def merged(self) -> float:
        """The number of layers that each executed layer stands for."""
        full_layers = self.job.transformer.layers / self.full.pipeline
        return float(full_layers / (self.layers * self.strategy.interleave))

    @property
    def experts(self) -> tuple[int, int]:
        """Ranks that share experts, before and after: the same share of data-parallel ranks."""
        experts = self.job.transformer.experts
        parallel = experts.parallel if experts else 1
        share = max(1, parallel * self.strategy.data // self.full.data)
        return parallel, max(one for one in divisors(self.strategy.data) if one <= share)


def _to_others(size: float, ranks: int) -> float:
    """Return the bytes that each of `ranks` sends in an AllGather, ReduceScatter or all-to-all."""
    return size * (ranks - 1) / ranks


def _same_bytes(size: float, full: int, fewer: int) -> float:
    """The size of a collective of `fewer` ranks in which each sends as much as one of `full` did.

    A rank of an AllGather, a ReduceScatter or an all-to-all sends (n-1)/n of the size.
    """
    return 0.0 if 1 in (full, fewer) else size * (full - 1) / full * fewer / (fewer - 1)


def _degrees(full: Strategy, gpus: int, domain_size: int, wanted: Wanted) -> Strategy:
    """The degrees that keep the most dimensions, and then divide them the most evenly."""
    possible = list(_possible(full, gpus, domain_size, wanted))
    if not possible:
        asked = [f"{key} {getattr(wanted, key)}" for key in ("tensor", "pipeline")]
        given = " and ".join(one for one in asked if "None" not in one)
        raise NoReduction(
            f"no smaller degrees than tensor {full.tensor}, pipeline {full.pipeline}, data "
            f"{full.data} multiply to {gpus // domain_size} x {domain_size} GPUs"
            + (f" with {given}" if given else "")
        )
    return min(possible, key=lambda one: _unevenness(full, one))


def _possible(full: Strategy, gpus: int, domain_size: int, wanted: Wanted) -> Iterator[Strategy]:
    for tensor in divisors(gpus):
        for pipeline in divisors(gpus // tensor):
            data = gpus // (tensor * pipeline)
            asked = wanted.tensor in (None, tensor) and wanted.pipeline in (None, pipeline)
            less = tensor <= full.tensor and pipeline <= full.pipeline and data <= full.data
            inside = _inside(tensor, data, pipeline, domain_size)
            if asked and less and inside is not None:
                interleave = full.interleave if pipeline > 1 else 1
                yield Strategy(tensor, pipeline, data, interleave, full.microbatch, *inside)


def _inside(tensor: int, data: int, pipeline: int, domain_size: int) -> tuple[int, int, int] | None:
    """Parts of tensor, pipeline and data inside a domain; `None` if they do not fill it.

    Ranks are numbered as in MegatronLM: tensor first, then data, then pipeline.
    """
    inner = gcd(tensor, domain_size)
    copies = gcd(data, domain_size // inner)
    stages = gcd(pipeline, domain_size // (inner * copies))
    return (inner, stages, copies) if inner * copies * stages == domain_size else None


def _unevenness(full: Strategy, one: Strategy) -> tuple[int, float, int]:
    """Lost dimensions; how unevenly degrees are divided; at last, the tensor degree decides."""
    pairs = ((full.tensor, one.tensor), (full.pipeline, one.pipeline), (full.data, one.data))
    lost = sum(before > 1 and after == 1 for before, after in pairs)
    factors = [before / after for before, after in pairs if before > 1] or [1.0]
    return lost, max(factors) / min(factors), -one.tensor


def _bubble(strategy: Strategy, microbatches: float) -> float:
    """The bubble over the time of all microbatches: (p-1)/(v m)."""
    return float((strategy.pipeline - 1) / (strategy.interleave * microbatches))


def _microbatches(full: Strategy, strategy: Strategy, microbatches: int) -> int:
    """As many microbatches as keep the bubble's share, but no more than the full iteration has."""
    share = _bubble(full, microbatches)
    least = strategy.pipeline if strategy.interleave > 1 else 1
    same = _bubble(strategy, 1) / share if share else inf
    fewer = round(min(same, microbatches, MOST_MICROBATCHES))
    return int(max(least, fewer // least * least))


def _changes(
    job: Job, full: Strategy, small: _Reduction, before: int, after: int
) -> Iterator[Change]:
    """Yield the numbers that differ from the full iteration, and the bubble's share."""
    strategy = small.strategy
    chunk = job.transformer.layers / (full.pipeline * full.interleave)
    yield Change("gpus", job.cluster.gpus, strategy.tensor * strategy.pipeline * strategy.data)
    yield Change("tensor", full.tensor, strategy.tensor)
    yield Change("pipeline", full.pipeline, strategy.pipeline)
    yield Change("data", full.data, strategy.data)
    yield Change("expert", *small.experts)
    yield Change("microbatches", before, after)
    yield Change("layers of a chunk", chunk, small.layers)
    yield Change("bubble", _bubble(full, before), _bubble(strategy, after))


def reduction_in_words(changes: Iterable[Mapping[str, Any]]) -> str:
    """Name the reduced numbers; all others were kept."""
    reduced = [
        f"{change['what']} {change['full']:.4g} -> {change['reduced']:.4g}"
        for change in changes
        if change["full"] != change["reduced"]
    ]
    return f"reduced: {', '.join(reduced)}" if reduced else "nothing was reduced"
