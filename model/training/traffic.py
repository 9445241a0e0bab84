"""The traffic of an iteration: bytes between every pair of GPUs, by parallel dimension.

GPU `d K + r` is rank `r` of HB domain `d`. Rings connect neighbours: inside a domain, and along a
rail between domains (hierarchical collectives, rail-only paper, section III).
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from model.arrays import Bools, Floats, Ints, distinct
from model.training import layer
from model.training.job import Job
from model.training.strategy import Strategy


class Dimension(StrEnum):
    """A parallel dimension, whose ranks communicate."""

    TENSOR = "tensor"
    CONTEXT = "context"
    DATA = "data"
    PIPELINE = "pipeline"
    EXPERT = "expert"


@dataclass(frozen=True)
class Flows:
    """Ordered pairs of GPUs, and the bytes that each pair's first GPU sends to its second."""

    source: Ints
    destination: Ints
    bytes: Floats

    @property
    def total(self) -> float:
        """All bytes."""
        return float(self.bytes.sum())


@dataclass(frozen=True)
class Traffic:
    """The flows of an iteration by dimension, on `gpus` GPUs in HB domains of `domain_size`."""

    gpus: int
    domain_size: int
    flows: dict[Dimension, Flows]

    @property
    def pairs(self) -> int:
        """The number of ordered pairs of GPUs."""
        return self.gpus * (self.gpus - 1)

    @cached_property
    def every(self) -> Flows:
        """The flows of all dimensions."""
        return joined(*self.flows.values())

    def pairs_with_traffic(self, *dimensions: Dimension) -> int:
        """The number of ordered pairs with traffic of any of these dimensions."""
        flows = joined(*(self.flows[one] for one in dimensions))
        used = flows.bytes > 0
        return len(distinct(flows.source[used] * self.gpus + flows.destination[used]))

    def hb_bytes(self) -> float:
        """Bytes between GPUs of the same domain."""
        return float(self.every.bytes[~self._crosses_domains].sum())

    def nic_bytes(self) -> float:
        """Bytes between GPUs of different domains."""
        return float(self.every.bytes[self._crosses_domains].sum())

    def cross_rail_bytes(self, gpus_per_nic: int = 1) -> float:
        """Bytes between GPUs of different domains and different rails; a NIC's GPUs share one."""
        flows, size = self.every, self.domain_size
        rails, to = (end % size // gpus_per_nic for end in (flows.source, flows.destination))
        crosses_rails = rails != to
        return float(flows.bytes[self._crosses_domains & crosses_rails].sum())

    @property
    def _crosses_domains(self) -> Bools:
        flows, size = self.every, self.domain_size
        return np.not_equal(flows.source // size, flows.destination // size)

    def matrix(self, block: int = 1, first: int | None = None) -> Floats:
        """Bytes from row to column; `block` GPUs that follow one another share a row.

        With `first`, only the first `first` GPUs count.
        """
        size = -(-(first or self.gpus) // block)
        flows, matrix = self.every, np.zeros((size, size))
        source, destination = flows.source // block, flows.destination // block
        shown = (source < size) & (destination < size)
        np.add.at(matrix, (source[shown], destination[shown]), flows.bytes[shown])
        return matrix


def joined(*parts: Flows) -> Flows:
    """Several flows as one."""
    return Flows(
        np.concatenate([part.source for part in parts]),
        np.concatenate([part.destination for part in parts]),
        np.concatenate([part.bytes for part in parts]),
    )


def traffic(job: Job, strategy: Strategy) -> Traffic:
    """The traffic of an iteration; domains have the GPUs that the strategy fills."""
    grid = RankGrid(strategy)
    microbatches = job.batch / (strategy.replicas * strategy.microbatch)
    flows = {
        Dimension.TENSOR: _tensor(job, strategy, grid, microbatches),
        Dimension.CONTEXT: _context(job, strategy, grid, microbatches),
        Dimension.DATA: _data(job, strategy, grid, microbatches),
        Dimension.PIPELINE: _pipeline(job, strategy, grid, microbatches),
        Dimension.EXPERT: _expert(job, strategy, grid, microbatches),
    }
    return Traffic(job.cluster.gpus, int(strategy.in_domain), flows)


class RankGrid:
    """The GPU of every rank: six coordinates, of each degree the parts inside and across.

    Axes of `gpus`: pipeline, data, tensor across domains; pipeline, data, tensor inside.
    """

    def __init__(self, strategy: Strategy) -> None:
        inside = (strategy.pipeline_inside, strategy.data_inside, strategy.tensor_inside)
        degrees = (strategy.pipeline, strategy.data, strategy.tensor)
        across = (all_ // part for all_, part in zip(degrees, inside, strict=True))
        self._degrees, self._strategy = degrees, strategy
        self.gpus = np.arange(int(np.prod(degrees))).reshape(*across, *inside)

    def stages(self) -> Ints:
        """GPUs by stage, data and tensor rank."""
        return self._turned().transpose(0, 3, 1, 4, 2, 5).reshape(self._degrees)

    def sequences(self) -> Ints:
        """GPUs by stage, sequence, and rank among those that share it, across and inside domains.

        A row for each tensor-parallel rank.
        """
        strategy, stages = self._strategy, self.stages()
        x, copies = int(strategy.context_inside), int(strategy.data_inside)
        y = int(strategy.context) // x
        split = stages.reshape(len(stages), -1, y, copies // x, x, int(strategy.tensor))
        return split.transpose(0, 1, 3, 5, 2, 4).reshape(len(stages), -1, y * x)

    def groups(self) -> Ints:
        """GPUs by stage, place among copies of experts, in and across domains, and expert rank.

        Axes: stage, copies across and inside domains, expert ranks across and inside domains.
        Ranks that share experts are tensor and data-parallel ranks that follow one another.
        """
        strategy = self._strategy
        x, copies = int(strategy.expert_inside), int(strategy.copies_inside)
        shape = (int(strategy.copies) // copies, int(strategy.expert) // x, copies, x)
        ranks = self._turned().transpose(0, 3, 1, 2, 4, 5).reshape(strategy.pipeline, *shape)
        return ranks.transpose(0, 1, 3, 2, 4)

    def _turned(self) -> Ints:
        """The order of stages turns at each domain.

        So a domain's last stage and the next one's first are on one rail.
        """
        gpus = self.gpus.copy()
        gpus[1::2] = np.flip(gpus[1::2], axis=3)
        return gpus


def _collective(gpus: Ints, inside_axis: int, across_axis: int, size: float) -> Flows:
    """A hierarchical AllGather or ReduceScatter of `size` bytes, as rings along two axes."""
    inside, across = gpus.shape[inside_axis], gpus.shape[across_axis]
    volumes = ((inside - 1) / inside * size, (across - 1) / (inside * across) * size)
    rings = [
        Flows(gpus.ravel(), np.roll(gpus, -1, axis).ravel(), np.full(gpus.size, volume))
        for volume, axis in zip(volumes, (inside_axis, across_axis), strict=True)
        if volume
    ]
    return joined(_NOTHING, *rings)


_NOTHING = Flows(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


def _tensor(job: Job, strategy: Strategy, grid: RankGrid, microbatches: float) -> Flows:
    layers = job.transformer.layers / strategy.pipeline
    count = layer.tensor_collectives(job) * layers * microbatches
    size = count * float(layer.activation_bytes(job.transformer, strategy))
    return _collective(grid.gpus, 5, 2, size)


def _context(job: Job, strategy: Strategy, grid: RankGrid, microbatches: float) -> Flows:
    """Keys and values among the data-parallel ranks that share a sequence."""
    layers = job.transformer.layers / strategy.pipeline
    count = (layer.CONTEXT_COLLECTIVES + layer.passes(job) - 2) * layers * microbatches
    inside = int(strategy.context_inside)
    across, (*outer, data) = int(strategy.context) // inside, grid.gpus.shape[:5]
    # Data-parallel ranks across domains, and in a domain, of which each group shares a sequence.
    shape = outer[0], outer[1] // across, across, *outer[2:], data // inside, inside, -1
    split = grid.gpus.reshape(shape)
    return _collective(split, 6, 2, count * float(layer.context_bytes(job.transformer, strategy)))


def _data(job: Job, strategy: Strategy, grid: RankGrid, microbatches: float) -> Flows:
    """Gradients and weights outside experts, and those of an expert's copies."""
    count = layer.exchanges(job, microbatches)
    of_shared, of_experts = (count * size for size in layer.weight_bytes(job.transformer, strategy))
    shared = _collective(grid.gpus, 4, 1, of_shared)
    return joined(shared, _collective(grid.groups(), 2, 1, of_experts))


def _pipeline(job: Job, strategy: Strategy, grid: RankGrid, microbatches: float) -> Flows:
    """Activations to the next stage and gradients back; interleaved, from last to first as well."""
    if strategy.pipeline == 1:
        return _NOTHING
    ranks = grid.stages()
    once = microbatches * float(layer.activation_bytes(job.transformer, strategy)) / strategy.tensor
    visits = np.full(strategy.pipeline, float(strategy.interleave))
    visits[-1] -= 1
    volume = np.broadcast_to((once * visits)[:, None, None], ranks.shape).ravel()
    here, there = ranks.ravel(), np.roll(ranks, -1, axis=0).ravel()
    return joined(Flows(here, there, volume), Flows(there, here, volume))


def _expert(job: Job, strategy: Strategy, grid: RankGrid, microbatches: float) -> Flows:
    """All-to-alls of the expert layers between the ranks that share experts.

    Dispatch and combine in each pass; tokens are spread evenly.
    """
    model, ranks = job.transformer, int(strategy.expert)
    groups = grid.groups().reshape(-1, ranks)
    here, there = np.repeat(groups, ranks), np.tile(groups, ranks).ravel()
    of_layer = layer.PASS_ALL_TO_ALLS * layer.passes(job)
    count = of_layer * model.expert_layers / strategy.pipeline * microbatches
    each = count * float(layer.expert_bytes(job, strategy)) / ranks
    others = here != there
    return Flows(here[others], there[others], np.full(int(others.sum()), each))
