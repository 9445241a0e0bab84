"""Builder of schedules: numbers the transfers, and puts those of a channel one after the other.

A million transfers come in thousands of small tables. Kept one by one, these lie in many small
pages of memory, and the kernel takes longer to hand those out than it takes to fill them: they are
added to columns that grow at their ends.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from model.arrays import Bools, Ints
from model.workload.transfers.columns import NONE, Rows, Transfers

# (sources, destinations) -> the chunks to send, a row for each transfer
Chunks = Callable[[Ints, Ints], Ints]
# The transfers that each rank must have received: a row for each rank, padded with `NONE`.
Arrivals = Ints
Number = TypeVar("Number", bound=np.generic)

# Room of a new column; a full column doubles its room.
FIRST_ROOM = 1024


class Column(Generic[Number]):
    """An array that grows at its end."""

    def __init__(self, number: type[Number]) -> None:
        self._room = np.empty(FIRST_ROOM, number)
        self._count = 0

    @property
    def values(self) -> NDArray[Number]:
        """All values that were added."""
        return self._room[: self._count]

    def extend(self, values: NDArray[Number]) -> None:
        """Add values at the end."""
        end = self._count + len(values)
        if end > len(self._room):
            larger = np.empty(max(end, 2 * len(self._room)), self._room.dtype)
            larger[: self._count] = self.values
            self._room = larger
        self._room[self._count : end] = values
        self._count = end


class RowsColumn:
    """Rows of numbers, to which others are added."""

    def __init__(self) -> None:
        self._values, self._starts = Column(np.int64), Column(np.int64)
        self._starts.extend(np.zeros(1, np.int64))

    @property
    def rows(self) -> Rows:
        """All rows that were added."""
        return Rows(self._values.values, self._starts.values)

    def extend(self, rows: Rows) -> None:
        """Add rows at the end."""
        self._starts.extend(rows.starts[1:] + len(self._values.values))
        self._values.extend(rows.values)


class TransferColumns:
    """The transfers so far; a transfer has its place as its number."""

    def __init__(self) -> None:
        self._source, self._destination = Column(np.int64), Column(np.int64)
        self._size_bytes, self._ready = Column(np.int64), Column(np.int64)
        self._reduce = Column(np.bool_)
        self._chunks, self._after = RowsColumn(), RowsColumn()

    @property
    def count(self) -> int:
        """The number of transfers."""
        return len(self._source.values)

    @property
    def transfers(self) -> Transfers:
        """All transfers that were added."""
        return Transfers(
            source=self._source.values,
            destination=self._destination.values,
            size_bytes=self._size_bytes.values,
            chunks=self._chunks.rows,
            after=self._after.rows,
            ready=self._ready.values,
            reduce=self._reduce.values,
            compute_ns=np.zeros(self.count, np.int64),
        )

    def add(
        self,
        source: Ints,
        destination: Ints,
        size_bytes: Ints,
        chunks: Rows,
        after: Rows,
        ready: Ints,
        reduce: Bools,
    ) -> Ints:
        """Add transfers; return their numbers."""
        numbers = np.arange(self.count, self.count + len(source))
        self._source.extend(source)
        self._destination.extend(destination)
        self._size_bytes.extend(size_bytes)
        self._chunks.extend(chunks)
        self._after.extend(after)
        self._ready.extend(ready)
        self._reduce.extend(reduce)
        return numbers


@dataclass
class Builder:
    """Collects transfers. A channel is a sequence of a GPU's transfers, one at a time.

    `chunk_bytes` has the size of every chunk; those without bytes are not sent. `slices` is the
    number of parts that a pipelined algorithm cuts each of its chunks into, `phases` that of
    all-to-alls which follow one another.
    """

    domains: int
    domain_size: int
    chunk_bytes: Ints
    slices: int = 1
    phases: int = 1
    _columns: TransferColumns = field(default_factory=TransferColumns)
    # For each channel and rank, the last transfer that was sent, and that was received.
    _sent: dict[str, Ints] = field(default_factory=dict)
    _received: dict[str, Ints] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        """The number of ranks."""
        return self.domains * self.domain_size

    @property
    def ranks(self) -> Ints:
        """All ranks."""
        return np.arange(self.gpus)

    @property
    def transfers(self) -> Transfers:
        """All transfers so far."""
        return self._columns.transfers

    @property
    def rails(self) -> Ints:
        """All rails."""
        return np.arange(self.domain_size)

    def rank(self, domain: Ints, rail: Ints) -> Ints:
        """Return the ranks at (domain, rail); both coordinates wrap around."""
        return (domain % self.domains) * self.domain_size + rail % self.domain_size

    def rail_ranks(self, ranks: Ints) -> Ints:
        """Return a row for each rank: all ranks of its rail."""
        return (ranks % self.domain_size)[:, None] + np.arange(0, self.gpus, self.domain_size)

    def domain_ranks(self, ranks: Ints) -> Ints:
        """Return a row for each rank: all ranks of its domain."""
        return (ranks - ranks % self.domain_size)[:, None] + np.arange(self.domain_size)

    def nothing(self) -> Arrivals:
        """Return arrivals without any transfer."""
        return np.empty((self.gpus, 0), np.int64)

    def latest(self) -> Arrivals:
        """Return the last transfer that each rank has received on every channel."""
        return joined(self.nothing(), *(last[:, None].copy() for last in self._received.values()))

    def send(
        self,
        sources: Ints,
        destinations: Ints,
        chunks: Ints,
        *,
        channel: str,
        after: Arrivals | None = None,
        ready: Ints | None = None,
        reduce: bool | Bools = False,
    ) -> Arrivals:
        """Add one transfer for each of the different `sources`, with a row of `chunks`.

        A row may be padded with `NONE`; a row without any bytes makes no transfer. A transfer waits
        for the last transfer of its source on the channel, for the arrivals at its source in
        `after`, and for its entry of `ready`. Return the transfer that each rank receives.
        """
        sizes = np.where(chunks == NONE, 0, self.chunk_bytes[chunks])
        count = len(sizes)
        ready = np.full(count, NONE) if ready is None else ready
        adds = np.full(count, reduce)
        sent = sizes.any(axis=1)
        if not sent.all():
            sources, destinations, chunks = sources[sent], destinations[sent], chunks[sent]
            sizes, ready, adds = sizes[sent], ready[sent], adds[sent]
        last, received = self._last(self._sent, channel), self._last(self._received, channel)
        waits = [last[sources][:, None]] + ([] if after is None else [after[sources]])
        numbers = self._columns.add(
            sources,
            destinations,
            size_bytes=sizes.sum(axis=1),
            chunks=Rows.of_table(chunks, sizes > 0),
            after=_distinct(np.hstack(waits)),
            ready=ready,
            reduce=adds,
        )
        last[sources], received[destinations] = numbers, numbers
        arrived = np.full((self.gpus, 1), NONE)
        arrived[destinations, 0] = numbers
        return arrived

    def exchange(
        self,
        domains: int,
        rails: int,
        chunks: Chunks,
        *,
        channel: str,
        after: Arrivals | None = None,
        reduce: bool = False,
    ) -> Arrivals:
        """Add an exchange: every GPU sends to the GPU that is `domains` and `rails` further.

        Return the transfer that each rank receives (see `permute`).
        """
        domain, rail = np.divmod(self.ranks, self.domain_size)
        return self.permute(
            self.rank(domain + domains, rail + rails),
            chunks,
            channel=channel,
            after=after,
            reduce=reduce,
        )

    def permute(
        self,
        destinations: Ints,
        chunks: Chunks,
        *,
        channel: str,
        after: Arrivals | None = None,
        reduce: bool = False,
    ) -> Arrivals:
        """Add an exchange in which every GPU sends to its own one of these destinations.

        Return the transfer that each rank receives (see `meet`).
        """
        sent = chunks(self.ranks, destinations)
        return self.meet(
            self.ranks, destinations, sent, channel=channel, after=after, reduce=reduce
        )

    def meet(
        self,
        sources: Ints,
        destinations: Ints,
        chunks: Ints,
        *,
        channel: str,
        after: Arrivals | None = None,
        reduce: bool | Bools = False,
    ) -> Arrivals:
        """Add at most one transfer from each GPU and one to each, as `send` does, by rendezvous.

        A transfer waits for the earlier transfers of the channel that its source sends or receives,
        and for those that its destination receives, so flows do not compete. Return the transfer
        that each rank receives.
        """
        received = self._last(self._received, channel).copy()
        return self.send(
            sources,
            destinations,
            chunks,
            channel=channel,
            after=joined(self.nothing() if after is None else after, received[:, None]),
            ready=received[destinations],
            reduce=reduce,
        )

    def _last(self, known: dict[str, Ints], channel: str) -> Ints:
        if channel not in known:
            known[channel] = np.full(self.gpus, NONE)
        return known[channel]


def joined(*arrivals: Arrivals) -> Arrivals:
    """Return for each rank the transfers of all these arrivals."""
    return np.hstack(arrivals)


def _distinct(table: Ints) -> Rows:
    """Return the sorted rows of a table without `NONE` and repetitions."""
    ordered = np.sort(table, axis=1)
    kept = ordered != NONE
    kept[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    return Rows.of_table(ordered, kept)
