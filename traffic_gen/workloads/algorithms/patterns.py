"""Patterns that algorithms are made of: rings, chains, and exchanges within HB domains."""

import numpy as np

from model.arrays import Ints
from traffic_gen.workloads.algorithms.builder import Arrivals, Builder, Chunks, joined


def whole_ring(build: Builder) -> Ints:
    """Return the one ring of all ranks, in which edges between domains stay on one rail.

    A domain's last GPU and the first of the next domain share a rail. This is impossible for an
    odd number of domains of two GPUs, whose ring crosses rails from the last domain to the first.
    """
    domain, position = np.divmod(build.ranks, build.domain_size)
    entries = _entries(build)
    exits = np.roll(entries, -1)
    exits = np.where(exits == entries, entries - 1, exits)
    skipped = ((exits - entries) % build.domain_size)[domain]
    is_last = position == build.domain_size - 1
    rails = np.where(is_last, skipped, position + (position >= skipped))
    return build.rank(domain, entries[domain] + rails)[None, :]


def _entries(build: Builder) -> Ints:
    """Return the rail at which the ring enters each domain, which is never that of the next one.

    It is -d for domain d, unless the last domain would have that of the first.
    """
    entries = -np.arange(build.domains) % build.domain_size
    if build.domains > 1 and build.domain_size > 2 and entries[-1] == 0:
        entries[-1] = 2  # the domain before has 1
    return entries


def all_rails(build: Builder) -> Ints:
    """Return a ring for each rail."""
    return build.rail_ranks(np.arange(build.domain_size))


def around(build: Builder, rings: Ints, channel: str, ready: Arrivals, *, reduce: bool) -> Arrivals:
    """Add a ReduceScatter (`reduce`) or AllGather on each ring; a rank's shard is its own chunk.

    `rings` has a row of ranks for each ring. In each of the n-1 steps, position i sends shard i +
    first_shard - step to position i + 1. In the end, each rank has the sum of its shard, or all
    shards. `ready` has the transfers that each rank must have received before it starts. Return the
    transfers whose arrival ends each rank's part.
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


def along(build: Builder, chains: Ints, chunks: Ints, channel: str, ready: Arrivals) -> Arrivals:
    """Send chunk after chunk from the first rank of each chain to the last; return all arrivals.

    `chains` has a row of ranks for each chain, `chunks` a row of its chunks. In a step, each rank
    sends the chunk after the one that it sent in the step before.
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


def within_domains(
    build: Builder,
    chunks: Chunks,
    ready: Arrivals,
    *,
    reduce: bool = False,
    channel: str = "hb",
) -> Arrivals:
    """Add pairwise exchanges until every GPU has sent to all others of its domain."""
    arrived = [ready]
    for rails in range(1, build.domain_size):
        step = build.exchange(0, rails, chunks, channel=channel, after=ready, reduce=reduce)
        arrived.append(step)
    return joined(*arrived)
