"""Builder of schedules: numbers the transfers, and puts those of a channel one after the other."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from model.arrays import Bools, Ints
from model.workload.transfers.columns import NONE, Rows, Transfers
from traffic_gen.workloads.algorithms.transfer_columns import TransferColumns

# (sources, destinations) -> the chunks to send, a row for each transfer
Chunks = Callable[[Ints, Ints], Ints]
# The transfers that each rank must have received: a row for each rank, padded with `NONE`.
Arrivals = Ints


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
