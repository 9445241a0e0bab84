"""Proof that an algorithm in MSCCL's XML does what its collective asks: symbolic execution.

A place in a buffer holds a chunk with the contributions of some ranks. The steps are executed once,
in an order that their dependencies allow. Any other order has the same result: two steps of a GPU
that touch the same place, one of them writing, are ordered by its blocks and their dependencies.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from model.workload.trace import NodeKind, Trace
from model.workload.transfers.collective import ROOT
from traffic_gen.traces.formats.nodes import Malformed, require_nodes

# Limit of steps times blocks of their GPU, which take a gigabyte.
MOST_ENDS = 2**28
# Ranks that a message names.
MOST_NAMED = 8
# msccl-tools' name of a collective that a program defines for itself.
CUSTOM = "custom"
ROOTED = ("broadcast", "reduce", "gather", "scatter")
# Without underscores, which some writers have in them.
RESULTS = ("allreduce", "allgather", "reducescatter", "alltoall", *ROOTED)
CUT = ("allgather", "reducescatter", "alltoall", "gather", "scatter")
REDUCING = ("allreduce", "reducescatter", "reduce", CUSTOM)
Location = tuple[str, int]
"""The letter of a buffer (input, output, scratch), and an offset in chunks."""
Value = tuple[int, int]
"""The number of a chunk, and a bit for each rank whose contribution it has."""


@dataclass(frozen=True)
class Step:
    """A step of a thread block, and its line; `block` and `step` name its dependency."""

    place: int
    type: str
    source: Location
    target: Location
    count: int
    block: int
    step: int


@dataclass(frozen=True)
class Block:
    """A thread block: the ranks that it sends to and receives from, -1 for none, and its steps."""

    send: int
    receive: int
    channel: int
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class Algorithm:
    """An algorithm: its collective, the sizes of each GPU's buffers, and their thread blocks.

    The sizes are in chunks, by the letters of the buffers.
    """

    place_in_file: int
    collective: str
    ranks: int
    chunks: int
    in_place: bool
    buffers: dict[int, dict[str, int]] = field(default_factory=dict)
    blocks: dict[tuple[int, int], Block] = field(default_factory=dict)

    @property
    def is_custom(self) -> bool:
        """Whether no result is known."""
        return self.collective == CUSTOM

    def input_chunks(self, gpu: int) -> int:
        """Return the size of a GPU's input, of which `i_chunks` may count the used part alone."""
        if self.is_custom:
            return self.buffers[gpu]["i"]
        gathers = self.collective in ("allgather", "gather")
        return self.chunks // self.ranks if gathers else self.chunks

    def place(self, gpu: int, location: Location) -> tuple[int, Location]:
        """Return where a location really is: in place, input and output share memory."""
        name, offset = location
        if self.in_place and not self.is_custom and name in ("i", "o"):
            size = self.input_chunks(gpu)
            if self.collective in ("allgather", "gather"):
                return gpu, ("o", offset + (gpu * size if name == "i" else 0))
            if self.collective in ("reducescatter", "scatter"):
                share = size // self.ranks
                return gpu, ("i", offset + (gpu * share if name == "o" else 0))
            return gpu, ("i", offset)
        return gpu, location

    def inputs(self) -> Iterator[tuple[tuple[int, Location], Value]]:
        """Yield the place of each chunk of input, and its value."""
        for rank in self.buffers:
            size = self.input_chunks(rank)
            first = 0 if self.collective in REDUCING else rank * size
            for chunk in range(size):
                yield self.place(rank, ("i", chunk)), (first + chunk, 1 << rank)

    def summed(self, held: list[Value], more: list[Value]) -> list[Value]:
        """Add values; raise `ValueError` for different chunks, or contributions added twice."""
        if self.is_custom:
            return held
        for (chunk, ranks), (other, others) in zip(held, more, strict=True):
            if chunk != other or ranks & others:
                what = f"adds {_words((other, others))} to {_words((chunk, ranks))}"
                raise ValueError(what)
        return [(one[0], one[1] | two[1]) for one, two in zip(held, more, strict=True)]

    def check_result(self, values: Mapping[tuple[int, Location], Value]) -> None:
        """Raise `Malformed` unless every rank ends with the result of the collective."""
        for gpu in range(self.ranks):
            for offset, value in enumerate(_wanted(self, gpu)):
                at_end = values.get(self.place(gpu, ("o", offset)))
                if at_end != value:
                    ends = f"GPU {gpu} ends with {_words(at_end)} at {offset} of its output"
                    what = f"{self.collective}: {ends}, must be {_words(value)}"
                    raise Malformed(self.place_in_file, what)


@dataclass(frozen=True)
class Part:
    """A node of the trace as a part of a step: its sending, its receiving, or all of it.

    The step is the one with number `index` of the block with number `block`.
    """

    gpu: int
    block: int
    index: int
    step: Step
    kind: NodeKind


def prove(algorithm: Algorithm, trace: Trace, parts: Sequence[Part]) -> None:
    """Raise `Malformed` unless every rank ends with the result of the collective.

    A custom collective has no known result: of it, the order of all accesses is proved.
    """
    _require_inputs(algorithm)
    memory = _Memory(algorithm)
    for node in trace.order:
        part = parts[node]
        memory.order.begin(part)
        if part.kind is NodeKind.SEND:
            memory.send(node, part)
        elif part.kind is NodeKind.RECEIVE:
            send = int(trace.sent_by[node])
            memory.receive(node, send, part, parts[send].step)
        else:
            memory.compute(part)
    algorithm.check_result(memory.values)


def _words(value: Value | None) -> str:
    if value is None:
        return "nothing"
    chunk, ranks = value
    of = [str(rank) for rank in range(ranks.bit_length()) if ranks >> rank & 1]
    more = f" and {len(of) - MOST_NAMED} more" if len(of) > MOST_NAMED else ""
    return f"chunk {chunk} of ranks {', '.join(of[:MOST_NAMED])}{more}"


def _require_inputs(algorithm: Algorithm) -> None:
    """Raise `Malformed` for an unknown collective, or inputs that are not those of its chunks."""
    name, chunks, where = algorithm.collective, algorithm.chunks, algorithm.place_in_file
    if name not in (*RESULTS, CUSTOM):
        what = f"unknown collective {name[:40]!r}"
        raise Malformed(where, what, f"known: {', '.join((*RESULTS, CUSTOM))}")
    if name in CUT and chunks % algorithm.ranks:
        what = f"{name}: {chunks} chunks (nchunksperloop) cannot be divided equally among"
        raise Malformed(where, f"{what} {algorithm.ranks} GPUs")
    for rank, buffers in algorithm.buffers.items():
        if buffers["i"] > (most := algorithm.input_chunks(rank)):
            what = f"i_chunks of GPU {rank} must be at most {most}, got {buffers['i']}"
            raise Malformed(where, what, f"{name} has {chunks} chunks (nchunksperloop)")
    require_nodes(sum(map(algorithm.input_chunks, algorithm.buffers)), where)


def _wanted(algorithm: Algorithm, rank: int) -> list[Value]:
    """Return the required output of a rank."""
    ranks, everyone, size = algorithm.ranks, (1 << algorithm.ranks) - 1, algorithm.input_chunks(0)
    share = range(rank * (size // ranks), (rank + 1) * (size // ranks))
    match algorithm.collective:
        case "allreduce":
            return [(chunk, everyone) for chunk in range(size)]
        case "allgather":
            return [(chunk, 1 << chunk // size) for chunk in range(size * ranks)]
        case "reducescatter":
            return [(chunk, everyone) for chunk in share]
        case "alltoall":
            return [(of * size + chunk, 1 << of) for of in range(ranks) for chunk in share]
        case "broadcast":
            return [(chunk, 1) for chunk in range(size)]
        case "reduce" if rank == ROOT:
            return [(chunk, everyone) for chunk in range(size)]
        case "gather" if rank == ROOT:
            return [(chunk, 1 << chunk // size) for chunk in range(size * ranks)]
        case "scatter":
            return [(chunk, 1) for chunk in share]
    return []


class _Order:
    """Which steps of a GPU come before others: by their blocks, and by dependencies between them.

    `known` has, for each step that has begun, the last step of each block of its GPU that has
    ended by then (a vector clock; Mattern, 1989).
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self.columns: dict[int, dict[int, int]] = {}
        for gpu, block in algorithm.blocks:
            of_gpu = self.columns.setdefault(gpu, {})
            of_gpu[block] = len(of_gpu)
        blocks = algorithm.blocks.items()
        ends = sum(len(block.steps) * len(self.columns[gpu]) for (gpu, _), block in blocks)
        if ends > MOST_ENDS:
            what = f"must have at most {MOST_ENDS} steps times blocks of a GPU, got {ends}"
            raise Malformed(algorithm.place_in_file, what)
        self.known: dict[tuple[int, int, int], NDArray[np.int32]] = {}

    def begin(self, part: Part) -> None:
        """Note the steps that have ended when a step begins; both of its parts begin at once."""
        gpu, block, index, step = part.gpu, part.block, part.index, part.step
        if (gpu, block, index) in self.known:
            return
        before = self.known.get((gpu, block, index - 1))
        known = np.full(len(self.columns[gpu]), -1, np.int32) if before is None else before.copy()
        if step.block >= 0:
            np.maximum(known, self.known[gpu, step.block, step.step], out=known)
        known[self.columns[gpu][block]] = index
        self.known[gpu, block, index] = known

    def precedes(self, earlier: Part, later: Part) -> bool:
        """Whether a step precedes a step that has begun on its GPU, or is the same step."""
        known = self.known[later.gpu, later.block, later.index]
        return bool(known[self.columns[later.gpu][earlier.block]] >= earlier.index)


class _Memory:
    """The buffers of all GPUs, and the chunks under way between them."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.order = _Order(algorithm)
        self.values: dict[tuple[int, Location], Value] = dict(algorithm.inputs())
        # The step that has written each place, if there is one, and the steps that have read it
        # since.
        self.written: dict[tuple[int, Location], list[Part]] = {}
        self.reading: dict[tuple[int, Location], list[Part]] = {}
        self.sent: dict[int, list[Value]] = {}
        # For each node, the reduced chunks that it forwards and its step does not store.
        self.passing: dict[int, list[Value]] = {}

    def send(self, node: int, part: Part) -> None:
        """Send the chunks at the step's source, or those that it has just received."""
        step = part.step
        if step.type == "rrs":
            self.sent[node] = self.passing.pop(node)
        else:
            self.sent[node] = self._read(part, step.source if step.type == "s" else step.target)

    def receive(self, node: int, sent_by: int, part: Part, sender: Step) -> None:
        """Take the sender's chunks; with a reduction, add those at the source."""
        step, values = part.step, self.sent.pop(sent_by)
        if len(values) != step.count:
            sent = f"{len(values)} chunks, as many as line {sender.place} sends"
            what = f"must receive {sent}, got {step.count}"
            raise Malformed(step.place, what)
        if step.type in ("rrs", "rrc", "rrcs"):
            values = self._added(part, self._read(part, step.source), values)
        if step.type == "rrs":
            self.passing[node + 1] = values
        else:
            self._write(part, values)

    def compute(self, part: Part) -> None:
        """Copy or add within a GPU."""
        step = part.step
        if step.type == "cpy":
            self._write(part, self._read(part, step.source))
        elif step.type == "re":
            target, source = self._read(part, step.target), self._read(part, step.source)
            self._write(part, self._added(part, target, source))

    def _read(self, part: Part, location: Location) -> list[Value]:
        name, offset = location
        read = []
        for chunk in range(part.step.count):
            place = self.algorithm.place(part.gpu, (name, offset + chunk))
            value = self.values.get(place)
            if value is None:
                buffer = f"buffer {name!r} of GPU {part.gpu}"
                what = f"reads {offset + chunk} of {buffer} before it is written"
                custom = self.algorithm.is_custom and self.algorithm.in_place
                hint = "input of a custom collective is in buffer i alone" if custom else ""
                raise Malformed(part.step.place, what, hint)
            self._require_order(part, self.written.get(place, []), (name, offset + chunk))
            self.reading.setdefault(place, []).append(part)
            read.append(value)
        return read

    def _write(self, part: Part, values: list[Value]) -> None:
        name, offset = part.step.target
        size = self.algorithm.buffers[part.gpu][name]
        if not 0 <= offset <= size - len(values):
            what = f"writes outside the {size} chunks of the buffer {name!r} of GPU {part.gpu}"
            raise Malformed(part.step.place, what, f"{name}_chunks is their number")
        for chunk, value in enumerate(values):
            place = self.algorithm.place(part.gpu, (name, offset + chunk))
            earlier = self.written.get(place, []) + self.reading.pop(place, [])
            self._require_order(part, earlier, (name, offset + chunk))
            self.values[place], self.written[place] = value, [part]

    def _require_order(self, part: Part, earlier: Sequence[Part], location: Location) -> None:
        """Raise `Malformed` unless these steps, which touch the same place, must precede a step."""
        for other in earlier:
            if not self.order.precedes(other, part):
                name, offset = location
                where = f"{offset} of buffer {name!r} of GPU {part.gpu}"
                what = f"unordered access to {where}, with line {other.step.place}"
                hint = f"make it wait for step {other.index} of block {other.block}"
                raise Malformed(part.step.place, what, hint)

    def _added(self, part: Part, held: list[Value], more: list[Value]) -> list[Value]:
        try:
            return self.algorithm.summed(held, more)
        except ValueError as error:
            raise Malformed(part.step.place, str(error)) from None
