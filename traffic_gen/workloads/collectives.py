"""Collectives on a grid of GPUs: every algorithm generates its transfers and dependencies.

The grid has `domains` x `domain_size` GPUs, with rank `domain * domain_size + rail`.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from model.arrays import Ints
from model.prediction import closed_forms as closed
from model.workload.collective import ROOT, Collective, pair_chunk
from model.workload.proof import ScheduleError
from model.workload.schedule import Schedule
from model.workload.transfers import Transfers
from traffic_gen.workloads.builder import Arrivals, Builder, Chunks, joined

# Into how many slices a pipelined algorithm cuts each chunk, unless a workload says so.
DEFAULT_SLICES = 4
ELEMENT_BYTES = 8  # `check_data` sends numbers of this size, so chunks are a multiple of it


@dataclass(frozen=True)
class Algorithm:
    """An algorithm of a collective: the function that builds its transfers, and its closed form.

    A `pipelined` one sends its chunks in slices, whose number is a parameter. The function raises
    `ScheduleError` for a grid of GPUs that it cannot serve, before it sends.
    """

    build: Callable[[Builder], object]
    closed_form: closed.ClosedForm
    pipelined: bool = False


def build_schedule(
    collective: Collective,
    algorithm: str,
    domains: int,
    domain_size: int,
    size_bytes: int,
    slices: int | None = None,
) -> Schedule:
    """Build and verify the schedule of a collective of about `size_bytes` on a grid of GPUs.

    `size_bytes` is as nccl-tests define it, rounded up to whole slices of whole elements. A
    pipelined algorithm sends each chunk in `slices`, by default `DEFAULT_SLICES`.
    """
    gpus = domains * domain_size
    slices = slices_of(collective, algorithm, slices)
    chunk_bytes = _chunk_bytes(gpus * slices, size_bytes)
    return Schedule(
        collective=collective,
        algorithm=algorithm,
        gpus=gpus,
        size_bytes=chunk_bytes * gpus * slices,
        chunk_bytes=chunk_bytes,
        transfers=build_transfers(collective, algorithm, domains, domain_size, size_bytes, slices),
        slices=slices,
    )


def build_transfers(
    collective: Collective,
    algorithm: str,
    domains: int,
    domain_size: int,
    size_bytes: int,
    slices: int | None = None,
) -> Transfers:
    """Build the same transfers without verification.

    Raises `ScheduleError` if the algorithm refuses the grid, or sends nothing.
    """
    slices = slices_of(collective, algorithm, slices)
    chunk_bytes = _chunk_bytes(domains * domain_size * slices, size_bytes)
    builder = Builder(domains, domain_size, chunk_bytes, slices)
    ALGORITHMS[collective, algorithm].build(builder)
    transfers = builder.transfers
    if not len(transfers):
        raise ScheduleError("no GPU sends anything")
    return transfers


def slices_of(collective: Collective, algorithm: str, asked: int | None = None) -> int:
    """Return into how many slices an algorithm cuts each chunk, if asked for so many."""
    if not ALGORITHMS[collective, algorithm].pipelined:
        return 1
    return DEFAULT_SLICES if asked is None else asked


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

    def send(self, *_: object, **__: object) -> Arrivals:
        """End the trial."""
        raise _Begun

    def exchange(self, *_: object, **__: object) -> Arrivals:
        """End the trial."""
        raise _Begun


def _chunk_bytes(parts: int, size_bytes: int) -> int:
    """Return the chunk size: a rank's buffer is n shards, or one chunk for every destination."""
    return -(-size_bytes // (parts * ELEMENT_BYTES)) * ELEMENT_BYTES


def ring_reduce_scatter(build: Builder) -> Arrivals:
    """One ring over all ranks: in n-1 steps each shard travels round and accumulates its sum."""
    return _around(build, _whole_ring(build), "ring", build.nothing(), reduce=True)


def ring_all_gather(build: Builder) -> Arrivals:
    """One ring over all ranks: in n-1 steps each shard travels round."""
    return _around(build, _whole_ring(build), "ring", build.nothing(), reduce=False)


def ring_all_reduce(build: Builder) -> None:
    """Ring ReduceScatter, then ring AllGather: 2(n-1)/n of the buffer over every link."""
    summed = ring_reduce_scatter(build)
    _around(build, _whole_ring(build), "ring", summed, reduce=False)


def hierarchical_reduce_scatter(build: Builder) -> Arrivals:
    """Within HB domains, then along rails: a NIC carries at most 1/`domain_size` of the buffer."""

    def for_rail(_sources: Ints, peers: Ints) -> Ints:
        return build.rail_ranks(peers)

    arrived = _within_domains(build, for_rail, build.nothing(), reduce=True)
    return _around(build, _rails(build), "nic", arrived, reduce=True)


def hierarchical_all_gather(build: Builder, ready: Arrivals | None = None) -> Arrivals:
    """Along every rail, then within every HB domain."""

    def of_rail(sources: Ints, _peers: Ints) -> Ints:
        return build.rail_ranks(sources)

    start = build.nothing() if ready is None else ready
    arrived = _around(build, _rails(build), "nic", start, reduce=False)
    return _within_domains(build, of_rail, arrived)


def hierarchical_all_reduce(build: Builder) -> None:
    """HB domain, rail, HB domain (arXiv 2307.12169, section III-B)."""
    hierarchical_all_gather(build, hierarchical_reduce_scatter(build))


def halving_doubling_all_reduce(build: Builder) -> None:
    """Recursive halving, then recursive doubling (Thakur et al., 2005), in 2 log2 n steps.

    Partners differ in one bit of the rank. At first, those within the HB domain exchange half of
    the buffer, a quarter and so on; then those on the same rail go on, with still smaller parts.
    """
    if build.gpus.bit_count() != 1:
        raise ScheduleError(f"needs a power of two of GPUs, got {build.gpus}")
    bits = [1 << place for place in range(build.gpus.bit_length() - 1)]
    arrived = build.nothing()
    for bit in bits:
        arrived = joined(arrived, _swap(build, bit, arrived, reduce=True))
    for bit in reversed(bits):
        arrived = joined(arrived, _swap(build, bit, arrived, reduce=False))


def _swap(build: Builder, bit: int, after: Arrivals, *, reduce: bool) -> Arrivals:
    """Exchange with the ranks that differ in a bit: what they are to keep, or all that is kept.

    A rank keeps the chunks whose numbers are like its own in all bits up to this one.
    """

    def kept(sources: Ints, destinations: Ints) -> Ints:
        ranks = destinations if reduce else sources
        return (ranks % (2 * bit))[:, None] + np.arange(0, build.gpus, 2 * bit)

    channel = "hb" if bit < build.domain_size else "nic"
    return build.permute(build.ranks ^ bit, kept, channel=channel, after=after, reduce=reduce)


def ring_broadcast(build: Builder) -> None:
    """Chunk after chunk from the root along the ring of all ranks, without its last edge."""
    chain = _whole_ring(build)
    _along(build, chain, np.arange(build.gpus)[None, :], "ring", build.nothing())


def hierarchical_broadcast(build: Builder) -> None:
    """From the root to its HB domain, along all rails with a part each, within the HB domains."""

    def of_rail(sources: Ints, _peers: Ints) -> Ints:
        return build.rail_ranks(sources)

    root, arrived = np.array([ROOT]), build.nothing()
    for peer in range(1, build.domain_size):
        to = np.array([peer])
        arrived = joined(arrived, build.send(root, to, build.rail_ranks(to), channel="hb"))
    rails = _rails(build)
    arrived = joined(arrived, _along(build, rails, rails, "nic", arrived))
    _within_domains(build, of_rail, arrived)


def direct_all_to_all(build: Builder) -> None:
    """Pairwise exchanges of all ranks: over the NICs, and concurrently within the HB domains."""

    def pair(sources: Ints, destinations: Ints) -> Ints:
        return pair_chunk(build.gpus, sources, destinations)[:, None]

    for domains in range(build.domains):
        for rails in range(build.domain_size):
            if domains or rails:
                build.exchange(domains, rails, pair, channel="nic" if domains else "hb")


def two_step_all_to_all(build: Builder) -> None:
    """Send within the HB domain to the peer on the destination's rail, then along that rail.

    The algorithm of section IV-B of arXiv 2307.12169, which NCCL calls PXN. A GPU starts its
    second step when it has received all data that its domain has for its rail. Pipelined, this
    holds for each slice of the data: one is on the NICs while the next is on the HB links.
    """
    for number in range(build.slices):
        _two_steps(build, number)


def _two_steps(build: Builder, number: int) -> None:
    """Add both steps for one slice of the data of each pair."""

    def for_rail(sources: Ints, peers: Ints) -> Ints:
        pairs = pair_chunk(build.gpus, sources[:, None], build.rail_ranks(peers))
        return pairs * build.slices + number

    def of_domain(sources: Ints, destinations: Ints) -> Ints:
        pairs = pair_chunk(build.gpus, build.domain_ranks(sources), destinations[:, None])
        return pairs * build.slices + number

    arrived = _within_domains(build, for_rail, build.nothing())
    for domains in range(1, build.domains):
        build.exchange(domains, 0, of_domain, channel="nic", after=arrived)


ALGORITHMS: dict[tuple[Collective, str], Algorithm] = {
    (Collective.ALL_REDUCE, "ring"): Algorithm(ring_all_reduce, closed.Twice(closed.Ring())),
    (Collective.ALL_REDUCE, "hierarchical"): Algorithm(
        hierarchical_all_reduce, closed.Twice(closed.Hierarchical())
    ),
    (Collective.ALL_REDUCE, "halving-doubling"): Algorithm(
        halving_doubling_all_reduce, closed.Twice(closed.HalvingDoubling())
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
    (Collective.ALL_TO_ALL, "two-step-pipelined"): Algorithm(
        two_step_all_to_all, closed.TwoStepPipelined(), pipelined=True
    ),
    (Collective.BROADCAST, "ring"): Algorithm(ring_broadcast, closed.Chain()),
    (Collective.BROADCAST, "hierarchical"): Algorithm(
        hierarchical_broadcast, closed.HierarchicalBroadcast()
    ),
}


def algorithms_of(collective: Collective) -> list[str]:
    """Return the names of the algorithms of a collective."""
    return [name for of, name in ALGORITHMS if of is collective]


def _whole_ring(build: Builder) -> Ints:
    """Return the one ring of all ranks, in which edges between domains stay on one rail.

    It enters domain d at rail -d, so its last GPU and the first of the next domain share a rail.
    """
    domain, position = np.divmod(build.ranks, build.domain_size)
    return build.rank(domain, position - domain)[None, :]


def _rails(build: Builder) -> Ints:
    """Return a ring for each rail."""
    return build.rail_ranks(np.arange(build.domain_size))


def _around(
    build: Builder, rings: Ints, channel: str, ready: Arrivals, *, reduce: bool
) -> Arrivals:
    """Add a ReduceScatter (`reduce`) or AllGather on each ring; a rank's shard is its own chunk.

    `rings` has a row of ranks for each ring. In each of the n-1 steps, position i sends shard
    i + first_shard - step to position i + 1. In the end, each rank has the sum of its shard, or
    all shards. `ready` has the transfers that each rank must have received before it starts.
    Return those that it must have received to end.
    """
    first_shard = -1 if reduce else 0
    sources, destinations = rings.ravel(), np.roll(rings, -1, axis=1).ravel()
    arrived, everything = ready, [ready]
    for step in range(rings.shape[1] - 1):
        shards = np.roll(rings, step - first_shard, axis=1).reshape(-1, 1)
        arrived = build.send(
            sources, destinations, shards, channel=channel, after=arrived, reduce=reduce
        )
        everything.append(arrived)
    return arrived if reduce else joined(*everything)


def _along(build: Builder, chains: Ints, chunks: Ints, channel: str, ready: Arrivals) -> Arrivals:
    """Send chunk after chunk from the first rank of each chain to the last; return all arrivals.

    `chains` has a row of ranks for each chain, `chunks` a row of what it carries. In a step, each
    rank sends the chunk after the one that it sent in the step before.
    """
    last, count = chains.shape[1] - 1, chunks.shape[1]
    arrived, everything = ready, [build.nothing()]
    for step in range(last + count - 1):
        places = np.arange(max(0, step - count + 1), min(last, step + 1))
        arrived = build.send(
            chains[:, places].ravel(),
            chains[:, places + 1].ravel(),
            chunks[:, step - places].reshape(-1, 1),
            channel=channel,
            after=joined(arrived, ready),
        )
        everything.append(arrived)
    return joined(*everything)


def _within_domains(
    build: Builder, chunks: Chunks, ready: Arrivals, *, reduce: bool = False
) -> Arrivals:
    """Add pairwise exchanges until every GPU has sent to all others of its domain."""
    arrived = [ready]
    for rails in range(1, build.domain_size):
        arrived.append(build.exchange(0, rails, chunks, channel="hb", after=ready, reduce=reduce))
    return joined(*arrived)
