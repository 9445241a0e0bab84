"""Builder of schedules: numbers the transfers, and puts those of a channel one after the other."""

from array import array
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from model.arrays import Bools, Ints
from model.fabric.job_grid import JobGrid
from model.workload.transfers.columns import NONE, Rows, Transfers, starts_of
from model.workload.transfers.proof import ScheduleError

# The chunks to send, a row for each transfer, or a function of sources and destinations that
# returns them.
Chunks = Ints | Callable[[Ints, Ints], Ints]
# The transfers that each rank must have received: a row for each rank, padded with `NONE`.
Arrivals = Ints


@dataclass
class Builder:
    """Collects transfers. A channel is a sequence of a GPU's transfers, one at a time.

    Slots that are missing from the grid of all ranks hold none: exchanges leave them out. An
    algorithm that requires the whole grid, or asks for the ranks of a rail, is then refused with
    `ScheduleError`.

    `chunk_bytes` has the size of every chunk; those without bytes are not sent. `slices` is the
    number of parts that a pipelined algorithm cuts each of its chunks into, `phases` that of
    all-to-alls which follow one another, `peers` that of the partners of an exchange at once.
    """

    grid: JobGrid
    chunk_bytes: Ints
    slices: int = 1
    phases: int = 1
    peers: int = 1
    # A million transfers come in thousands of small tables: kept one by one, these lie in many
    # small pages, and the kernel takes longer to hand those out than it takes to fill them.
    _columns: dict[str, "array[int]"] = field(
        default_factory=lambda: defaultdict(lambda: array("q"))
    )
    # For each channel and rank, the last transfer that was sent, and that was received.
    _sent: dict[str, Ints] = field(default_factory=dict)
    _received: dict[str, Ints] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.gpus, self.domains, self.domain_size = self.grid.gpus, *self.grid.shape
        self.ranks, self.rails = np.arange(self.gpus), np.arange(self.domain_size)

    @cached_property
    def _rank_at(self) -> Ints:
        """The rank at each domain and rail, `NONE` at a slot without one."""
        table = np.full(self.grid.shape, NONE)
        table[tuple(self.grid.places)] = self.ranks
        return table

    @property
    def shared_rails(self) -> Ints:
        """A row for each NIC that every domain has: the rail of its holder, by domain."""
        return np.array(self.grid.shared_rails, np.int64).reshape(-1, self.domains)

    @property
    def nic_ranks(self) -> Ints:
        """A row for each NIC that every domain has: the rank with its link, by domain.

        Raises `ScheduleError` if there is none.
        """
        if not len(self.shared_rails):
            raise ScheduleError("no rail has a NIC in every domain")
        return self.rank(np.arange(self.domains), self.shared_rails)

    def require_whole(self) -> None:
        """Raise `ScheduleError` if any rank is missing from the grid."""
        if self.grid.missing:
            raise ScheduleError("it needs equally many GPUs, on the same rails, in each domain")

    @property
    def transfers(self) -> Transfers:
        """All transfers, once the last one was added; a transfer has its place as its number."""
        source = self._column("source")
        return Transfers(
            source=source,
            destination=self._column("destination"),
            size_bytes=self._column("size_bytes"),
            chunks=Rows(self._column("chunks"), starts_of(self._column("chunk_counts"))),
            after=Rows(self._column("after"), starts_of(self._column("after_counts"))),
            ready=self._column("ready"),
            reduce=self._column("reduce").astype(bool),
            compute_ns=np.zeros_like(source),
            lane=np.zeros_like(source),
            processor=np.full_like(source, NONE),
            turn=np.zeros_like(source),
        )

    def _column(self, name: str) -> Ints:
        return np.asarray(self._columns[name])

    def parts(self, ranks: Ints, number: int) -> Ints:
        """Return the chunk with this number of each rank's shard."""
        return ranks * (len(self.chunk_bytes) // self.gpus) + number

    def rank(self, domain: Ints, rail: Ints) -> Ints:
        """Return the ranks at (domain, rail), or `NONE`; both coordinates wrap around."""
        ranks: Ints = self._rank_at[domain % self.domains, rail % self.domain_size]
        return ranks

    def rail_ranks(self, ranks: Ints) -> Ints:
        """Return a row for each rank: all ranks of its rail."""
        self.require_whole()
        return (ranks % self.domain_size)[:, None] + np.arange(0, self.gpus, self.domain_size)

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
        chunks: Chunks,
        *,
        channel: str,
        after: Arrivals | None = None,
        ready: Ints | None = None,
        reduce: bool | Bools = False,
    ) -> Arrivals:
        """Add one transfer for each of the `sources`, with a row of `chunks`; all are at once.

        A row may be padded with `NONE`; a row without any bytes makes no transfer. A transfer waits
        for the last transfer of its source on the channel, for the arrivals at its source in
        `after`, and for its entry of `ready`. Return the transfer that each rank receives.
        """
        chunks, sizes = self._sized(sources, destinations, chunks)
        ready = np.full(len(sizes), NONE) if ready is None else ready
        adds = np.full(len(sizes), reduce)
        sent = sizes.any(axis=1)
        if not sent.all():
            sources, destinations, chunks = sources[sent], destinations[sent], chunks[sent]
            sizes, ready, adds = sizes[sent], ready[sent], adds[sent]
        last = self._sent.setdefault(channel, np.full(self.gpus, NONE))
        received = self._received.setdefault(channel, np.full(self.gpus, NONE))
        waits = [last[sources][:, None]] + ([] if after is None else [after[sources]])
        earlier, carried = _distinct(np.hstack(waits)), Rows.of_table(chunks, sizes > 0)
        numbers = len(self._columns["source"]) + np.arange(len(sources))
        self._add(
            source=sources,
            destination=destinations,
            size_bytes=sizes.sum(axis=1),
            chunks=carried.values,
            chunk_counts=carried.lengths,
            after=earlier.values,
            after_counts=earlier.lengths,
            ready=ready,
            reduce=adds,
        )
        last[sources], received[destinations] = numbers, numbers
        arrived = np.full((self.gpus, 1), NONE)
        arrived[destinations, 0] = numbers
        return arrived

    def _sized(self, sources: Ints, destinations: Ints, chunks: Chunks) -> tuple[Ints, Ints]:
        """Return the chunks, and the bytes of each; `NONE` has none."""
        if not isinstance(chunks, np.ndarray):
            chunks = chunks(sources, destinations)
        return chunks, np.where(chunks == NONE, 0, self.chunk_bytes[chunks])

    def _add(self, **columns: Ints | Bools) -> None:
        for name, values in columns.items():
            self._columns[name].frombytes(values.astype(np.int64, copy=False).tobytes())

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

        Where that GPU is missing, it sends to none. Return the transfer that each rank receives
        (see `meet`).
        """
        domain, rail = self.grid.places
        to = self.rank(domain + domains, rail + rails)
        own = np.flatnonzero(to != NONE)
        return self.meet(own, to[own], chunks, channel=channel, after=after, reduce=reduce)

    def meet(
        self,
        sources: Ints,
        destinations: Ints,
        chunks: Chunks,
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
        received = self._received.get(channel, np.full(self.gpus, NONE)).copy()
        return self.send(
            sources,
            destinations,
            chunks,
            channel=channel,
            after=joined(self.nothing() if after is None else after, received[:, None]),
            ready=received[destinations],
            reduce=reduce,
        )


class LoadBuilder(Builder):
    """A builder of transfers without chunks that wait for nothing: they load links as others do.

    It takes a third of the time.
    """

    def send(self, sources: Ints, destinations: Ints, chunks: Chunks, **_: object) -> Arrivals:
        """Add one transfer for each of the `sources` that sends any bytes; none of them arrives."""
        sizes = self._sized(sources, destinations, chunks)[1].sum(axis=1)
        sent = np.flatnonzero(sizes)
        none = np.zeros_like(sent)
        self._add(
            source=sources[sent],
            destination=destinations[sent],
            size_bytes=sizes[sent],
            chunks=none[:0],
            chunk_counts=none,
            after=none[:0],
            after_counts=none,
            ready=none + NONE,
            reduce=none,
        )
        return np.full((self.gpus, 1), NONE)


def joined(*arrivals: Arrivals) -> Arrivals:
    """Return for each rank the transfers of all these arrivals."""
    return np.hstack(arrivals)


def _distinct(table: Ints) -> Rows:
    """Return the sorted rows of a table without `NONE` and repetitions."""
    ordered = np.sort(table, axis=1)
    kept = ordered != NONE
    kept[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    return Rows.of_table(ordered, kept)


def within_domains(
    build: Builder, chunks: Chunks, ready: Arrivals, *, reduce: bool = False, channel: str = "hb"
) -> Arrivals:
    """Add pairwise exchanges until every GPU has sent to all others of its domain."""
    arrived = [ready]
    for rails in range(1, build.domain_size):
        step = build.exchange(0, rails, chunks, channel=channel, after=ready, reduce=reduce)
        arrived.append(step)
    return joined(*arrived)
