"""Algorithms of Broadcast, Reduce, Gather and Scatter, in which one rank, the root, has a part.

Reduce is Broadcast backwards, and Gather is Scatter backwards.
"""

import numpy as np

from model.workload.transfers.collective import ROOT
from traffic_gen.workloads.algorithms.builder import (
    Arrivals,
    Builder,
    along,
    joined,
    whole_ring,
    within_domains,
)

AT_ROOT = np.array([ROOT])


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
    arrived = joined(arrived, along(build, rails, rails, "nic", arrived))
    within_domains(build, lambda own, _peers: build.rail_ranks(own), arrived)


def hierarchical_reduce(build: Builder) -> None:
    """Sum up within all HB domains, along each rail to the root's domain, and send to the root."""
    build.require_whole()
    arrived = within_domains(
        build, lambda _own, peers: build.rail_ranks(peers), build.nothing(), reduce=True
    )
    rails = build.rail_ranks(build.rails)
    summed = along(build, rails[:, ::-1], rails, "nic", arrived, reduce=True)
    _handed_in(build, joined(arrived, summed))


def direct_scatter(build: Builder) -> None:
    """The root sends all ranks their shards at once, as a group of NCCL's sends."""
    others = build.ranks[1:]
    build.send(np.full_like(others, ROOT), others, build.parts(others, 0)[:, None], channel="root")


def direct_gather(build: Builder) -> None:
    """All ranks send their shards to the root at once."""
    others = build.ranks[1:]
    build.send(others, np.full_like(others, ROOT), build.parts(others, 0)[:, None], channel="root")


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
