"""Build schedules of collectives: the transfers between ranks, and their dependencies.

Every algorithm generates transfers over the grid of `domains` x `domain_size` GPUs, with rank
`domain * domain_size + rail`. The builder numbers the transfers and serializes those of a GPU on
the same channel: one at a time on its HB link, and one at a time on its NIC.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from model.prediction import closed_forms as closed
from model.workload.schedule import Collective, Schedule, ScheduleError, Transfer, pair_chunk

ELEMENT_BYTES = 8  # `check_data` sends numbers of this size, so chunks are a multiple of it

Chunks = Callable[[int, int], Iterable[int]]  # (source, destination) -> the chunks to send
Arrivals = dict[int, list[int]]  # for every rank, the transfers that it must have received


@dataclass
class Builder:
    """Collects transfers. A channel is a sequence of a GPU's transfers, one at a time."""

    domains: int
    domain_size: int
    chunk_bytes: int
    transfers: list[Transfer] = field(default_factory=list)
    _last: dict[tuple[int, str], int] = field(default_factory=dict)
    _received: dict[tuple[int, str], int] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        """The number of ranks."""
        return self.domains * self.domain_size

    def rank(self, domain: int, rail: int) -> int:
        """Return the rank at (domain, rail); both coordinates wrap around."""
        return (domain % self.domains) * self.domain_size + rail % self.domain_size

    def send(
        self,
        source: int,
        destination: int,
        chunks: Iterable[int],
        *,
        channel: str,
        after: Iterable[int] = (),
        ready: int | None = None,
        reduce: bool = False,
    ) -> int:
        """Add a transfer that waits for its channel's last one and `after`; return its number."""
        chunks = tuple(chunks)
        before = self._last.get((source, channel))
        dependencies = set(after) if before is None else {before, *after}
        transfer = Transfer(
            id=len(self.transfers),
            source=source,
            destination=destination,
            size_bytes=len(chunks) * self.chunk_bytes,
            chunks=chunks,
            after=tuple(sorted(dependencies)),
            ready=ready,
            reduce=reduce,
        )
        self.transfers.append(transfer)
        self._last[source, channel] = transfer.id
        return transfer.id

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

        `chunks` gives the chunks for (source, destination). A transfer waits until its source has
        sent, and both ends have received, in the channel's previous exchange, so flows do not
        compete. Return the transfer that each rank receives.
        """
        arrived = {}
        for source in range(self.gpus):
            domain, rail = divmod(source, self.domain_size)
            destination = self.rank(domain + domains, rail + rails)
            waits = list((after or {}).get(source, ()))
            if (source, channel) in self._received:
                waits.append(self._received[source, channel])
            arrived[destination] = self.send(
                source,
                destination,
                chunks(source, destination),
                channel=channel,
                after=waits,
                ready=self._received.get((destination, channel)),
                reduce=reduce,
            )
        self._received |= {(rank, channel): transfer for rank, transfer in arrived.items()}
        return {rank: [transfer] for rank, transfer in arrived.items()}


@dataclass(frozen=True)
class Algorithm:
    """An algorithm of a collective: the function that builds its transfers, and its closed form.

    The function raises `ScheduleError` for a grid of GPUs that it cannot serve, before it sends.
    """

    build: Callable[[Builder], object]
    closed_form: closed.ClosedForm


def build_schedule(
    collective: Collective, algorithm: str, domains: int, domain_size: int, size_bytes: int
) -> Schedule:
    """Build and verify the schedule of a collective of about `size_bytes` on a grid of GPUs.

    `size_bytes` is as nccl-tests define it, rounded up to whole chunks of whole elements.
    """
    gpus = domains * domain_size
    chunk_bytes = _chunk_bytes(gpus, size_bytes)
    return Schedule(
        collective=collective,
        algorithm=algorithm,
        gpus=gpus,
        size_bytes=chunk_bytes * gpus,
        chunk_bytes=chunk_bytes,
        transfers=build_transfers(collective, algorithm, domains, domain_size, size_bytes),
    )


def build_transfers(
    collective: Collective, algorithm: str, domains: int, domain_size: int, size_bytes: int
) -> tuple[Transfer, ...]:
    """Build the same transfers without verification, which takes half a minute for 256 GPUs.

    Raises `ScheduleError` if the algorithm refuses the grid, or sends nothing.
    """
    builder = Builder(domains, domain_size, _chunk_bytes(domains * domain_size, size_bytes))
    ALGORITHMS[collective, algorithm].build(builder)
    if not builder.transfers:
        raise ScheduleError("no GPU sends anything")
    return tuple(builder.transfers)


def require_accepted(
    collective: Collective, algorithm: str, domains: int, domain_size: int
) -> None:
    """Raise the algorithm's `ScheduleError` if it refuses a grid; cheap for a grid of any size."""
    with suppress(_Begun):
        ALGORITHMS[collective, algorithm].build(_Trial(domains, domain_size, ELEMENT_BYTES))


class _Begun(Exception):
    """An algorithm sends, so it has accepted the grid."""


class _Trial(Builder):
    """A builder that ends at the first transfer."""

    def send(self, *_: object, **__: object) -> int:
        """End the trial."""
        raise _Begun


def _chunk_bytes(gpus: int, size_bytes: int) -> int:
    """Return the chunk size: a rank's buffer is n shards, or one chunk for every destination."""
    return -(-size_bytes // (gpus * ELEMENT_BYTES)) * ELEMENT_BYTES


def ring_reduce_scatter(build: Builder) -> None:
    """One ring over all ranks: in n-1 steps each shard travels round and accumulates its sum."""
    _around(build, _whole_ring(build), "ring", {}, reduce=True)


def ring_all_gather(build: Builder) -> None:
    """One ring over all ranks: in n-1 steps each shard travels round."""
    _around(build, _whole_ring(build), "ring", {}, reduce=False)


def ring_all_reduce(build: Builder) -> None:
    """Ring ReduceScatter, then ring AllGather: 2(n-1)/n of the buffer over every link."""
    ring = _whole_ring(build)
    summed = _around(build, ring, "ring", {}, reduce=True)
    _around(build, ring, "ring", summed, reduce=False)


def hierarchical_reduce_scatter(build: Builder) -> Arrivals:
    """Within HB domains, then along rails: a NIC carries at most 1/`domain_size` of the buffer."""

    def for_rail(_source: int, peer: int) -> tuple[int, ...]:
        return _rail_ranks(build, peer)

    arrived = _within_domains(build, for_rail, {}, reduce=True)
    for rail in range(build.domain_size):
        arrived |= _around(build, _rail_ranks(build, rail), "nic", arrived, reduce=True)
    return arrived


def hierarchical_all_gather(build: Builder, ready: Arrivals | None = None) -> Arrivals:
    """Along every rail, then within every HB domain."""

    def of_rail(source: int, _peer: int) -> tuple[int, ...]:
        return _rail_ranks(build, source)

    arrived: Arrivals = {}
    for rail in range(build.domain_size):
        arrived |= _around(build, _rail_ranks(build, rail), "nic", ready or {}, reduce=False)
    return _within_domains(build, of_rail, arrived)


def hierarchical_all_reduce(build: Builder) -> None:
    """HB domain, rail, HB domain (arXiv 2307.12169, section III-B)."""
    hierarchical_all_gather(build, hierarchical_reduce_scatter(build))


def direct_all_to_all(build: Builder) -> None:
    """Pairwise exchanges of all ranks: over the NICs, and concurrently within the HB domains."""

    def pair(source: int, destination: int) -> tuple[int]:
        return (pair_chunk(build.gpus, source, destination),)

    for domains in range(build.domains):
        for rails in range(build.domain_size):
            if domains or rails:
                build.exchange(domains, rails, pair, channel="nic" if domains else "hb")


def two_step_all_to_all(build: Builder) -> None:
    """Send within the HB domain to the peer on the destination's rail, then along that rail.

    The algorithm of section IV-B of arXiv 2307.12169, which NCCL calls PXN. A GPU starts its
    second step when it has received all data that its domain has for its rail.
    """

    def for_rail(source: int, peer: int) -> list[int]:
        return [pair_chunk(build.gpus, source, to) for to in _rail_ranks(build, peer)]

    def of_domain(source: int, destination: int) -> list[int]:
        return [pair_chunk(build.gpus, of, destination) for of in _domain_ranks(build, source)]

    arrived = _within_domains(build, for_rail, {})
    for domains in range(1, build.domains):
        build.exchange(domains, 0, of_domain, channel="nic", after=arrived)


ALGORITHMS: dict[tuple[Collective, str], Algorithm] = {
    (Collective.ALL_REDUCE, "ring"): Algorithm(ring_all_reduce, closed.Twice(closed.Ring())),
    (Collective.ALL_REDUCE, "hierarchical"): Algorithm(
        hierarchical_all_reduce, closed.Twice(closed.Hierarchical())
    ),
    (Collective.ALL_GATHER, "ring"): Algorithm(ring_all_gather, closed.Ring()),
    (Collective.ALL_GATHER, "hierarchical"): Algorithm(
        hierarchical_all_gather, closed.Hierarchical()
    ),
    (Collective.REDUCE_SCATTER, "ring"): Algorithm(ring_reduce_scatter, closed.Ring()),
    (Collective.REDUCE_SCATTER, "hierarchical"): Algorithm(
        hierarchical_reduce_scatter, closed.Hierarchical()
    ),
    (Collective.ALL_TO_ALL, "direct"): Algorithm(direct_all_to_all, closed.Direct()),
    (Collective.ALL_TO_ALL, "two-step"): Algorithm(two_step_all_to_all, closed.TwoStep()),
}


def algorithms_of(collective: Collective) -> list[str]:
    """Return the names of the algorithms of a collective."""
    return [name for of, name in ALGORITHMS if of is collective]


def _whole_ring(build: Builder) -> tuple[int, ...]:
    """Return the ring of all ranks, in which edges between domains stay on one rail.

    It enters domain d at rail -d, so its last GPU and the first of the next domain share a rail.
    """
    return tuple(
        build.rank(domain, position - domain)
        for domain in range(build.domains)
        for position in range(build.domain_size)
    )


def _around(
    build: Builder, ring: tuple[int, ...], channel: str, ready: Arrivals, *, reduce: bool
) -> Arrivals:
    """Add a ring ReduceScatter (`reduce`) or AllGather, in which a rank's shard is its own chunk.

    It has n-1 steps; in each, position i sends shard i + first_shard - step to position i + 1. In
    the end, each rank has the sum of its shard, or all shards. `ready` has the transfers that each
    rank must have received before it starts. Return those that it must have received to end.
    """
    n, first_shard = len(ring), -1 if reduce else 0
    arrived: Arrivals = {rank: list(ready.get(rank, ())) for rank in ring}
    everything: Arrivals = {rank: list(before) for rank, before in arrived.items()}
    for step in range(n - 1):
        sent: Arrivals = {}
        for position, source in enumerate(ring):
            destination = ring[(position + 1) % n]
            shard = (ring[(position + first_shard - step) % n],)
            transfer = build.send(
                source, destination, shard, channel=channel, after=arrived[source], reduce=reduce
            )
            sent[destination] = [transfer]
            everything[destination].append(transfer)
        arrived = sent
    return arrived if reduce else everything


def _within_domains(
    build: Builder, chunks: Chunks, ready: Arrivals, *, reduce: bool = False
) -> Arrivals:
    """Add pairwise exchanges until every GPU has sent to all others of its domain."""
    arrived: Arrivals = {rank: list(ready.get(rank, ())) for rank in range(build.gpus)}
    for rails in range(1, build.domain_size):
        exchanged = build.exchange(0, rails, chunks, channel="hb", after=ready, reduce=reduce)
        for rank, transfers in exchanged.items():
            arrived[rank] += transfers
    return arrived


def _rail_ranks(build: Builder, rank: int) -> tuple[int, ...]:
    return tuple(range(rank % build.domain_size, build.gpus, build.domain_size))


def _domain_ranks(build: Builder, rank: int) -> tuple[int, ...]:
    first = rank - rank % build.domain_size
    return tuple(range(first, first + build.domain_size))
