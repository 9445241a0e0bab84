"""Algorithms that sum up and hand out: AllReduce, ReduceScatter, AllGather, and those with a root.

In Broadcast, Reduce, Gather and Scatter, one rank, the root, has a part. Reduce is Broadcast
backwards, and Gather is Scatter backwards.
"""

from functools import partial

import numpy as np

from model.arrays import Ints
from model.workload.double_tree import rounds
from model.workload.transfers.collective import ROOT
from model.workload.transfers.columns import NONE
from model.workload.transfers.proof import ScheduleError
from traffic_gen.workloads.algorithms.builder import Arrivals, Builder, joined, within_domains

AT_ROOT = np.array([ROOT])


def ring_reduce_scatter(build: Builder) -> Arrivals:
    """One ring over all ranks: in n-1 steps each shard travels round and accumulates its sum."""
    return around(build, whole_ring(build), "ring", build.nothing(), reduce=True)


def ring_all_gather(build: Builder) -> Arrivals:
    """One ring over all ranks: in n-1 steps each shard travels round."""
    return around(build, whole_ring(build), "ring", build.nothing(), reduce=False)


def ring_all_reduce(build: Builder) -> None:
    """Ring ReduceScatter, then ring AllGather: 2(n-1)/n of the buffer over every link."""
    around(build, whole_ring(build), "ring", ring_reduce_scatter(build), reduce=False)


def rings_reduce_scatter(build: Builder) -> list[Arrivals]:
    """A ring for each rail over all ranks, with a part of each shard; return each one's arrivals.

    The rails are those on which every domain has a NIC. NCCL has a ring for each NIC.
    """
    return _on_all_rings(build, reduce=True)


def rings_all_gather(build: Builder) -> None:
    """`rail_rings`, with a part of each shard."""
    _on_all_rings(build, reduce=False)


def rings_all_reduce(build: Builder) -> None:
    """ReduceScatter, then AllGather on each ring: a NIC carries 2(n-1)/(nx) of the buffer."""
    _on_all_rings(build, rings_reduce_scatter(build), reduce=False)


def _on_all_rings(
    build: Builder, ready: list[Arrivals] | None = None, *, reduce: bool
) -> list[Arrivals]:
    """Go around all rings at once, each on its own channel; return each one's last arrivals."""
    rings = rail_rings(build)
    arrived = ready or [build.nothing()] * len(rings)
    for step in range(build.gpus - 1):
        arrived = [
            step_around(build, ring[None, :], step, f"ring{rail}", earlier, rail, reduce)
            for rail, (ring, earlier) in enumerate(zip(rings, arrived, strict=True))
        ]
    return arrived


def hierarchical_reduce_scatter(build: Builder) -> None:
    """Reduce in HB domains, then on rails: a NIC carries at most 1/`domain_size` of the buffer.

    Pipelined, this holds for each slice: one is on the rails while the next is within domains.
    """
    for number, arrived in enumerate(_reduced_in_domains(build)):
        _around_rails(build, arrived, number, reduce=True)


def hierarchical_all_gather(build: Builder) -> None:
    """Gather along every rail, then within every HB domain, slice by slice."""
    for number in range(build.slices):
        arrived = _around_rails(build, build.nothing(), number, reduce=False)
        _gather_in_domains(build, arrived, number)


def hierarchical_all_reduce(build: Builder) -> None:
    """Reduce in HB domains and along rails, then gather back (arXiv 2307.12169, section III-B).

    Slice by slice, but HB links have reduced all slices before they gather the first one: they
    never wait for a rail that is as fast.
    """
    for number, arrived in enumerate(_reduced_in_domains(build)):
        summed = _around_rails(build, arrived, number, reduce=True)
        _gather_in_domains(build, _around_rails(build, summed, number, reduce=False), number)


def _reduced_in_domains(build: Builder) -> list[Arrivals]:
    """Sum up each slice within every HB domain, for the rails of its GPUs; return all arrivals."""
    build.require_whole()

    def for_peers(number: int, _own: Ints, peers: Ints) -> Ints:
        return build.parts(build.rail_ranks(peers), number)

    return [
        within_domains(build, partial(for_peers, number), build.nothing(), reduce=True)
        for number in range(build.slices)
    ]


def _around_rails(build: Builder, ready: Arrivals, number: int, *, reduce: bool) -> Arrivals:
    rails = build.rail_ranks(build.rails)
    return around(build, rails, "nic", ready, reduce=reduce, number=number)


def _gather_in_domains(build: Builder, ready: Arrivals, number: int) -> None:
    within_domains(build, lambda own, _to: build.parts(build.rail_ranks(own), number), ready)


def halving_doubling_all_reduce(build: Builder) -> None:
    """Recursive halving, then recursive doubling (Thakur et al., 2005), in 2 log2 n steps.

    Partners differ in one bit of the rank. At first, those within the HB domain exchange half of
    the buffer, a quarter and so on; then those on the same rail go on, with still smaller parts.
    """
    build.require_whole()
    if build.gpus.bit_count() != 1:
        raise ScheduleError(f"number of GPUs must be a power of two, got {build.gpus}")
    bits = [1 << place for place in range(build.gpus.bit_length() - 1)]
    arrived = build.nothing()
    for bit in bits:
        arrived = joined(arrived, _swap(build, bit, arrived, reduce=True))
    for bit in reversed(bits):
        arrived = joined(arrived, _swap(build, bit, arrived, reduce=False))


def _swap(build: Builder, bit: int, after: Arrivals, *, reduce: bool) -> Arrivals:
    """Exchange chunks between ranks that differ in a bit.

    A rank keeps the chunks whose numbers are like its own in all bits up to this one. With
    `reduce`, it receives those; else it sends all that it keeps.
    """

    def kept(sources: Ints, destinations: Ints) -> Ints:
        ranks = destinations if reduce else sources
        return (ranks % (2 * bit))[:, None] + np.arange(0, build.gpus, 2 * bit)

    channel, ranks = "hb" if bit < build.domain_size else "nic", build.ranks
    return build.meet(ranks, ranks ^ bit, kept, channel=channel, after=after, reduce=reduce)


def double_tree_all_reduce(build: Builder) -> None:
    """Reduce in HB domains, sum up along each rail by two trees over the domains, and gather back.

    The chunk of a rail is cut into slices, which the trees take in turn. The rails are those on
    which every domain has a NIC.
    """
    chunk, holders = np.full(build.gpus, NONE), build.nic_ranks
    chunk[holders] = np.arange(len(holders))[:, None]
    arrived = within_domains(
        build, lambda _own, peers: _slices(build, chunk[peers]), build.nothing(), reduce=True
    )
    arrived = _along_trees(build, holders, arrived)
    within_domains(build, lambda own, _peers: _slices(build, chunk[own]), arrived)


def _slices(build: Builder, chunks: Ints) -> Ints:
    """Return a row for each of these chunks: all of its slices; `NONE` for no chunk."""
    first = chunks[:, None]
    return np.where(first == NONE, NONE, first * build.slices + np.arange(build.slices))


def _along_trees(build: Builder, holders: Ints, ready: Arrivals) -> Arrivals:
    """Add the rounds of the double tree, on all rails at the same time; return all arrivals."""
    everything, new = [ready], ready.copy()
    first_slices, by_domain = np.arange(len(holders)) * build.slices, holders.T
    for moves in rounds(build.domains, build.slices):
        down, slices, sources, destinations = np.array(moves).T
        arrived = build.meet(
            by_domain[sources].ravel(),
            by_domain[destinations].ravel(),
            (first_slices + slices[:, None]).reshape(-1, 1),
            channel="nic",
            after=new,
            reduce=np.repeat(down == 0, len(holders)),
        )
        # Arrivals before a send also precede the next send of the same rank.
        new[holders[:, sources]] = NONE
        everything.append(arrived)
        new = joined(new, arrived)
    return joined(*everything)


def ring_broadcast(build: Builder) -> None:
    """Send chunk after chunk from the root along the ring of all ranks, without its last edge."""
    chain = whole_ring(build)
    along(build, chain, build.ranks[None, :], "ring", build.nothing())


def ring_reduce(build: Builder) -> None:
    """Sum up chunk after chunk along the ring of all ranks, as NCCL does, but towards the root.

    The ring goes backwards here, over the edges of `ring_broadcast`.
    """
    chain = whole_ring(build)[:, ::-1]
    along(build, chain, build.ranks[None, :], "ring", build.nothing(), reduce=True)


def hierarchical_broadcast(build: Builder) -> None:
    """Send from the root to its HB domain, a part along each rail, and within all HB domains."""
    arrived = _handed_out(build)
    rails = build.rail_ranks(build.rails)
    _gather_in_domains(build, joined(arrived, along(build, rails, rails, "nic", arrived)), 0)


def hierarchical_reduce(build: Builder) -> None:
    """Sum up within all HB domains, along each rail to the root's domain, and send to the root."""
    arrived = _reduced_in_domains(build)[0]
    rails = build.rail_ranks(build.rails)
    summed = along(build, rails[:, ::-1], rails, "nic", arrived, reduce=True)
    _handed_in(build, joined(arrived, summed))


def direct_scatter(build: Builder) -> None:
    """The root sends all ranks their shards at once, as a group of NCCL's sends."""
    others = build.ranks[1:]
    build.send(np.full_like(others, ROOT), others, others[:, None], channel="root")


def direct_gather(build: Builder) -> None:
    """All ranks send their shards to the root at once."""
    others = build.ranks[1:]
    build.send(others, np.full_like(others, ROOT), others[:, None], channel="root")


def hierarchical_scatter(build: Builder) -> None:
    """Send the shards of each rail to its GPU in the root's domain, and from there along it."""
    arrived = _handed_out(build)
    for domain in range(1, build.domains):
        to = build.rank(np.array([domain]), build.rails)
        build.send(build.rails, to, to[:, None], channel="nic", after=arrived)


def hierarchical_gather(build: Builder) -> None:
    """Send all shards along the rails to the root's domain, and from there to the root."""
    build.require_whole()
    arrived = build.nothing()
    for domain in range(1, build.domains):
        of = build.rank(np.array([domain]), build.rails)
        arrived = joined(arrived, build.meet(of, build.rails, of[:, None], channel="nic"))
    _handed_in(build, arrived)


def _handed_out(build: Builder) -> Arrivals:
    """Send each GPU of the root's domain the chunks of its rail; return the arrivals."""
    arrived = build.nothing()
    for peer in build.rails[1:, None]:
        chunks = build.rail_ranks(peer)
        arrived = joined(arrived, build.send(AT_ROOT, peer, chunks, channel="hb"))
    return arrived


def _handed_in(build: Builder, arrived: Arrivals) -> None:
    """Each GPU of the root's domain sends the root the chunks of its rail, one at a time."""
    for peer in build.rails[1:, None]:
        build.meet(peer, AT_ROOT, build.rail_ranks(peer), channel="hb", after=arrived)


def whole_ring(build: Builder) -> Ints:
    """Return the one ring of all ranks, from rank 0 on; edges between domains stay on one rail.

    A domain's last GPU and the first of the next domain share a rail. This is impossible for an
    odd number of domains with two rails in common, whose ring crosses rails from the last domain
    to the first; for domains of several GPUs with one rail in common, which their ring enters on
    another; and for domains that have no rail in common: their ring has the order of the ranks.
    """
    if not len(build.shared_rails):
        return build.ranks[None, :]
    ring = _rings(build, 1)
    from_root: Ints = np.roll(ring, -int(ring[0].argmin()), axis=1)
    return from_root


def rail_rings(build: Builder) -> Ints:
    """Return a ring of all ranks for each rail on which all domains have a NIC: each on the next.

    Every NIC on these rails sends for one ring and receives for one, as for a channel of NCCL. A
    ring enters a domain on the rail on which it left the one before, as NCCL's alternating rings do
    (since version 2.20).
    """
    return _rings(build, len(build.nic_ranks))


def _rings(build: Builder, count: int) -> Ints:
    """Return the first rings: through each domain from its entry rail on, to its exit rail last.

    The entry rail of domain d is -d, unless the last domain would have that of the first: a ring
    never enters two domains in turn on the same one.
    """
    shared, number = build.shared_rails, np.arange(count)[:, None]
    entries = -np.arange(build.domains) % len(shared)
    if build.domains > 1 and len(shared) > 2 and entries[-1] == 0:
        entries[-1] = 2  # the domain before has 1
    exits = np.roll(entries, -1)
    exits = np.where(exits == entries, entries - 1, exits)
    domains, position = np.arange(build.domains), build.rails
    first, last = (shared[(places + number) % len(shared), domains] for places in (entries, exits))
    skipped = ((last - first) % build.domain_size)[:, :, None]
    is_last = position == build.domain_size - 1
    rails = np.where(is_last, skipped, position + (position >= skipped))
    rings = build.rank(domains[:, None], first[:, :, None] + rails)
    there: Ints = rings[rings != NONE].reshape(count, build.gpus)
    return there


def around(
    build: Builder, rings: Ints, channel: str, ready: Arrivals, *, reduce: bool, number: int = 0
) -> Arrivals:
    """Add a ReduceScatter (`reduce`) or AllGather on each ring, of one chunk of each rank's shard.

    `rings` has a row of ranks for each ring, which share no rank. In the end, each rank has the
    sum of its chunk, or all ranks' chunks. `ready` has the transfers that each rank must have
    received before it starts. Return the transfers whose arrival ends each rank's part.
    """
    arrived, everything = ready, [ready]
    for step in range(rings.shape[1] - 1):
        arrived = step_around(build, rings, step, channel, arrived, number, reduce)
        everything.append(arrived)
    return arrived if reduce else joined(*everything)


def step_around(
    build: Builder, rings: Ints, step: int, channel: str, after: Arrivals, number: int, reduce: bool
) -> Arrivals:
    """Add one of the n-1 steps of `around`: position i sends shard i - step - `reduce` on."""
    shards = np.roll(rings, step + reduce, axis=1).ravel()
    return build.send(
        rings.ravel(),
        np.roll(rings, -1, axis=1).ravel(),
        build.parts(shards, number)[:, None],
        channel=channel,
        after=after,
        reduce=reduce,
    )


def along(
    build: Builder,
    chains: Ints,
    chunks: Ints,
    channel: str,
    ready: Arrivals,
    *,
    reduce: bool = False,
) -> Arrivals:
    """Send chunk after chunk from the first rank of each chain to the last; return all arrivals.

    `chains` has a row of ranks for each chain, `chunks` a row of its chunks. In a step, each rank
    sends the chunk after the one that it sent in the step before. With `reduce`, each adds its own.
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
            reduce=reduce,
        )
        everything.append(arrived)
    return joined(*everything)
