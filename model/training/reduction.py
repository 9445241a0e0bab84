"""A training iteration made small enough for an emulated fabric, by rules that keep its ratios.

A GPU of the reduced iteration computes as long for a microbatch as one of the full iteration, and
sends as many bytes for it in each parallel dimension. Reduced are the ranks of each degree, the
microbatches (with the same share of the bubble), and the layers (each stands for several). The
gradients shrink with the microbatches, and so does the optimizer's step.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, inf
from typing import Any

from model.sentences import counted
from model.training import layer
from model.training.iteration import optimizer_s
from model.training.job import Job, Sharded
from model.training.strategy import Strategy, divisors, stage_layers
from model.training.traffic import Dimension
from model.training.transformer import Recomputation

MAIN = ("tensor", "pipeline", "data")
DEGREES = (*MAIN, "expert", "context")
# Most microbatches: more of them repeat the same steps.
MOST_MICROBATCHES = 16
# Most domains for which a refused reduction is tried.
MOST_DOMAINS = 64
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
    expert: int | None = None
    zero: bool = True


@dataclass(frozen=True)
class Change:
    """A number of the full iteration, and of the reduced one."""

    what: str
    full: float
    reduced: float


@dataclass(frozen=True)
class ReducedIteration(Sharded):
    """An iteration of `microbatches`, on as many ranks as the strategy's degrees multiply to.

    Seconds and bytes are the real platform's: of a layer's pass of a microbatch (`again_s`: its
    forward pass, computed again before the backward pass), of the logits without the layers that
    the last stage lacks, and of the optimizer's step; of one tensor-parallel collective around
    attention and around the feed-forward block, one gather of keys and values, one transfer between
    stages, one all-to-all, and of the gradients outside experts and of experts that are reduced at
    once. Of the weights, `weights_part` times as many bytes are gathered at once. `layers` is the
    number of a chunk's layers; `sharding` and `overlap` are the job's.
    """

    strategy: Strategy
    microbatches: int
    layers: int
    forward_s: float
    again_s: float
    backward_s: float
    logits_s: float
    optimizer_s: float
    tensor_bytes: float
    feed_forward_bytes: float
    context_bytes: float
    hop_bytes: float
    expert_bytes: float
    gradient_bytes: float
    expert_gradient_bytes: float
    weights_part: float = 1.0
    sharding: int = 1
    overlap: bool = False
    changes: tuple[Change, ...] = ()

    @property
    def gpus(self) -> int:
        """The number of ranks."""
        return int(self.strategy.tensor * self.strategy.pipeline * self.strategy.data)

    @property
    def exchanges(self) -> float:
        """How often as many bytes as of the gradients are reduced or gathered."""
        gathers = self.gathers(self.microbatches) * self.weights_part
        return float(self.reductions(self.microbatches) + gathers)

    @property
    def size_bytes(self) -> float:
        """Data of all collectives and transfers of a rank, the same on every fabric."""
        layers = self.microbatches * self.strategy.interleave * self.layers
        hops = 2 * self.microbatches * self.strategy.interleave * self.hop_bytes
        gradients = self.exchanges * (self.gradient_bytes + self.expert_gradient_bytes)
        inside = layers * sum(self._of_a_layer)
        return float(inside + hops * (self.strategy.pipeline > 1) + gradients)

    @property
    def sent_bytes(self) -> dict[Dimension, float]:
        """The least bytes that all ranks together send in each dimension.

        Of a collective, a rank sends all but its own part. All-to-alls in two steps send more.
        """
        strategy = self.strategy
        layers = self.microbatches * strategy.interleave * self.layers
        of_tensor, of_context, of_experts = self._of_a_layer
        hops = 2 * self.microbatches * (strategy.pipeline * strategy.interleave - 1)
        shared = _to_others(self.gradient_bytes, strategy.data)
        of_copies = _to_others(self.expert_gradient_bytes, strategy.copies)
        of_a_rank = {
            Dimension.TENSOR: layers * _to_others(of_tensor, strategy.tensor),
            Dimension.CONTEXT: layers * _to_others(of_context, strategy.context),
            Dimension.DATA: self.exchanges * (shared + of_copies),
            Dimension.PIPELINE: hops / strategy.pipeline * self.hop_bytes,
            Dimension.EXPERT: layers * _to_others(of_experts, strategy.expert),
        }
        return {dimension: self.gpus * size for dimension, size in of_a_rank.items()}

    @property
    def _of_a_layer(self) -> tuple[float, float, float]:
        """Data of a layer in all passes: tensor parallel, keys and values, all-to-alls."""
        count = 3 if self.again_s else 2
        blocks = self.tensor_bytes + self.feed_forward_bytes
        return (
            layer.BLOCK_COLLECTIVES // 2 * count * blocks,
            (layer.CONTEXT_COLLECTIVES + count - 2) * self.context_bytes,
            layer.PASS_ALL_TO_ALLS * count * self.expert_bytes,
        )


def reduced(
    job: Job, full: Strategy, domains: int, domain_size: int, wanted: Wanted
) -> ReducedIteration:
    """Reduce an iteration to a grid of GPUs; raises `NoReduction` if it is impossible."""
    strategy = _degrees(full, domains, domain_size, wanted)
    microbatches = job.batch // (full.replicas * full.microbatch)
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
    executed = replace(job, overlap_experts=False, sharding=job.sharding if wanted.zero else 1)
    small = _reduced(executed, full, strategy, microbatches, fewer, wanted.layers)
    return replace(small, changes=tuple(_changes(job, full, small, microbatches, wanted.zero)))


def _reduced(
    job: Job, full: Strategy, strategy: Strategy, microbatches: int, fewer: int, layers: int
) -> ReducedIteration:
    """Reduce to the degrees of `strategy`, `fewer` microbatches and `layers` of a chunk."""
    model, part = job.transformer, fewer / microbatches
    # The layers that each executed one stands for.
    stage = stage_layers(model.layers, full.pipeline)
    merged = float(stage / (layers * strategy.interleave))
    shared, held = layer.weight_bytes(model, full)
    size, gathered = layer.activation_bytes(model, full), layer.context_bytes(model, full)
    tensor = merged * _same_bytes(size, full.tensor, strategy.tensor)
    once = job.gradient_width * (1.0 if job.shares_gradients else part)
    at_experts = model.expert_layers / model.layers * layer.expert_bytes(job, full)
    forward = layer.forward_s(job, full)
    again = forward if job.recomputation is Recomputation.FULL else 0.0
    return ReducedIteration(
        strategy=strategy,
        microbatches=fewer,
        layers=layers,
        forward_s=merged * forward,
        again_s=merged * again,
        backward_s=merged * (layer.layer_s(job, full) - forward - again),
        logits_s=float(layer.behind_s(job, full, layer.layer_s(job, full))),
        optimizer_s=part * optimizer_s(job, full),
        tensor_bytes=tensor,
        feed_forward_bytes=model.split_feed_forward * tensor,
        context_bytes=merged * _same_bytes(gathered, full.context, strategy.context),
        hop_bytes=size / full.tensor,
        expert_bytes=merged * _same_bytes(at_experts, full.expert, strategy.expert),
        gradient_bytes=once * _same_bytes(shared, full.data, strategy.data),
        expert_gradient_bytes=once * _same_bytes(held, full.copies, strategy.copies),
        weights_part=(1.0 if job.shares_weights else part) / once,
        sharding=job.sharding,
        overlap=job.overlap,
    )


def _to_others(size: float, ranks: int) -> float:
    """Return the bytes that each of `ranks` sends in an AllGather, ReduceScatter or all-to-all."""
    return size * (ranks - 1) / ranks


def _same_bytes(size: float, full: int, fewer: int) -> float:
    """The size of a collective of `fewer` ranks if each sends as much as one of `full` did."""
    return 0.0 if 1 in (full, fewer) else _to_others(size, full) * fewer / (fewer - 1)


def _degrees(full: Strategy, domains: int, domain_size: int, wanted: Wanted) -> Strategy:
    """The degrees that divide all dimensions the most evenly."""
    asked = {key: getattr(wanted, key) for key in ("tensor", "pipeline", "expert")}
    asked = {key: wish for key, wish in asked.items() if wish is not None}
    for key, wish in asked.items():
        if wish > (most := int(getattr(full, key))):
            raise NoReduction(f"{key} must be at most the configuration's {most}, got {wish}")
    possible = list(_possible(full, domains * domain_size, domain_size, wanted))
    if possible:
        return min(possible, key=lambda one: _unevenness(full, one))
    gpus, fabric = full.tensor * full.pipeline * full.data, f"{domains} x {domain_size} GPUs"
    if gpus < domains * domain_size:
        raise NoReduction(f"has {gpus} GPUs, fewer than the {fabric} of the fabric")
    degrees = {name: getattr(full, name) for name in DEGREES}
    shown = (f"{key} {degree}" for key, degree in degrees.items() if key in MAIN or degree > 1)
    given = " and ".join(f"{key} {wish}" for key, wish in asked.items())
    raise NoReduction(
        f"{', '.join(shown)} cannot be reduced to {fabric}{f' with {given}' if given else ''} "
        f"without losing a dimension: {_needed(full, domain_size, wanted)}"
    )


def _needed(full: Strategy, domain_size: int, wanted: Wanted) -> str:
    """The least number of domains to which the iteration can be reduced."""
    most = full.tensor * full.pipeline * full.data // domain_size
    for domains in range(1, min(most, MOST_DOMAINS) + 1):
        if any(_possible(full, domains * domain_size, domain_size, wanted)):
            return f"it needs {counted(domains, 'domain', f'of {domain_size} GPUs')}"
    return f"no number of domains of {domain_size} GPUs up to {MOST_DOMAINS} would do"


def _possible(full: Strategy, gpus: int, domain_size: int, wanted: Wanted) -> Iterator[Strategy]:
    for tensor in divisors(gpus):
        for pipeline in divisors(gpus // tensor):
            data = gpus // (tensor * pipeline)
            asked = wanted.tensor in (None, tensor) and wanted.pipeline in (None, pipeline)
            inside = _inside(tensor, data, pipeline, domain_size)
            if asked and inside is not None:
                interleave = full.interleave if pipeline > 1 else 1
                degrees = (tensor, pipeline, data, interleave, full.microbatch)
                for expert, context in product(divisors(tensor * data), divisors(data)):
                    one = Strategy(*degrees, *inside, expert, context)
                    if wanted.expert in (None, expert) and _is_kept(full, one, wanted):
                        yield one


def _is_kept(full: Strategy, one: Strategy, wanted: Wanted) -> bool:
    """Whether no dimension grows, or falls from several ranks to one without being asked to."""
    return all(
        after <= before and (after > 1 or before == 1 or getattr(wanted, name, None) == 1)
        for name, before, after in _pairs(full, one)
    )


def _pairs(full: Strategy, one: Strategy) -> Iterator[tuple[str, int, int]]:
    """Yield each dimension's name and degrees; copies of experts are one where there are some."""
    for name in (*DEGREES, "copies") if full.expert > 1 else DEGREES:
        yield name, int(getattr(full, name)), int(getattr(one, name))


def _inside(tensor: int, data: int, pipeline: int, domain_size: int) -> tuple[int, int, int] | None:
    """Parts of tensor, pipeline and data inside a domain; `None` if they do not fill it.

    Ranks are numbered as in MegatronLM: tensor first, then data, then pipeline.
    """
    inner = gcd(tensor, domain_size)
    copies = gcd(data, domain_size // inner)
    stages = gcd(pipeline, domain_size // (inner * copies))
    return (inner, stages, copies) if inner * copies * stages == domain_size else None


def _unevenness(full: Strategy, one: Strategy) -> tuple[bool, float, int]:
    """How unlike the full iteration's the degrees are.

    Whether experts are in other domains in the one iteration alone; how unevenly degrees are
    divided; at last, the tensor degree decides.
    """
    crosses = [strategy.expert > strategy.expert_inside for strategy in (full, one)]
    factors = [before / after for _, before, after in _pairs(full, one) if before > 1] or [1.0]
    return crosses[0] != crosses[1], max(factors) / min(factors), -one.tensor


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
    job: Job, full: Strategy, small: ReducedIteration, microbatches: int, zero: bool
) -> Iterator[Change]:
    """Yield the numbers that differ from the full iteration, and the bubble's share."""
    strategy, fewer = small.strategy, small.microbatches
    chunk = stage_layers(job.transformer.layers, full.pipeline) / full.interleave
    yield Change("gpus", job.cluster.gpus, small.gpus)
    for degree in DEGREES:
        yield Change(degree, getattr(full, degree), getattr(strategy, degree))
        crosses = (getattr(s, degree) > getattr(s, f"{degree}_inside") for s in (full, strategy))
        yield Change(f"{degree} across domains", *map(int, crosses))
    # All-to-alls have no other microbatch's pass beside them.
    yield Change("overlap of experts", job.overlap_experts, 0)
    yield Change("microbatches", microbatches, fewer)
    yield Change("layers of a chunk", chunk, small.layers)
    yield Change("bubble", _bubble(full, microbatches), _bubble(strategy, fewer))
    if not zero:
        yield Change("ZeRO's stage", job.sharding, 0)


def reduction_in_words(changes: Iterable[Mapping[str, Any]]) -> str:
    """Name the reduced numbers; all others were kept."""
    reduced = [
        f"{change['what']} {_digits(change['full'])} -> {_digits(change['reduced'])}"
        for change in changes
        if change["full"] != change["reduced"]
    ]
    return f"reduced: {', '.join(reduced)}" if reduced else "nothing was reduced"


def _digits(number: float) -> str:
    """Format a count with all of its digits, a share with four."""
    return f"{number:.4g}" if number % 1 else f"{number:.0f}"
