"""Workloads of AICB and SimAI, as text: one iteration of a model, layer by layer.

The first line names the parallel strategy, the second one the number of layers. A layer has 12
columns: its name; a dependency; for each of its three passes (forward, input gradient, weight
gradient) the compute in nanoseconds, the collective operation and the operation's bytes; the time
of an update. The order is that of `Workload.cc` in SimAI: all layers forward; then, from the last
one, the input gradient and the weight gradient of each. Only the operation of a weight gradient
lets the next pass begin before its end; such operations of a rank follow each other. Layers of a
`MICRO` benchmark follow each other.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from model.workload.trace import NodeKind, Trace
from model.workload.transfers.collective import Collective
from traffic_gen.traces.formats.nodes import (
    MOST_SECONDS,
    Defaults,
    Malformed,
    Node,
    Nodes,
    require_bytes,
    require_nodes,
    require_ranks,
)

MICRO, ITERATION = "MICRO", "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
STRATEGY = re.compile(r"\s*([A-Z][A-Z_]*)((?:\s+\w+:?\s+-?[0-9]{1,18})*)\s*")
NUMBER = re.compile(r"[0-9]{1,18}")
COLUMNS = 12
OPERATIONS = {
    "ALLREDUCE": Collective.ALL_REDUCE,
    "ALLGATHER": Collective.ALL_GATHER,
    "REDUCESCATTER": Collective.REDUCE_SCATTER,
    "ALLTOALL": Collective.ALL_TO_ALL,
    "BROADCAST": Collective.BROADCAST,
}
# AICB writes a tick for a pass without compute.
NOTHING_NS = 1
Groups = list[tuple[int, ...]]


def is_aicb(text: str) -> bool:
    """Whether a text begins with a strategy, and a number of layers."""
    first, _, rest = text[:65536].partition("\n")
    return STRATEGY.fullmatch(first) is not None and NUMBER.match(rest.lstrip()) is not None


def read_aicb(text: str, defaults: Defaults) -> Trace:
    """Read a workload, which may leave the ranks out; raise `Malformed` for any other text."""
    lines = text.split("\n")
    strategy = _strategy(lines[0], defaults)
    layers = list(_layers(lines, strategy.ranks))
    iteration = _Iteration(Nodes(strategy.ranks), strategy)
    if strategy.is_micro:
        for layer in layers:
            iteration.follow(layer, (0, 1, 2))
    else:
        for layer in layers:
            iteration.follow(layer, (0,))
        for layer in reversed(layers):
            iteration.follow(layer, (1, 2))
    return iteration.nodes.trace("AICB")


@dataclass(frozen=True)
class _Strategy:
    """The parallel strategy: sizes of tensor-parallel and of expert-parallel groups."""

    is_micro: bool
    ranks: int
    tensor: int
    expert: int

    def groups(self, suffix: str, number: int) -> Groups:
        """Return the groups of ranks of an operation of a pass, by the operation's suffix."""
        if self.is_micro:
            return [tuple(range(self.ranks))]
        tensor, expert = self.tensor, self.expert
        wide = tensor * expert
        if suffix == "_EP":
            firsts = (k * wide + t for k in range(self.ranks // wide) for t in range(tensor))
            return [tuple(range(first, first + wide, tensor)) for first in firsts]
        if suffix == "_DP_EP":
            return [tuple(range(first, self.ranks, wide)) for first in range(wide)]
        if number == 2:
            return [tuple(range(first, self.ranks, tensor)) for first in range(tensor)]
        return [tuple(range(first, first + tensor)) for first in range(0, self.ranks, tensor)]


def _strategy(written: str, defaults: Defaults) -> _Strategy:
    """Read the first line."""
    matched = STRATEGY.fullmatch(written)
    if matched is None or matched[1] not in (MICRO, ITERATION):
        what = f"unknown strategy {written.strip()[:60]!r}"
        raise Malformed(1, what, f"known: {MICRO}, {ITERATION}")
    words = matched[2].replace(":", " ").split()
    given = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    ranks = require_ranks(given.get("all_gpus", defaults.ranks), 1)
    tensor, expert = given.get("model_parallel_NPU_group", 1), given.get("ep", 1)
    if given.get("pp", 1) != 1:
        raise Malformed(1, f"pp must be 1, got {given['pp']}")
    if tensor < 1 or expert < 1 or ranks % (tensor * expert):
        what = f"{ranks} ranks must be a multiple of {tensor} (tensor) times {expert} (expert)"
        raise Malformed(1, what)
    return _Strategy(matched[1] == MICRO, ranks, tensor, expert)


@dataclass(frozen=True)
class _Pass:
    """A pass of a layer: its compute, and its operation with the groups' suffix."""

    compute_ns: int
    collective: Collective | None
    suffix: str
    size_bytes: int


Layer = tuple[int, tuple[_Pass, ...]]
"""The line of a layer, and its three passes."""


def _layers(lines: list[str], ranks: int) -> Iterator[Layer]:
    """Yield the layers; raise `Malformed` before the first one if they are too many."""
    count = lines[1].strip() if len(lines) > 1 else ""
    written = sum(1 for row in lines[2:] if row.strip())
    if not NUMBER.fullmatch(count) or int(count) != written:
        raise Malformed(2, f"must be the number of layers, {written}, got {count[:40]!r}")
    require_nodes(6 * written * ranks, 2)
    for number, row in enumerate(lines[2:], start=3):
        words = row.split()
        if not words:
            continue
        if len(words) != COLUMNS:
            raise Malformed(number, f"must have {COLUMNS} columns, got {len(words)}")
        yield number, tuple(_pass(words[at : at + 3], number) for at in (2, 5, 8))


def _pass(words: list[str], number: int) -> _Pass:
    compute, operation, size = words
    for word in (compute, size):
        if not NUMBER.fullmatch(word):
            raise Malformed(number, f"must be a number, got {word[:40]!r}")
    if int(compute) > MOST_SECONDS * 1e9:
        raise Malformed(number, f"must compute at most a day, got {compute} ns")
    name, *suffix = re.split(r"(?=_DP_EP$|_EP$)", operation)
    if name != "NONE" and name not in OPERATIONS:
        known = ", ".join(OPERATIONS)
        raise Malformed(number, f"unknown operation {operation[:40]!r}", f"known: {known}")
    size_bytes = require_bytes(int(size), number)
    return _Pass(int(compute), OPERATIONS.get(name), "".join(suffix), size_bytes)


@dataclass
class _Iteration:
    """An iteration under way: each rank's last node, and its last that delays no other pass."""

    nodes: Nodes
    strategy: _Strategy
    last: dict[int, int] = field(default_factory=dict)
    beside: dict[int, int] = field(default_factory=dict)

    def follow(self, layer: Layer, numbers: tuple[int, ...]) -> None:
        """Add some passes of a layer."""
        place, passes = layer
        for number in numbers:
            self._compute(passes[number].compute_ns, place)
            self._communicate(passes[number], number, place)

    def _compute(self, nanoseconds: int, place: int) -> None:
        if nanoseconds <= NOTHING_NS:
            return
        for rank in range(self.nodes.ranks):
            node = self.nodes.add(Node(NodeKind.COMPUTE, rank, place, seconds=nanoseconds / 1e9))
            self._wait(node, self.last.get(rank))
            self.last[rank] = node

    def _communicate(self, asked: _Pass, number: int, place: int) -> None:
        if asked.collective is None:
            return
        holds_up = self.strategy.is_micro or number != 2
        for group in self.strategy.groups(asked.suffix, number):
            if len(group) > 1:
                nodes = self.nodes.collective(asked.collective, asked.size_bytes, group, place)
                for rank, node in nodes.items():
                    self._wait(node, self.last.get(rank))
                    if not holds_up:
                        self._wait(node, self.beside.get(rank))
                (self.last if holds_up else self.beside).update(nodes)

    def _wait(self, later: int, earlier: int | None) -> None:
        if earlier is not None:
            self.nodes.wait(later, earlier)
