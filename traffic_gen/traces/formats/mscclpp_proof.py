"""Proof that a plan of MSCCL++ does what its collective asks: symbolic execution.

A cell is a part of a chunk of a buffer, with the contributions of some ranks. Nodes are executed
once, in an order that their dependencies allow. Any other order has the same result: of two
accesses to a cell, one of them a write, the earlier one has ended before the later one begins, by
a chain of dependencies and messages, through whichever GPUs it goes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple, NoReturn

from model.workload.trace import Trace
from traffic_gen.traces.formats.json_items import Item
from traffic_gen.traces.formats.msccl_proof import Algorithm, Location, Value
from traffic_gen.traces.formats.nodes import Nodes

# Each node has a bit for each earlier one: 128 MiB.
MOST_PLAN_NODES = 2**15
Place = tuple[int, Location]
"""A GPU, and a cell of one of its buffers."""


class Cells(NamedTuple):
    """Neighbouring cells of a buffer: of the input, output or scratch memory of a GPU."""

    gpu: int
    name: str
    begin: int
    size: int


class Access(NamedTuple):
    """An access to cells, from the begin of one node to the end of another one.

    A write stores the values of a slot; a read fills one. A message is a write of its send, whose
    end is confirmed; `seen` is the node with which it ends for the GPU that has the cells.
    """

    begin: int
    end: int
    seen: int
    cells: Cells
    slot: int
    is_write: bool
    is_packet: bool


class Execution:
    """What the nodes of a plan do with memory, and in which slots they keep values."""

    def __init__(self, algorithm: Algorithm, nodes: Nodes) -> None:
        self.algorithm, self.nodes = algorithm, nodes
        # The operation of each node, for messages.
        self.items: list[Item] = []
        self.accesses: dict[int, list[Access]] = defaultdict(list)
        # The slots that each node adds up, and the slot of their sum.
        self.sums: dict[int, list[tuple[list[int], int]]] = defaultdict(list)
        self.slots = 0
        # The nodes with which the blocks of each GPU end.
        self.ends: dict[int, list[int]] = defaultdict(list)

    def read(self, begin: int, end: int, cells: Cells, *, is_packet: bool = False) -> int:
        """Read cells; return the slot of their values."""
        slot = self._slot()
        self.accesses[end].append(Access(begin, end, end, cells, slot, False, is_packet))
        return slot

    def write(
        self, begin: int, end: int, seen: int, cells: Cells, slot: int, *, is_packet: bool
    ) -> None:
        """Write the values of a slot."""
        self.accesses[end].append(Access(begin, end, seen, cells, slot, True, is_packet))

    def add(self, node: int, slots: list[int]) -> int:
        """Add up the values of slots at a node; return the slot of the sum."""
        self.sums[node].append((slots, self._slot()))
        return self.sums[node][-1][1]

    def _slot(self) -> int:
        self.slots += 1
        return self.slots

    def join_packets(self) -> None:
        """Let each read of packets wait until all of them have been written."""
        packets = [one for of_node in self.accesses.values() for one in of_node if one.is_packet]
        writers: dict[Place, list[int]] = defaultdict(list)
        for one in packets:
            if one.is_write:
                for place in self.places(one.cells):
                    writers[place].append(one.seen)
        for one in packets:
            if not one.is_write:
                self._wait_for(one, [writers[place] for place in self.places(one.cells)])

    def _wait_for(self, one: Access, written: list[list[int]]) -> None:
        """Let a read wait for the only write of each of its cells."""
        for ends in written:
            if len(ends) != 1:
                what = f"reads packets that are written {len(ends)} times, must be once"
                self.items[one.begin].refuse(what)
        for end in sorted({ends[0] for ends in written}):
            self.nodes.wait(one.begin, end)

    def prove(self, trace: Trace) -> None:
        """Raise `Malformed` unless all accesses are ordered, and every rank has its result."""
        memory = _Memory(self, self._known(trace))
        for node in trace.order:
            accesses = self.accesses.get(node, [])
            for one in accesses:
                if not one.is_write:
                    memory.read(one)
            for slots, total in self.sums.get(node, []):
                memory.add(node, slots, total)
            for one in accesses:
                if one.is_write:
                    memory.write(one)
        self.algorithm.check_result(memory.values)
        if not self.algorithm.is_custom:
            memory.require_arrival()

    def _known(self, trace: Trace) -> list[int]:
        """Return a bit for each node that has ended when a node begins."""
        known, after = [0] * len(trace), trace.after_lists
        sent_by = trace.sent_by.tolist()
        for node in trace.order:
            earlier = [*after[node], *([sent_by[node]] if sent_by[node] >= 0 else [])]
            for other in earlier:
                known[node] |= known[other] | 1 << other
        return known

    def places(self, cells: Cells) -> Iterator[Place]:
        """Yield the places of cells."""
        gpu, name, begin, size = cells
        return (self.algorithm.place(gpu, (name, begin + n)) for n in range(size))


class _Memory:
    """The values of all cells and slots, and the last accesses to each cell."""

    def __init__(self, execution: Execution, known: list[int]) -> None:
        self.execution, self.known = execution, known
        self.values: dict[Place, Value] = dict(execution.algorithm.inputs())
        self.slots: dict[int, list[Value]] = {}
        self.written: dict[Place, Access] = {}
        self.reading: dict[Place, list[Access]] = defaultdict(list)

    def read(self, one: Access) -> None:
        """Fill a slot with the values of cells."""
        places = list(self.execution.places(one.cells))
        for place in places:
            if place not in self.values:
                self._refuse(one, "reads", place, " before it is written")
            self._require_order(one, place, [self.written[place]] if place in self.written else [])
            self.reading[place].append(one)
        self.slots[one.slot] = [self.values[place] for place in places]

    def add(self, node: int, slots: list[int], total: int) -> None:
        """Add up the values of slots."""
        values = self.slots[slots[0]]
        for slot in slots[1:]:
            try:
                values = self.execution.algorithm.summed(values, self.slots[slot])
            except ValueError as error:
                self.execution.items[node].refuse(str(error))
        self.slots[total] = values

    def write(self, one: Access) -> None:
        """Store the values of a slot in cells."""
        places = self.execution.places(one.cells)
        for place, value in zip(places, self.slots[one.slot], strict=True):
            earlier = [self.written[place]] if place in self.written else []
            self._require_order(one, place, [*earlier, *self.reading.pop(place, [])])
            self.values[place], self.written[place] = value, one

    def require_arrival(self) -> None:
        """Raise `Malformed` unless the blocks of each GPU wait for all that is written there."""
        for place, one in self.written.items():
            gpu, (name, _) = place
            ends = self.execution.ends[gpu]
            is_known = any((self.known[end] | 1 << end) >> one.end & 1 for end in ends)
            if name != "s" and not is_known:
                self._refuse(one, "writes", place, ", for which none of its blocks waits")

    def _require_order(self, one: Access, place: Place, earlier: Iterable[Access]) -> None:
        """Raise `Malformed` unless these accesses to a cell have ended before one begins.

        An operation reads what it replaces.
        """
        items = self.execution.items
        for other in earlier:
            is_before = self.known[one.begin] >> other.end & 1
            if not is_before and items[other.end] is not items[one.begin]:
                does, did = ("writes" if access.is_write else "reads" for access in (one, other))
                what = f"which {items[other.end].place} {did}, and no signal, barrier or semaphore"
                self._refuse(one, f"data race: {does}", place, f", {what} orders the two")

    def _refuse(self, one: Access, does: str, place: Place, what: str) -> NoReturn:
        gpu, (name, offset) = place
        where = f"part {offset} of buffer {name!r} of GPU {gpu}"
        self.execution.items[one.begin].refuse(f"{does} {where}{what}")
