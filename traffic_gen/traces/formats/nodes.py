"""Nodes of a trace, collected one at a time by a reader of a text format, within bounds."""

from dataclasses import dataclass, field

import numpy as np

from model.workload.trace import Contradiction, NodeKind, Operation, Trace, matched
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import NONE, Rows

# A trace of a million nodes takes a gigabyte; a fabric has at most 4096 GPUs.
MOST_NODES, MOST_RANKS = 4_000_000, 65_536
# All sends together fit into a number of 64 bits.
MOST_BYTES, MOST_SECONDS = 2**48, 86_400.0


class Malformed(Exception):
    """A violation of a file format: its place in the file, the issue, and a hint.

    Of the files of several ranks, `file` is the number of the wrong one.
    """

    def __init__(self, place: str, what: str, hint: str = "", *, file: int = 0) -> None:
        super().__init__(what)
        self.place, self.what, self.hint, self.file = place, what, hint, file


@dataclass(frozen=True)
class Defaults:
    """Values that a trace may leave out: the number of ranks, the size of a collective in bytes."""

    ranks: int = 1
    size_bytes: int | None = None


NO_DEFAULTS = Defaults()


def line(number: int) -> str:
    """A place in a text file."""
    return f":{number}"


def require_ranks(count: int, place: str) -> int:
    """Return a number of ranks; raise `Malformed` if it is out of bounds."""
    if not 1 <= count <= MOST_RANKS:
        raise Malformed(place, f"must have 1 to {MOST_RANKS} ranks, got {count}")
    return count


def require_nodes(count: int, place: str, *, file: int = 0) -> None:
    """Raise `Malformed` for more nodes than fit into memory."""
    if count > MOST_NODES:
        raise Malformed(
            place, f"must have at most {MOST_NODES} nodes, got {count} or more", file=file
        )


def require_bytes(count: int, place: str) -> int:
    """Return a number of bytes; raise `Malformed` if it is out of bounds."""
    if not 0 <= count <= MOST_BYTES:
        raise Malformed(place, f"must be 0 to {MOST_BYTES} bytes, got {count}")
    return count


@dataclass
class Nodes:
    """Collects nodes. Each has a place in its file, for messages."""

    ranks: int
    kind: list[int] = field(default_factory=list)
    rank: list[int] = field(default_factory=list)
    peer: list[int] = field(default_factory=list)
    tag: list[int] = field(default_factory=list)
    size_bytes: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    operation: list[int] = field(default_factory=list)
    place: list[int] = field(default_factory=list)
    later: list[int] = field(default_factory=list)
    earlier: list[int] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)

    def add(
        self,
        kind: NodeKind,
        rank: int,
        place: int,
        *,
        peer: int = NONE,
        size_bytes: int = 0,
        tag: int = 0,
        seconds: float = 0.0,
        operation: int = NONE,
    ) -> int:
        """Add a node; return its number."""
        if len(self.kind) >= MOST_NODES:
            require_nodes(MOST_NODES + 1, line(place))
        self.kind.append(kind)
        self.rank.append(rank)
        self.peer.append(peer)
        self.tag.append(tag)
        self.size_bytes.append(size_bytes)
        self.seconds.append(seconds)
        self.operation.append(operation)
        self.place.append(place)
        return len(self.kind) - 1

    def wait(self, later: int, earlier: int) -> None:
        """Let a node wait for the end of another node of its rank."""
        self.later.append(later)
        self.earlier.append(earlier)

    def collective(
        self, collective: Collective, size_bytes: int, ranks: tuple[int, ...], place: int
    ) -> dict[int, int]:
        """Add a collective operation; return the node of each of its ranks."""
        require_nodes(len(self.kind) + len(ranks), line(place))
        self.operations.append(Operation(collective, size_bytes, ranks))
        number = len(self.operations) - 1
        return {
            rank: self.add(NodeKind.COLLECTIVE, rank, place, operation=number) for rank in ranks
        }

    def trace(self, format_: str) -> Trace:
        """Return the trace; raise `Malformed` for nodes that contradict each other."""
        kind, rank, peer = (np.array(part, np.int64) for part in (self.kind, self.rank, self.peer))
        try:
            trace = Trace(
                format=format_,
                ranks=self.ranks,
                kind=kind,
                rank=rank,
                peer=peer,
                size_bytes=np.array(self.size_bytes, np.int64),
                seconds=np.array(self.seconds, np.float64),
                after=self._after(),
                sent_by=matched(kind, rank, peer, np.array(self.tag, np.int64)),
                operation=np.array(self.operation, np.int64),
                operations=tuple(self.operations),
            )
            _ = trace.order
        except Contradiction as error:
            raise Malformed(line(self.place[error.node]), str(error)) from None
        return trace

    def _after(self) -> Rows:
        earlier, later = np.array(self.earlier, np.int64), np.array(self.later, np.int64)
        return Rows.grouped(earlier, later, len(self.kind))
