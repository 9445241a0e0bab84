"""The order of an iteration of AICB or SimAI, as nodes of a trace.

The order is that of `Workload.cc` in SimAI: all layers forward; then, from the last one, the input
gradient and the weight gradient of each. Only the operation of a weight gradient lets the next pass
begin before its end; such operations of a rank follow each other. Where a layer initiates a
checkpoint, the layers from the last checkpoint to it go forward again first. Layers of a `MICRO`
benchmark follow each other.

With pipeline stages, each stage has the file's layers: AICB writes those of one stage, microbatch
after microbatch. SimAI adds the time of the stages' messages without an order. Here the order is
1F1B, interleaved as in Megatron-LM (Narayanan et al., 2021) where microbatches are a multiple of
stages.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from model.sentences import counted
from model.training.steps import Pass, stage_order
from model.workload.trace import Action
from model.workload.transfers.collective import Collective
from traffic_gen.traces.formats.nodes import Node, Nodes, require_nodes

# AICB's name of the first layer of each microbatch.
FIRST_LAYER = "embedding_layer"
# AICB writes a tick for a pass without compute.
NOTHING_NS = 1
FORWARD, BACKWARD = (0,), (1, 2)
WEIGHT_GRADIENT = 2
Groups = list[tuple[int, ...]]


@dataclass(frozen=True)
class LayerPass:
    """A pass of a layer: its compute, and its operation with the groups' suffix."""

    compute_ns: int
    collective: Collective | None
    suffix: str
    size_bytes: int


@dataclass(frozen=True)
class Layer:
    """A layer: its line, its name, and its three passes."""

    place: int
    name: str
    passes: tuple[LayerPass, ...]

    @property
    def most_nodes(self) -> int:
        """How often a rank computes or communicates in it, at most."""
        computes = sum(one.compute_ns > NOTHING_NS for one in self.passes)
        return computes + sum(bool(one.collective and one.size_bytes) for one in self.passes)


Layers = Sequence[Layer]


@dataclass(frozen=True)
class Strategy:
    """The parallel strategy: sizes of groups, and how stages share an iteration.

    Ranks are numbered by tensor rank, then data rank, then stage. A stage has `chunks` parts of the
    model (AICB: as many as layers), and sends `stage_bytes` behind each.
    """

    is_micro: bool
    ranks: int
    tensor: int
    expert: int
    stages: int
    microbatches: int
    chunks: int
    stage_bytes: int
    checkpoints: frozenset[int]
    initiates: frozenset[int]
    is_inference: bool

    def ranks_of(self, stage: int) -> range:
        """Return the ranks of a stage."""
        count = self.ranks // self.stages
        return range(stage * count, (stage + 1) * count)

    @property
    def is_interleaved(self) -> bool:
        """Whether a stage takes its parts of the model in turn."""
        return self.microbatches % self.stages == 0

    def groups(self, suffix: str, number: int, stage: int) -> tuple[str, Groups]:
        """Return the groups of ranks of an operation of a pass, by its suffix, and their kind."""
        if self.is_micro:
            return "all ranks", [tuple(range(self.ranks))]
        ranks = np.array(self.ranks_of(stage))
        by_expert = ranks.reshape(-1, self.expert, self.tensor)
        by_tensor = ranks.reshape(-1, self.tensor)
        if suffix == "_EP":
            kind, rows = "expert", by_expert.transpose(0, 2, 1).reshape(-1, self.expert)
        elif suffix == "_DP_EP":
            kind, rows = "expert-data", by_expert.reshape(len(by_expert), -1).T
        elif number == WEIGHT_GRADIENT:
            kind, rows = "data", by_tensor.T
        else:
            kind, rows = "tensor", by_tensor
        return f"{kind}-parallel groups", [tuple(row) for row in rows.tolist()]


@dataclass
class Iteration:
    """An iteration under way: each rank's last node, and its last that delays no other pass."""

    nodes: Nodes
    strategy: Strategy
    last: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    beside: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    # The last message of each rank to each other one: they go one after the other.
    sent: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    silent: Counter[tuple[str, str]] = field(default_factory=Counter)

    def emit_all(self, layers: Layers) -> None:
        """Add all nodes; say which operations send nothing."""
        if self.strategy.is_micro:
            self._passes(layers, (*FORWARD, *BACKWARD), 0)
        elif self.strategy.stages == 1:
            self._one_stage(layers)
        else:
            self._pipeline(layers)
        self.nodes.left_out += [counted(count, *what) for what, count in self.silent.items()]

    def _one_stage(self, layers: Layers) -> None:
        """Go through all layers forward and backward; between checkpoints, forward again."""
        self._passes(layers, FORWARD, 0)
        for number, layer in reversed(list(enumerate(layers))):
            if number in self.strategy.initiates:
                begin = max((c for c in self.strategy.checkpoints if c <= number), default=number)
                self._passes(layers[begin:number], FORWARD, 0)
            self._passes([layer], BACKWARD, 0)

    def _pipeline(self, layers: Layers) -> None:
        """Go through the microbatches of all stages; through the layers around them once."""
        strategy = self.strategy
        chunks = strategy.chunks if strategy.is_interleaved else 1
        require_nodes(4 * strategy.microbatches * chunks * strategy.ranks, 1)
        before, blocks, behind = self._microbatches(layers)
        parts = [_parts(block, chunks) for block in blocks]
        for stage in range(strategy.stages):
            self._passes(before, FORWARD, stage)
            for one in stage_order(stage, strategy.stages, len(blocks), chunks):
                self._stage_pass(parts[one.microbatch][one.chunk], one, stage, chunks)
            self._passes(behind, FORWARD, stage)
            self._passes(behind[::-1], BACKWARD, stage)
            self._passes(before[::-1], BACKWARD, stage)

    def _microbatches(self, layers: Layers) -> tuple[Layers, list[Layers], Layers]:
        """Return the layers before the microbatches, those of each, and those behind.

        Each microbatch begins with AICB's first layer, or else with the first name that occurs as
        often as there are microbatches. Without such a name, each has all layers.
        """
        count = self.strategy.microbatches
        names = [layer.name for layer in layers]
        often = [name for name, times in Counter(names).items() if times == count]
        first = FIRST_LAYER if FIRST_LAYER in often or count == 1 else next(iter(often), "")
        starts = [place for place, name in enumerate(names) if name == first]
        if count == 1:
            starts = starts[:1] or [0]
        if not starts:
            each = sum(layer.most_nodes for layer in layers)
            require_nodes(each * count * self.strategy.ranks, 1)
            what = f"division of the layers among {count} microbatches (ga), which no name shows"
            self.nodes.left_out.append(f"{what}: each has all {len(layers)}")
            return [], [layers] * count, []
        size = starts[1] - starts[0] if count > 1 else len(layers) - starts[0]
        ends = [*starts[1:], starts[-1] + size]
        blocks = [layers[begin:end] for begin, end in zip(starts, ends, strict=True)]
        return layers[: starts[0]], blocks, layers[ends[-1] :]

    def _stage_pass(self, part: Layers, one: Pass, stage: int, chunks: int) -> None:
        """Add a pass of a microbatch: its message arrives, its layers, its message leaves."""
        stages = self.strategy.stages
        place, step = one.chunk * stages + stage, 1 if one.forward else -1
        sends = one.forward or not self.strategy.is_inference
        if sends and 0 <= place - step < stages * chunks:
            self._message(Action.RECEIVE, stage, -step, replace(one, chunk=place), part)
        layers, numbers = (part, FORWARD) if one.forward else (part[::-1], BACKWARD)
        self._passes(layers, numbers, stage)
        if sends and 0 <= place + step < stages * chunks:
            self._message(Action.SEND, stage, step, replace(one, chunk=place + step), part)

    def _message(self, kind: Action, stage: int, step: int, to: Pass, part: Layers) -> None:
        """Add a send or a receive of each rank of a stage, for a pass at a place of the model."""
        strategy, place = self.strategy, part[0].place if part else 1
        size = strategy.stage_bytes * (1 if strategy.is_interleaved else strategy.chunks)
        tag = 2 * (to.chunk * strategy.microbatches + to.microbatch) + to.forward
        peers = strategy.ranks_of((stage + step) % strategy.stages)
        for rank, peer in zip(strategy.ranks_of(stage), peers, strict=True):
            after = self.last[rank]
            if kind is Action.SEND:
                node = Node(kind, rank, place, peer, size, tag)
                self.sent[rank, peer] = [self.nodes.add(node, after + self.sent[rank, peer])]
            else:
                self.last[rank] = [self.nodes.add(Node(kind, rank, place, peer, tag=tag), after)]

    def _passes(self, layers: Layers, numbers: tuple[int, ...], stage: int) -> None:
        """Add some passes of each layer, on all ranks of a stage."""
        for layer in layers:
            for number in numbers:
                one = layer.passes[number]
                if one.compute_ns > NOTHING_NS:
                    for rank in self.strategy.ranks_of(stage):
                        seconds = one.compute_ns / 1e9
                        node = Node(Action.COMPUTE, rank, layer.place, seconds=seconds)
                        self.last[rank] = [self.nodes.add(node, self.last[rank])]
                if one.collective is not None:
                    self._communicate(one, one.collective, number, layer.place, stage)

    def _communicate(
        self, asked: LayerPass, collective: Collective, number: int, place: int, stage: int
    ) -> None:
        kind, groups = self.strategy.groups(asked.suffix, number, stage)
        if not asked.size_bytes or len(groups[0]) == 1:
            why = "of no bytes" if not asked.size_bytes else f"of {kind} of one rank"
            self.silent[f"{collective.value} operation", why] += len(groups)
            return
        holds_up = self.strategy.is_micro or number != WEIGHT_GRADIENT
        for group in groups:
            nodes = self.nodes.collective(collective, asked.size_bytes, group, place)
            for rank, node in nodes.items():
                for earlier in self.last[rank] + ([] if holds_up else self.beside[rank]):
                    self.nodes.wait(node, earlier)
                (self.last if holds_up else self.beside)[rank] = [node]


def _parts(layers: Layers, count: int) -> list[Layers]:
    """Return the layers in so many parts, as equal as possible."""
    edges = [number * len(layers) // count for number in range(count + 1)]
    return [layers[begin:end] for begin, end in pairwise(edges)]
