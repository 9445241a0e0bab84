"""Proof that a plan of MSCCL++ does what its collective asks: its nodes, executed symbolically.

A cell is a part of a chunk of a buffer. Of two accesses to it, one of them a write, the earlier one
has ended before the later one begins by a chain of dependencies and messages, through whichever
GPUs it goes.
"""

from collections import defaultdict
from itertools import count
from typing import NamedTuple, NoReturn

from model.workload.trace import Trace
from traffic_gen.traces.formats.json_items import Item
from traffic_gen.traces.formats.msccl_proof import Algorithm, Cells, Memory, Place, Value
from traffic_gen.traces.formats.nodes import Nodes

# Each node has a bit for each earlier one: 128 MiB.
MOST_PLAN_NODES = 2**15


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
    is_packet: bool = False


class Execution(Memory[Access]):
    """What the nodes of a plan do with memory, and in which slots they keep values.

    `items` has the operation of each node, for messages, and `ends` the nodes with which the blocks
    of each GPU end.
    """

    unit = "part "

    def __init__(self, algorithm: Algorithm, nodes: Nodes) -> None:
        super().__init__(algorithm)
        self.nodes = nodes
        self.items: list[Item] = []
        self.reads: dict[int, list[Access]] = defaultdict(list)
        self.writes: dict[int, list[Access]] = defaultdict(list)
        # The slots that each node adds up, and the slot of their sum.
        self.sums: dict[int, list[tuple[list[int], int]]] = defaultdict(list)
        self.slots = count()
        self.ends: dict[int, list[int]] = defaultdict(list)
        # A bit for each node that has ended when a node begins.
        self.known: list[int] = []

    def will_read(self, begin: int, end: int, cells: Cells, *, is_packet: bool = False) -> int:
        """Read cells with some nodes; return the slot of their values."""
        slot = next(self.slots)
        self.reads[end].append(Access(begin, end, end, cells, slot, is_packet))
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

    def refuse(self, access: Access, what: str, hint: str = "") -> NoReturn:
        """Raise `Malformed` at the operation of an access."""
        self.items[access.begin].refuse(what, hint)

    def require_order(self, earlier: Access, later: Access, cells: Cells, number: int) -> None:
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
