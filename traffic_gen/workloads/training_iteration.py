"""A training iteration as steps: passes of microbatches through stages, then the gradients.

A rank does its steps in the order of `stage_order`. Collectives of ranks that share tensors, a
sequence or experts are between two steps of compute; a transfer to another stage goes on while its
sender computes. Gradients are summed after the last backward pass, or with ZeRO's stage 2 after
each one; weights are gathered after the optimizer's step, or with stage 3 before each pass. With
overlap, those of a block (attention, or feed-forward) are summed from its backward pass on, which
with stages 2 and 3 ends behind them (as in DeepSpeed, and by default in PyTorch's FSDP2), and
gathered from the end of the pass before, while the rank computes.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import ceil
from typing import NamedTuple

import numpy as np

from model.arrays import Bools, Ints
from model.fabric.spec import FabricKind
from model.training.reduction import ReducedIteration, reduction_in_words
from model.training.steps import COMPUTE, DIMENSIONS, IterationSteps, Pass, stage_order
from model.training.traffic import Dimension, RankGrid
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import NONE, Rows, Transfers
from traffic_gen.workloads.sized_collective import SizedCollective
from traffic_gen.workloads.step_columns import Lane, StepColumns
from traffic_gen.workloads.task import Task

# Ranks, and for each a row of transfers that arrive there.
Arrivals = tuple[Ints, Ints]


@dataclass(frozen=True)
class Iteration(Task):
    """A reduced iteration on a kind of fabric; `algorithm` is the name of its configuration.

    With `zero`, gradients are reduced and scattered, and weights gathered (ZeRO, of the iteration's
    stage); else all gradients are reduced before the optimizer's step, which takes equally long.
    `remarks` are on the model's own file.
    """

    key = "iteration"
    algorithm: str
    iteration: ReducedIteration
    kind: FabricKind
    zero: bool = True
    remarks: tuple[str, ...] = ()

    @property
    def size_name(self) -> str:
        """The degrees and the number of microbatches."""
        degrees, small = self.iteration.strategy, self.iteration
        return f"t{degrees.tensor}p{degrees.pipeline}d{degrees.data}m{small.microbatches}"

    @property
    def details(self) -> tuple[str, ...]:
        """The numbers that were reduced, and what is left out of the model."""
        return (reduction_in_words(map(asdict, self.iteration.changes)), *self.remarks)

    @property
    def left_out(self) -> tuple[str, ...]:
        """What is left out of the model, and the numbers that were reduced."""
        is_reduced = any(change.full != change.reduced for change in self.iteration.changes)
        return self.details if is_reduced else self.remarks

    @property
    def size_bytes(self) -> float:
        """The real bytes of a GPU's collectives and transfers."""
        return self.iteration.size_bytes

    @property
    def largest_bytes(self) -> float:
        """The most real bytes that one transfer may have."""
        sizes = vars(self.iteration)
        return max(float(sizes[key]) for key in sizes if key.endswith("_bytes"))

    def steps(self, size_scale: float = 1.0, time_dilation: float = 1.0) -> IterationSteps:
        """Build and prove the steps, with bytes and seconds scaled."""
        build = _Build(self, size_scale, time_dilation)
        build.passes()
        build.optimizer()
        return IterationSteps(
            algorithm=self.algorithm,
            gpus=self.iteration.gpus,
            size_bytes=build.size(self.iteration.size_bytes),
            transfers=build.steps.transfers,
            dimensions=build.steps.dimensions,
            uses=build.steps.uses,
            reduction=self.iteration,
        )


class _Build:
    """An iteration under way: its steps so far, and the transfers that other stages wait for."""

    def __init__(self, task: Iteration, size_scale: float, time_dilation: float) -> None:
        """Place the ranks: `stages` has a GPU for each stage, data and tensor rank."""
        self.iteration, self.zero = task.iteration, task.zero
        self.size_scale, self.time_dilation = size_scale, time_dilation
        # In two steps on rail-only, direct on rail-optimized (rail-only paper, section IV-B).
        self.all_to_all = "two-step" if task.kind is FabricKind.RAIL_ONLY else "direct"
        iteration, strategy = self.iteration, self.iteration.strategy
        self.steps = StepColumns(iteration.gpus)
        grid = RankGrid(strategy)
        self.stages, self.groups, self.sequences = grid.stages(), grid.groups(), grid.sequences()
        self.inside = strategy.tensor_inside, strategy.data_inside
        self.last = strategy.pipeline * strategy.interleave - 1
        # A chunk's part of a stage's weights, and its blocks, whose collectives may overlap.
        self.chunk, self.parts = 1 / strategy.interleave, 2 * iteration.layers
        # The last transfers from one stage to another, which go one after the other.
        self.sent: dict[tuple[int, int], Ints] = {}
        # Transfers that a pass begins with: by direction, microbatch and position.
        self.handed: dict[tuple[bool, int, int], Ints] = {}
        # Of collectives beside the passes: those that are waited for.
        self.reduced: list[Arrivals] = []

    # The passes of all microbatches

    def passes(self) -> None:
        """Add all passes, each as soon as its dependencies are added."""
        strategy, microbatches = self.iteration.strategy, self.iteration.microbatches
        orders = [
            deque(stage_order(stage, strategy.pipeline, microbatches, strategy.interleave))
            for stage in range(strategy.pipeline)
        ]
        while any(orders):
            for stage, order in enumerate(orders):
                while order and self.is_ready(stage, order[0]):
                    self.one_pass(stage, order.popleft())

    def position(self, stage: int, one: Pass) -> int:
        """The place of a pass's layers in the whole model."""
        return int(one.chunk * self.iteration.strategy.pipeline + stage)

    def is_ready(self, stage: int, one: Pass) -> bool:
        """Whether the pass before this one, at another stage, has been added."""
        position = self.position(stage, one)
        is_first = position == (0 if one.forward else self.last)
        return is_first or (one.forward, one.microbatch, position) in self.handed

    def one_pass(self, stage: int, one: Pass) -> None:
        """Add a pass: its input arrives, all layers, the transfer to the next stage."""
        position = self.position(stage, one)
        weights = self.gathered(stage, one)
        if (begin := (one.forward, one.microbatch, position)) in self.handed:
            self.steps.extend(self.stages[stage].ravel(), self.handed[begin][:, np.newaxis])
        # The logits: a third of their compute forward, the rest backward.
        last_ranks, logits_s = self.stages[-1].ravel(), self.iteration.logits_s
        if position == self.last and not one.forward:
            self.compute(last_ranks, 2 / 3 * logits_s)
        for _ in range(self.iteration.layers):
            self.layer(stage, one, weights)
        if self.reduces(one) and not self.iteration.overlap:
            self.exchange(stage, Collective.REDUCE_SCATTER, self.chunk)
        if self.iteration.shares_gradients:
            self.wait_for_gradients()
        if position == self.last and one.forward:
            self.compute(last_ranks, 1 / 3 * logits_s)
        following = position + (1 if one.forward else -1)
        if 0 <= following <= self.last:
            self.hand_over(stage, one, following)

    def layer(self, stage: int, one: Pass, weights: Iterator[list[Arrivals]]) -> None:
        """Add a layer's pass; with full recomputation, its forward pass comes again before."""
        iteration = self.iteration
        if iteration.again_s and not one.forward:
            self.blocks(stage, replace(one, forward=True), iteration.again_s, weights)
            weights = iter(())
        seconds = iteration.forward_s if one.forward else iteration.backward_s
        self.blocks(stage, one, seconds, weights)

    def blocks(
        self, stage: int, one: Pass, seconds: float, weights: Iterator[list[Arrivals]]
    ) -> None:
        """Add attention and feed-forward block, half of the compute each.

        AllGather before and ReduceScatter after each block (arXiv 2205.05198, section 4.2.2);
        experts are the feed-forward block, between two all-to-alls. Attention gathers keys and
        values, and scatters their gradients (arXiv 2407.21783, section 3.3.2). Each waits for its
        weights.
        """
        ranks, iteration = self.stages[stage].ravel(), self.iteration
        sizes = iteration.tensor_bytes, iteration.feed_forward_bytes
        for size, is_feed_forward in zip(sizes, (False, True), strict=True):
            for arrivals in next(weights, []):
                self.steps.extend(*arrivals)
            self.tensor(stage, Collective.ALL_GATHER, size)
            if is_feed_forward:
                self.experts(stage)
            else:
                self.context(stage, Collective.ALL_GATHER)
            self.compute(ranks, seconds / 2)
            if is_feed_forward:
                self.experts(stage)
            elif not one.forward:
                self.context(stage, Collective.REDUCE_SCATTER)
            self.tensor(stage, Collective.REDUCE_SCATTER, size)
            if self.reduces(one) and iteration.overlap:
                part = self.chunk / self.parts
                self.reduced += self.exchange(stage, self.reduction, part, Lane.BESIDE)

    def hand_over(self, stage: int, one: Pass, following: int) -> None:
        """Send every rank's part to the same rank of the stage that computes next."""
        next_stage = following % len(self.stages)
        here, there = self.stages[stage].ravel(), self.stages[next_stage].ravel()
        size = self.size(self.iteration.hop_bytes)
        numbers = self.steps.add(here, there, size, DIMENSIONS.index(Dimension.PIPELINE))
        self.steps.follow(numbers, here)
        if (stage, next_stage) in self.sent:
            self.steps.wait(numbers, self.sent[stage, next_stage])
        self.handed[one.forward, one.microbatch, following] = numbers
        self.sent[stage, next_stage] = numbers

    # Groups of ranks

    def tensor(self, stage: int, collective: Collective, size: float) -> None:
        """Add a collective of every tensor-parallel group of a stage."""
        self.collective(Dimension.TENSOR, self.stages[stage], self.inside[0], size, collective)

    def context(self, stage: int, collective: Collective) -> None:
        """Add a collective of keys and values of every group of ranks that share a sequence."""
        groups, inside = self.sequences[stage], int(self.iteration.strategy.context_inside)
        size = self.iteration.context_bytes
        self.collective(Dimension.CONTEXT, groups, inside, size, collective)

    def experts(self, stage: int) -> None:
        """Add an all-to-all of every group of ranks that share experts."""
        strategy, size = self.iteration.strategy, self.iteration.expert_bytes
        groups, inside = self.groups[stage].reshape(-1, strategy.expert), strategy.expert_inside
        self.collective(Dimension.EXPERT, groups, int(inside), size, Collective.ALL_TO_ALL)

    # Gradients and weights

    def reduces(self, one: Pass) -> bool:
        """Whether gradients are reduced in a pass, or behind it, instead of behind all passes."""
        is_last = one.microbatch == self.iteration.microbatches - 1
        of_pass = self.iteration.shares_gradients or (self.iteration.overlap and is_last)
        return not one.forward and of_pass

    def gathered(self, stage: int, one: Pass) -> Iterator[list[Arrivals]]:
        """Gather a pass's weights, if it is time; yield what each block has to wait for."""
        iteration = self.iteration
        is_first = self.zero and iteration.overlap and one.forward and one.microbatch == 0
        if not (iteration.shares_weights or is_first):
            return iter(())
        part = self.chunk * iteration.weights_part
        if not iteration.overlap:
            self.exchange(stage, Collective.ALL_GATHER, part)
            return iter(())
        beside = stage, Collective.ALL_GATHER, part / self.parts, Lane.BESIDE
        return iter([self.exchange(*beside) for _ in range(self.parts)])

    def optimizer(self) -> None:
        """Sum the gradients that are not yet, step the optimizer, gather the weights."""
        iteration, stages = self.iteration, range(len(self.stages))
        self.wait_for_gradients()
        if not (iteration.overlap or iteration.shares_gradients):
            for stage in stages:
                self.exchange(stage, self.reduction)
        self.compute(self.stages.ravel(), iteration.optimizer_s)
        if self.zero and not (iteration.overlap or iteration.shares_weights):
            for stage in stages:
                self.exchange(stage, Collective.ALL_GATHER, iteration.weights_part)

    def wait_for_gradients(self) -> None:
        """Wait for the gradients that are being summed beside the passes."""
        while self.reduced:
            self.steps.extend(*self.reduced.pop())

    @property
    def reduction(self) -> Collective:
        """The collective that sums the gradients."""
        return Collective.REDUCE_SCATTER if self.zero else Collective.ALL_REDUCE

    def exchange(
        self, stage: int, collective: Collective, part: float = 1.0, lane: Lane = Lane.PASSES
    ) -> list[Arrivals]:
        """Exchange a part of the gradients or weights, also of experts' copies; return arrivals."""
        strategy, sizes = self.iteration.strategy, self.iteration
        copies = self.groups[stage].transpose(2, 3, 0, 1).reshape(-1, strategy.copies)
        kinds: list[tuple[Ints, int, float]] = [
            (self.stages[stage].T, self.inside[1], part * sizes.gradient_bytes),
            (copies, int(strategy.copies_inside), part * sizes.expert_gradient_bytes),
        ]
        return [
            arrivals
            for groups in kinds
            for arrivals in self.collective(Dimension.DATA, *groups, collective, lane)
        ]

    # Steps

    def collective(
        self,
        dimension: Dimension,
        groups: Ints,
        inside: int,
        real_bytes: float,
        collective: Collective,
        lane: Lane = Lane.PASSES,
    ) -> list[Arrivals]:
        """Add a collective of each group, a row of ranks of which `inside` share a domain.

        Each rank begins after its passes so far, and after what it has in the lane, where it goes
        on when all of its transfers have arrived. Return what arrives, if there is any collective.
        """
        count, ranks = groups.shape
        if ranks == 1 or not real_bytes:
            return []
        algorithm = self.all_to_all if collective is Collective.ALL_TO_ALL else "hierarchical"
        shape = ranks // inside, inside
        proved = _proved(SizedCollective(collective, algorithm, shape, self.size(real_bytes)))
        sent, after = proved.transfers, proved.transfers.after
        first = self.steps.count + len(sent) * np.arange(count)
        source, destination = groups[:, sent.source].ravel(), groups[:, sent.destination].ravel()
        sizes, ready = np.tile(sent.size_bytes, count), _numbered(sent.ready, first).ravel()
        numbers = self.steps.add(source, destination, sizes, DIMENSIONS.index(dimension), ready)
        waits = after.row, after.values
        self.steps.wait(*((first[:, np.newaxis] + part).ravel() for part in waits))
        for each in dict.fromkeys((Lane.PASSES, lane)):
            self.steps.follow(numbers, source, np.tile(proved.starts, count), each)
        arrivals = groups.ravel(), _numbered(proved.arriving, first).reshape(groups.size, -1)
        if lane is Lane.PASSES:
            self.steps.extend(*arrivals)
        else:
            self.steps.set_front(*arrivals, lane)
        return [arrivals]

    def compute(self, ranks: Ints, seconds: float) -> None:
        """Add a step of compute at each rank, after all of its earlier steps and arrivals."""
        emulated_ns = max(1, round(seconds * self.time_dilation * 1e9))
        numbers = self.steps.add(ranks, ranks, 0, COMPUTE, compute_ns=emulated_ns)
        self.steps.follow(numbers, ranks)
        self.steps.set_front(ranks, numbers[:, np.newaxis])

    def size(self, real_bytes: float) -> int:
        """Emulated bytes, at least 1."""
        return max(1, ceil(real_bytes / self.size_scale))


def _numbered(numbers: Ints, first: Ints) -> Ints:
    """Return numbers of a schedule's transfers once for each `first`, from which on they count."""
    more = first.reshape(-1, *[1] * numbers.ndim)
    return np.where(numbers == NONE, NONE, numbers + more)


class _Proved(NamedTuple):
    """The transfers of a schedule that is proved.

    `starts` says whether each waits for none of its own sender; `arriving` has a row for each rank,
    padded with `NONE`: the transfers that arrive there.
    """

    transfers: Transfers
    starts: Bools
    arriving: Ints


@lru_cache(maxsize=256)
def _proved(task: SizedCollective) -> _Proved:
    schedule = task.steps()
    sent, after = schedule.transfers, schedule.transfers.after
    own = sent.source[after.row] == sent.source[after.values]
    starts = np.equal(np.bincount(after.row[own], minlength=len(sent)), 0)
    rows = Rows.grouped(np.arange(len(sent)), sent.destination, schedule.gpus)
    arriving = np.full((schedule.gpus, rows.lengths.max()), NONE)
    arriving[rows.row, np.arange(len(rows.values)) - rows.starts[rows.row]] = rows.values
    return _Proved(sent, starts, arriving)
