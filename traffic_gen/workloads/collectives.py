"""Collectives on a grid of GPUs: every algorithm generates its transfers and dependencies.

The grid has `domains` x `domain_size` GPUs, with rank `domain * domain_size + rail`.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from model.arrays import Ints
from model.prediction import closed_forms as closed
from model.workload.collective import Collective, pair_chunk
from model.workload.proof import ScheduleError
from model.workload.schedule import Schedule
from model.workload.transfers import Transfers
from traffic_gen.workloads.builder import Arrivals, Builder, Chunks, joined

ELEMENT_BYTES = 8  # `check_data` sends numbers of this size, so chunks are a multiple of it


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
) -> Transfers:
    """Build the same transfers without verification.

    Raises `ScheduleError` if the algorithm refuses the grid, or sends nothing.
    """
    builder = Builder(domains, domain_size, _chunk_bytes(domains * domain_size, size_bytes))
    ALGORITHMS[collective, algorithm].build(builder)
    transfers = builder.transfers
    if not len(transfers):
        raise ScheduleError("no GPU sends anything")
    return transfers


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


def _chunk_bytes(gpus: int, size_bytes: int) -> int:
    """Return the chunk size: a rank's buffer is n shards, or one chunk for every destination."""
    return -(-size_bytes // (gpus * ELEMENT_BYTES)) * ELEMENT_BYTES


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
    second step when it has received all data that its domain has for its rail.
    """

    def for_rail(sources: Ints, peers: Ints) -> Ints:
        return pair_chunk(build.gpus, sources[:, None], build.rail_ranks(peers))

    def of_domain(sources: Ints, destinations: Ints) -> Ints:
        return pair_chunk(build.gpus, build.domain_ranks(sources), destinations[:, None])

    arrived = _within_domains(build, for_rail, build.nothing())
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


def _within_domains(
    build: Builder, chunks: Chunks, ready: Arrivals, *, reduce: bool = False
) -> Arrivals:
    """Add pairwise exchanges until every GPU has sent to all others of its domain."""
    arrived = [ready]
    for rails in range(1, build.domain_size):
        arrived.append(build.exchange(0, rails, chunks, channel="hb", after=ready, reduce=reduce))
    return joined(*arrived)
