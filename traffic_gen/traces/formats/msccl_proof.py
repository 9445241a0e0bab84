"""Proof that a program of MSCCL or MSCCL++ does what its collective asks: symbolic execution.

A place in a buffer holds a chunk with the contributions of some ranks. The program is executed
once, in an order that its dependencies allow. Any other order has the same result: of two accesses
to a place, one of them a write, the earlier one has ended before the later one begins.

A place in a plan of MSCCL++ is a part of a chunk; a chain of dependencies and messages orders
accesses to it, through whichever GPUs it goes.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, NamedTuple, NoReturn, TypeVar

from model.workload.trace import Trace
from model.workload.transfers.collective import ROOT
from traffic_gen.traces.formats.json_items import Item
from traffic_gen.traces.formats.nodes import Malformed, Nodes

# Each node has a bit for each earlier one: 128 MiB.
MOST_PLAN_NODES = 2**15
# Ranks that a message names.
MOST_NAMED = 8
# msccl-tools' name of a collective that a program defines for itself.
CUSTOM = "custom"
# Without underscores, which some writers have in them.
CUT = ("allgather", "reducescatter", "alltoall", "gather", "scatter")
RESULTS = ("allreduce", *CUT[:3], "broadcast", "reduce", *CUT[3:])
REDUCING = ("allreduce", "reducescatter", "reduce", CUSTOM)
Place = tuple[int, str, int]
"""A GPU, the letter of its buffer (input, output, scratch), and an offset in chunks."""
Value = tuple[int, int]
"""The number of a chunk, and a bit for each rank whose contribution it has."""


class Cells(NamedTuple):
    """Neighbouring places of a buffer of a GPU."""

    gpu: int
    name: str
    begin: int
    size: int

    def named(self, number: int) -> str:
        """Return words for one of the places."""
        return f"{self.begin + number} of buffer {self.name!r} of GPU {self.gpu}"


@dataclass(frozen=True)
class Algorithm:
    """An algorithm, its line, its collective, and the sizes of each GPU's buffers.

    The sizes are in chunks, by the letters of the buffers.
    """

    line: int
    collective: str
    ranks: int
    chunks: int
    in_place: bool
    buffers: dict[int, dict[str, int]] = field(default_factory=dict)

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

    def place(self, gpu: int, name: str, offset: int) -> Place:
        """Return where something really is: in place, input and output share memory."""
        if not self.in_place or self.is_custom or name == "s":
            return gpu, name, offset
        size = self.input_chunks(gpu)
        if self.collective in ("allgather", "gather"):
            return gpu, "o", offset + (gpu * size if name == "i" else 0)
        if self.collective in ("reducescatter", "scatter"):
            return gpu, "i", offset + (gpu * (size // self.ranks) if name == "o" else 0)
        return gpu, "i", offset

    def inputs(self) -> Iterator[tuple[Place, Value]]:
        """Yield the place of each chunk of input, and its value."""
        for rank in self.buffers:
            size = self.input_chunks(rank)
            first = 0 if self.collective in REDUCING else rank * size
            for chunk in range(size):
                yield self.place(rank, "i", chunk), (first + chunk, 1 << rank)

    def wanted(self, rank: int) -> list[Value]:
        """Return the required output of a rank."""
        ranks, everyone, size = self.ranks, (1 << self.ranks) - 1, self.input_chunks(0)
        share = range(rank * (size // ranks), (rank + 1) * (size // ranks))
        match self.collective:
            case "reduce" | "gather" if rank != ROOT:
                return []
            case "allreduce" | "reduce":
                return [(chunk, everyone) for chunk in range(size)]
            case "allgather" | "gather":
                return [(chunk, 1 << chunk // size) for chunk in range(size * ranks)]
            case "reducescatter":
                return [(chunk, everyone) for chunk in share]
            case "alltoall":
                return [(of * size + chunk, 1 << of) for of in range(ranks) for chunk in share]
            case "broadcast":
                return [(chunk, 1) for chunk in range(size)]
            case "scatter":
                return [(chunk, 1) for chunk in share]
            case _:
                return []


def _words(value: Value | None) -> str:
    if value is None:
        return "nothing"
    chunk, ranks = value
    of = [str(rank) for rank in range(ranks.bit_length()) if ranks >> rank & 1]
    more = f" and {len(of) - MOST_NAMED} more" if len(of) > MOST_NAMED else ""
    return f"chunk {chunk} of ranks {', '.join(of[:MOST_NAMED])}{more}"


Access = TypeVar("Access")


class Memory(ABC, Generic[Access]):
    """The values of all places, the last write to each, and the reads since.

    `unit` is the word for a place.
    """

    unit = ""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.values: dict[Place, Value] = dict(algorithm.inputs())
        self.written: dict[Place, Access] = {}
        self.reading: dict[Place, list[Access]] = defaultdict(list)

    @abstractmethod
    def refuse(self, access: Access, what: str, hint: str = "") -> NoReturn:
        """Raise `Malformed` at an access."""

    @abstractmethod
    def require_order(self, earlier: Access, later: Access, cells: Cells, number: int) -> None:
        """Raise `Malformed` unless an access to one of the cells ends before another begins."""

    def places(self, cells: Cells) -> Iterator[Place]:
        """Yield the places of cells."""
        gpu, name, begin, size = cells
        return (self.algorithm.place(gpu, name, begin + n) for n in range(size))

    def read(self, access: Access, cells: Cells) -> list[Value]:
        """Return the values of cells."""
        places = list(self.places(cells))
        for number, place in enumerate(places):
            if place not in self.values:
                custom = self.algorithm.is_custom and self.algorithm.in_place
                hint = "input of a custom collective is in buffer i alone" if custom else ""
                self.refuse(
                    access, f"reads {self.unit}{cells.named(number)} before it is written", hint
                )
            if place in self.written:
                self.require_order(self.written[place], access, cells, number)
            self.reading[place].append(access)
        return [self.values[place] for place in places]

    def write(self, access: Access, cells: Cells, values: list[Value]) -> None:
        """Store values in cells."""
        for number, (place, value) in enumerate(zip(self.places(cells), values, strict=True)):
            earlier = [self.written[place]] if place in self.written else []
            for other in (*earlier, *self.reading.pop(place, [])):
                self.require_order(other, access, cells, number)
            self.values[place], self.written[place] = value, access

    def added(
        self, held: list[Value], more: list[Value], refuse: Callable[[str], NoReturn]
    ) -> list[Value]:
        """Add values; refuse different chunks, and contributions added twice."""
        if self.algorithm.is_custom:
            return held
        for one, other in zip(held, more, strict=True):
            if one[0] != other[0] or one[1] & other[1]:
                refuse(f"adds {_words(other)} to {_words(one)}")
        return [(one[0], one[1] | two[1]) for one, two in zip(held, more, strict=True)]

    def check_result(self) -> None:
        """Raise `Malformed` unless every rank ends with the result of the collective."""
        algorithm = self.algorithm
        for gpu in range(algorithm.ranks):
            for offset, value in enumerate(algorithm.wanted(gpu)):
                at_end = self.values.get(algorithm.place(gpu, "o", offset))
                if at_end != value:
                    ends = f"GPU {gpu} ends with {_words(at_end)} at {offset} of its output"
                    what = f"{algorithm.collective}: {ends}, must be {_words(value)}"
                    raise Malformed(algorithm.line, what)


class PlanAccess(NamedTuple):
    """An access to cells, from the begin of one node to the end of another one.

    A write stores the values of a slot; a read fills one. A message is a write of its send, whose
    end is confirmed; `seen` is the node with which it ends for the GPU that has the cells.
    """

    begin: int
    end: int
    seen: int
    cells: Cells
    slot: int
    is_packet: bool = False


class PlanExecution(Memory[PlanAccess]):
    """What the nodes of a plan do with memory, and in which slots they keep values.

    `items` has the operation of each node, for messages, and `ends` the nodes with which the blocks
    of each GPU end.
    """

    unit = "part "

    def __init__(self, algorithm: Algorithm, nodes: Nodes) -> None:
        super().__init__(algorithm)
        self.nodes = nodes
        self.items: list[Item] = []
        self.reads: dict[int, list[PlanAccess]] = defaultdict(list)
        self.writes: dict[int, list[PlanAccess]] = defaultdict(list)
        # The slots that each node adds up, and the slot of their sum.
        self.sums: dict[int, list[tuple[list[int], int]]] = defaultdict(list)
        self.slots = count()
        self.ends: dict[int, list[int]] = defaultdict(list)
        # A bit for each node that has ended when a node begins.
        self.known: list[int] = []

    def will_read(self, begin: int, end: int, cells: Cells, *, is_packet: bool = False) -> int:
        """Read cells with some nodes; return the slot of their values."""
        slot = next(self.slots)
        self.reads[end].append(PlanAccess(begin, end, end, cells, slot, is_packet))
        return slot

    def will_add(self, node: int, slots: list[int]) -> int:
        """Add up the values of slots at a node; return the slot of the sum."""
        total = next(self.slots)
        self.sums[node].append((slots, total))
        return total

    def join_packets(self) -> None:
        """Let each read of packets wait for the only write of each of its cells."""
        writers: dict[Place, list[int]] = defaultdict(list)
        for one in (one for of_node in self.writes.values() for one in of_node if one.is_packet):
            for place in self.places(one.cells):
                writers[place].append(one.seen)
        for one in (one for of_node in self.reads.values() for one in of_node if one.is_packet):
            written = [writers[place] for place in self.places(one.cells)]
            for ends in written:
                if len(ends) != 1:
                    what = f"reads packets that are written {len(ends)} times, must be once"
                    self.refuse(one, what)
            for end in sorted({ends[0] for ends in written}):
                self.nodes.wait(one.begin, end)

    def prove(self, trace: Trace) -> None:
        """Raise `Malformed` unless all accesses are ordered, and every rank has its result."""
        self.known, sent_by = [0] * len(trace), trace.sent_by.tolist()
        slots: dict[int, list[Value]] = {}
        for node in trace.order:
            sends = [sent_by[node]] if sent_by[node] >= 0 else []
            for earlier in (*trace.after_lists[node], *sends):
                self.known[node] |= self.known[earlier] | 1 << earlier
        for node in trace.order:
            for one in self.reads[node]:
                slots[one.slot] = self.read(one, one.cells)
            for terms, total in self.sums[node]:
                slots[total], refuse = slots[terms[0]], self.items[node].refuse
                for term in terms[1:]:
                    slots[total] = self.added(slots[total], slots[term], refuse)
            for one in self.writes[node]:
                self.write(one, one.cells, slots[one.slot])
        self.check_result()
        if not self.algorithm.is_custom:
            self._require_arrival()

    def _require_arrival(self) -> None:
        """Raise `Malformed` unless the blocks of each GPU wait for all that is written there."""
        for (gpu, name, offset), one in self.written.items():
            ended = any((self.known[end] | 1 << end) >> one.end & 1 for end in self.ends[gpu])
            if name != "s" and not ended:
                where = Cells(gpu, name, offset, 1).named(0)
                self.refuse(one, f"writes part {where}, for which none of its blocks waits")

    def refuse(self, access: PlanAccess, what: str, hint: str = "") -> NoReturn:
        """Raise `Malformed` at the operation of an access."""
        self.items[access.begin].refuse(what, hint)

    def require_order(
        self, earlier: PlanAccess, later: PlanAccess, cells: Cells, number: int
    ) -> None:
        """Raise `Malformed` unless an access has ended before another one begins.

        An operation reads what it replaces.
        """
        items = self.items
        is_before = self.known[later.begin] >> earlier.end & 1
        if not is_before and items[earlier.end] is not items[later.begin]:
            does, did = (
                "writes" if one in self.writes[one.end] else "reads" for one in (later, earlier)
            )
            place = items[earlier.end].place
            what = f"which {place} {did}, and no signal, barrier or semaphore orders the two"
            self.refuse(later, f"data race: {does} part {cells.named(number)}, {what}")
