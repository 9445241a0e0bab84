"""Nodes of a trace, collected one at a time by a reader of a text format, within bounds."""

from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from model.arrays import Ints
from model.sentences import counted
from model.workload.trace import (
    MOST_STEPS,
    MOST_WAITS,
    Action,
    Contradiction,
    Operation,
    Trace,
    matched,
)
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import NONE, Rows

# A trace of a million nodes takes a gigabyte; a fabric has at most 4096 GPUs.
MOST_NODES, MOST_RANKS = 4_000_000, 65_536
# All sends together fit into a number of 64 bits.
MOST_BYTES, MOST_SECONDS = 2**48, 86_400.0
# Hint for a trace of any size.
GIVE_SIZE = "add `size` to the workload; to `predict TRACE`, --set 'workloads.0.size=64 MB'"


class Malformed(Exception):
    """A violation of a file format: its line or another place in the file, the issue, and a hint.

    Of the files of several ranks, `file` is the number of the wrong one.
    """

    def __init__(self, place: int | str, what: str, hint: str = "", *, file: int = 0) -> None:
        super().__init__(what)
        self.place = f":{place}" if isinstance(place, int) else place
        self.what, self.hint, self.file = what, hint, file


@contextmanager
def of_file(file: int) -> Iterator[None]:
    """Say of a `Malformed` that it is in the file with this number."""
    try:
        yield
    except Malformed as error:
        raise Malformed(error.place, error.what, error.hint, file=file) from None


@dataclass(frozen=True)
class Defaults:
    """Values that a trace may leave out: the number of ranks, the size of a collective in bytes.

    `domain_size` is the number of GPUs in an HB domain, 0 without a fabric.
    """

    ranks: int = 1
    size_bytes: int | None = None
    domain_size: int = 0


NO_DEFAULTS = Defaults()


def require_ranks(count: int, place: int | str) -> int:
    """Return a number of ranks; raise `Malformed` if it is out of bounds."""
    if not 1 <= count <= MOST_RANKS:
        raise Malformed(place, f"must have 1 to {MOST_RANKS} ranks, got {count}")
    return count


def require_nodes(count: int, place: int | str) -> None:
    """Raise `Malformed` for more nodes than fit into memory."""
    if count > MOST_NODES:
        raise Malformed(place, f"must have at most {MOST_NODES} nodes, got {count} or more")


def require_bytes(count: int, place: int | str) -> int:
    """Return a number of bytes; raise `Malformed` if it is out of bounds."""
    if not 0 <= count <= MOST_BYTES:
        raise Malformed(place, f"must be 0 to {MOST_BYTES} bytes, got {count}")
    return count


def fitted(trace: Trace, room: Ints, place: Callable[[int], str]) -> Trace:
    """Return a trace that tells of receives with more room than the bytes of their sends.

    `room` has the bytes of each receive, a negative number if it has none. As in MPI, fewer bytes
    than sent are wrong: raises `Contradiction` with the places of both, or for nodes without order.
    """
    _ = trace.order
    sized = np.flatnonzero(room >= 0)
    sends = trace.sent_by[sized]
    beyond = room[sized] - trace.size_bytes[sends]
    if (beyond < 0).any():
        first = int(np.argmin(beyond >= 0))
        node, send = int(sized[first]), int(sends[first])
        what = f"receives {room[node]} bytes of the {trace.size_bytes[send]} that rank"
        hint = "give both the same size"
        raise Contradiction(node, f"{what} {trace.rank[send]} sends {place(send)}; {hint}")
    if not (larger := int((beyond > 0).sum())):
        return trace
    said = f"room of {counted(larger, 'receive')} for more bytes than are sent"
    return replace(trace, left_out=(*trace.left_out, said))


class Node(NamedTuple):
    """A node, and its line for messages; `room` has the bytes of a receive, if it names them."""

    kind: Action
    rank: int
    line: int
    peer: int = NONE
    size_bytes: int = 0
    tag: int = 0
    seconds: float = 0.0
    operation: int = NONE
    room: int = NONE
    processor: int = NONE


ROW = np.dtype([(name, float if name == "seconds" else np.int64) for name in Node._fields])


@dataclass
class Nodes:
    """Collects nodes, and sentences about what of the file is left out."""

    ranks: int
    added: list[Node] = field(default_factory=list)
    # A trace may have many times more dependencies than nodes.
    later: "array[int]" = field(default_factory=lambda: array("q"))
    earlier: "array[int]" = field(default_factory=lambda: array("q"))
    operations: list[Operation] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    # As `Trace.most_steps` counts them.
    steps: int = 0

    def add(self, node: Node, after: Iterable[int] = ()) -> int:
        """Add a node, which waits for the end of others of its rank; return its number.

        Raises `Malformed` for a node or step too many, for too many bytes, for too long a time.
        """
        number = len(self.added)
        require_nodes(number + 1, node.line)
        if (most := max(node.size_bytes, node.room)) > MOST_BYTES:
            require_bytes(most, node.line)
        if node.seconds > MOST_SECONDS:
            raise Malformed(node.line, f"time must be at most a day, got {node.seconds:.3g} s")
        if node.kind is Action.SEND or node.seconds > 0:
            self._count_steps(1, node.line)
        self.added.append(node)
        for earlier in after:
            self.wait(number, earlier)
        return number

    def message(self, source: int, to: int, line: int, size_bytes: int, tag: int = 0) -> int:
        """Add a send and its receive; return the send's number."""
        send = self.add(Node(Action.SEND, source, line, to, size_bytes, tag))
        self.add(Node(Action.RECEIVE, to, line, source, tag=tag))
        return send

    def wait(self, later: int, earlier: int) -> None:
        """Let a node wait for the end of another node of its rank.

        Raises `Malformed` for a dependency too many.
        """
        if len(self.later) == MOST_WAITS:
            self.require_waits(1, self.added[later].line)
        self.later.append(later)
        self.earlier.append(earlier)

    def require_waits(self, more: int, line: int) -> None:
        """Raise `Malformed` if there is no room for so many more dependencies."""
        if len(self.later) + more > MOST_WAITS:
            what = f"trace must have at most {MOST_WAITS} dependencies"
            raise Malformed(line, what)

    def _count_steps(self, more: int, line: int) -> None:
        self.steps += more
        if self.steps > MOST_STEPS:
            what = f"must have at most {MOST_STEPS} steps, got {self.steps} or more"
            raise Malformed(line, what)

    def collective(
        self, collective: Collective, size_bytes: int, ranks: tuple[int, ...], line: int
    ) -> dict[int, int]:
        """Add a collective operation; return the node of each of its ranks."""
        require_nodes(len(self.added) + len(ranks), line)
        number, operation = len(self.operations), Operation(collective, size_bytes, ranks)
        self._count_steps(operation.most_steps, line)
        self.operations.append(operation)
        return {
            rank: self.add(Node(Action.COLLECTIVE, rank, line, operation=number)) for rank in ranks
        }

    def trace(self, format_: str) -> Trace:
        """Return the trace; raise `Malformed` for nodes that contradict each other."""
        rows = np.array(self.added, ROW)
        columns = {name: np.ascontiguousarray(rows[name]) for name in Node._fields}
        tag, room, _ = (columns.pop(name) for name in ("tag", "room", "line"))
        earlier, later = np.array(self.earlier, np.int64), np.array(self.later, np.int64)
        try:
            trace = Trace(
                format=format_,
                ranks=self.ranks,
                **columns,
                after=Rows.grouped(earlier, later, len(self.added)),
                sent_by=matched(columns["kind"], columns["rank"], columns["peer"], tag),
                operations=tuple(self.operations),
                left_out=tuple(self.left_out),
            )
            return fitted(trace, room, lambda node: f"in line {self.added[node].line}")
        except Contradiction as error:
            raise Malformed(self.added[error.node].line, str(error)) from None
