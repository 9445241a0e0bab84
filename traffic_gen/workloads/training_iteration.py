"""A training iteration as steps: passes of microbatches through stages, then the gradients.

A rank does its steps in the order of `stage_order`. Collectives within a tensor-parallel or an
expert-parallel group are between two steps of compute; a transfer to another stage goes on while
its sender computes. After the last backward pass the gradients are summed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil, gcd

import numpy as np

from model.arrays import Ints
from model.fabric.spec import FabricKind
from model.training.pipeline import Pass, stage_order
from model.training.reduction import ReducedIteration
from model.training.steps import COMPUTE, DIMENSIONS, IterationSteps
from model.training.traffic import Dimension, RankGrid
from model.workload.collective import Collective
from model.workload.schedule import Schedule
from model.workload.transfers import Transfer, Transfers
from traffic_gen.workloads.collectives import build_schedule

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Emulated:
    """How real seconds and bytes become emulated ones, and the all-to-all of the kind of fabric."""

    time_dilation: float
    size_scale: float
    kind: FabricKind

    def compute_ns(self, seconds: float) -> int:
        """Emulated nanoseconds of a step of compute, at least 1."""
        return max(1, round(seconds * self.time_dilation * 1e9))

    def size(self, real_bytes: float) -> int:
        """Emulated bytes, at least 1."""
        return max(1, ceil(real_bytes / self.size_scale))

    @property
    def all_to_all(self) -> str:
        """In two steps on rail-only, direct on rail-optimized (rail-only paper, section IV-B)."""
        return "two-step" if self.kind is FabricKind.RAIL_ONLY else "direct"


@dataclass(frozen=True)
class Iteration:
    """A reduced iteration on a kind of fabric."""

    name: str
    iteration: ReducedIteration
    kind: FabricKind
    zero: bool

    @property
    def largest_bytes(self) -> float:
        """The most real bytes that one transfer may have."""
        sizes = vars(self.iteration)
        return max(float(sizes[key]) for key in sizes if key.endswith("_bytes"))

    def steps(self, size_scale: float = 1.0, time_dilation: float = 1.0) -> IterationSteps:
        """Build and prove the steps, with bytes and seconds scaled."""
        emulated = Emulated(time_dilation, size_scale, self.kind)
        return build_iteration(self.name, self.iteration, emulated, zero=self.zero)


def build_iteration(
    name: str, iteration: ReducedIteration, emulated: Emulated, *, zero: bool = True
) -> IterationSteps:
    """Build and prove the steps of an iteration.

    With `zero`, gradients are reduced and scattered, and weights gathered after the optimizer's
    step (ZeRO-1); else each rank reduces all gradients and steps for itself.
    """
    build = _Build(iteration, emulated)
    build.passes()
    build.gradients(zero=zero)
    return IterationSteps(
        algorithm=name,
        gpus=iteration.gpus,
        size_bytes=emulated.size(iteration.size_bytes),
        transfers=Transfers.of(build.steps),
        dimensions=np.array(build.dimensions),
        uses=_columns(build.uses),
        reduction=iteration,
    )


def _columns(pairs: Iterable[tuple[int, int]]) -> tuple[Ints, Ints]:
    table = np.array(sorted(set(pairs)), np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


@dataclass
class _Build:
    """Steps so far, and what each rank's next step must wait for: `front`, by rank."""

    iteration: ReducedIteration
    emulated: Emulated
    steps: list[Transfer] = field(default_factory=list)
    dimensions: list[int] = field(default_factory=list)
    uses: list[tuple[int, int]] = field(default_factory=list)
    front: dict[int, Numbers] = field(default_factory=dict)
    # The last transfer of each pair of ranks between stages, which go one after the other.
    sent: dict[tuple[int, int], int] = field(default_factory=dict)
    # Transfers between stages that a pass begins with: by direction, microbatch, position, rank.
    handed: dict[tuple[bool, int, int], dict[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Place the ranks: `stages` has a GPU for each stage, data and tensor rank."""
        strategy = self.iteration.strategy
        self.stages = RankGrid(strategy).stages()
        self.inside = strategy.tensor_inside, strategy.data_inside
        self.front = dict.fromkeys(range(self.iteration.gpus), ())
        self.last = strategy.pipeline * strategy.interleave - 1

    # The passes of all microbatches

    def passes(self) -> None:
        """Add all passes, each when those that it follows are there."""
        strategy, microbatches = self.iteration.strategy, self.iteration.microbatches
        orders = [
            stage_order(stage, strategy.pipeline, microbatches, strategy.interleave)
            for stage in range(strategy.pipeline)
        ]
        done = [0] * len(orders)
        while any(place < len(order) for place, order in zip(done, orders, strict=True)):
            for stage, order in enumerate(orders):
                while done[stage] < len(order) and self.is_ready(stage, order[done[stage]]):
                    self.one_pass(stage, order[done[stage]])
                    done[stage] += 1

    def position(self, stage: int, one: Pass) -> int:
        """The place of a pass's layers in the whole model."""
        return int(one.chunk * self.iteration.strategy.pipeline + stage)

    def is_ready(self, stage: int, one: Pass) -> bool:
        """Whether the pass before this one, at another stage, is there."""
        position = self.position(stage, one)
        is_first = position == (0 if one.forward else self.last)
        return is_first or (one.forward, one.microbatch, position) in self.handed

    def one_pass(self, stage: int, one: Pass) -> None:
        """Add a pass: what it begins with arrives, all layers, the transfer to the next stage."""
        position = self.position(stage, one)
        for rank, number in self.handed.get((one.forward, one.microbatch, position), {}).items():
            self.front[rank] = (*self.front[rank], number)
        if position == self.last and not one.forward:
            self.logits(2 / 3)
        for _ in range(self.iteration.layers):
            self.layer(stage, one)
        if position == self.last and one.forward:
            self.logits(1 / 3)
        following = position + (1 if one.forward else -1)
        if 0 <= following <= self.last:
            self.hand_over(stage, one, following)

    def logits(self, part: float) -> None:
        """Compute the logits at the last stage: a third forward, the rest backward."""
        self.compute(self.stages[-1].ravel(), part * self.iteration.logits_s)

    def layer(self, stage: int, one: Pass) -> None:
        """Add a layer's pass; with full recomputation, its forward pass comes again before."""
        iteration = self.iteration
        if one.forward:
            self.blocks(stage, iteration.forward_s, exchange=True)
            return
        if iteration.again_s:
            self.blocks(stage, iteration.again_s, exchange=False)
        self.blocks(stage, iteration.backward_s, exchange=True)

    def blocks(self, stage: int, seconds: float, *, exchange: bool) -> None:
        """Add attention and feed-forward block, half of the compute each.

        AllGather before and ReduceScatter after each block (arXiv 2205.05198, section 4.2.2);
        experts are the feed-forward block, between two all-to-alls.
        """
        ranks = self.stages[stage].ravel()
        for is_feed_forward in (False, True):
            experts = exchange and is_feed_forward
            self.tensor(stage, Collective.ALL_GATHER)
            if experts:
                self.experts(stage)
            self.compute(ranks, seconds / 2)
            if experts:
                self.experts(stage)
            self.tensor(stage, Collective.REDUCE_SCATTER)

    def hand_over(self, stage: int, one: Pass, following: int) -> None:
        """Send every rank's part to the same rank of the stage that computes next."""
        there = self.stages[following % len(self.stages)].ravel().tolist()
        size, handed = self.emulated.size(self.iteration.hop_bytes), {}
        for source, destination in zip(self.stages[stage].ravel().tolist(), there, strict=True):
            pair = source, destination
            before = (self.sent[pair],) if pair in self.sent else ()
            handed[destination] = self.sent[pair] = self.add(
                Dimension.PIPELINE, *pair, size, (*self.front[source], *before)
            )
            self.uses += [(handed[destination], used) for used in self.front[source]]
        self.handed[one.forward, one.microbatch, following] = handed

    # Groups of ranks

    def tensor(self, stage: int, collective: Collective) -> None:
        """Add a collective of every tensor-parallel group of a stage."""
        for group in self.stages[stage]:
            self.collective(
                Dimension.TENSOR,
                group,
                self.inside[0],
                (collective, "hierarchical"),
                self.iteration.tensor_bytes,
            )

    def experts(self, stage: int) -> None:
        """Add an all-to-all of every group of ranks that share experts."""
        ranks = self.iteration.experts
        for group in self.stages[stage].T.reshape(-1, ranks):
            self.collective(
                Dimension.EXPERT,
                group,
                gcd(self.inside[1], ranks),
                (Collective.ALL_TO_ALL, self.emulated.all_to_all),
                self.iteration.expert_bytes,
            )

    def gradients(self, *, zero: bool) -> None:
        """Sum the gradients over data-parallel ranks, and step the optimizer."""
        ranks = self.stages.ravel()
        if not zero:
            self.sum_up(Collective.ALL_REDUCE)
            self.compute(ranks, self.iteration.optimizer_s)
            return
        self.sum_up(Collective.REDUCE_SCATTER)
        self.compute(ranks, self.iteration.optimizer_s)
        self.sum_up(Collective.ALL_GATHER)

    def sum_up(self, collective: Collective) -> None:
        """Add a collective of all data-parallel groups, and of the copies of each expert."""
        experts, how = self.iteration.experts, (collective, "hierarchical")
        inside = self.inside[1]
        across = max(1, inside // experts)
        for stage in self.stages:
            for group in stage.T:
                size = self.iteration.gradient_bytes
                self.collective(Dimension.DATA, group, inside, how, size)
                copies, size = group.reshape(-1, experts).T, self.iteration.expert_gradient_bytes
                for copy in copies:
                    self.collective(Dimension.DATA, copy, across, how, size)

    def collective(
        self,
        dimension: Dimension,
        group: Ints,
        inside: int,
        how: tuple[Collective, str],
        real_bytes: float,
    ) -> None:
        """Add a collective of a group, of which `inside` ranks share a domain.

        Each rank begins when it is past its steps so far, and goes on when all has arrived.
        """
        if len(group) == 1 or not real_bytes:
            return
        size = self.emulated.size(real_bytes)
        schedule = _proved(*how, len(group) // inside, inside, size)
        first, ranks = len(self.steps), group.tolist()
        arrived: dict[int, list[int]] = {rank: [] for rank in ranks}
        for transfer in schedule.transfers:
            source, destination = ranks[transfer.source], ranks[transfer.destination]
            after = tuple(first + earlier for earlier in transfer.after)
            starts = all(self.steps[earlier].source != source for earlier in after)
            number = self.add(
                dimension,
                source,
                destination,
                transfer.size_bytes,
                (*after, *(self.front[source] if starts else ())),
                None if transfer.ready is None else first + transfer.ready,
            )
            self.uses += [(number, used) for used in self.front[source]]
            arrived[destination].append(number)
        for rank, numbers in arrived.items():
            self.front[rank] = (*self.front[rank], *numbers)

    # Single steps

    def compute(self, ranks: Ints, seconds: float) -> None:
        """Add a step of compute at each rank, after all that it has done and received."""
        for rank in ranks.tolist():
            before = self.front[rank]
            number = self.add(None, rank, rank, 0, before, seconds=seconds)
            self.uses += [(number, used) for used in before]
            self.front[rank] = (number,)

    def add(
        self,
        dimension: Dimension | None,
        source: int,
        destination: int,
        size_bytes: int,
        after: Sequence[int],
        ready: int | None = None,
        seconds: float = 0.0,
    ) -> int:
        """Add a transfer of a dimension, or a step of compute; return its number."""
        number = len(self.steps)
        compute_ns = self.emulated.compute_ns(seconds) if dimension is None else 0
        ends, waits = (source, destination, size_bytes), tuple(set(after))
        self.steps.append(Transfer(number, *ends, (), waits, ready, compute_ns=compute_ns))
        self.dimensions.append(COMPUTE if dimension is None else DIMENSIONS.index(dimension))
        return number


@lru_cache(maxsize=256)
def _proved(
    collective: Collective, algorithm: str, domains: int, domain_size: int, size_bytes: int
) -> Schedule:
    return build_schedule(collective, algorithm, domains, domain_size, size_bytes)
