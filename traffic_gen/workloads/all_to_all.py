"""Algorithms of the all-to-all."""

from model.arrays import Ints
from model.workload.collective import pair_chunk, sliced
from traffic_gen.workloads.builder import Builder
from traffic_gen.workloads.patterns import within_domains


def direct_all_to_all(build: Builder) -> None:
    """Pairwise exchanges of all ranks: over the NICs, and concurrently within the HB domains."""
    _exchanges(build, across="nic", within="hb")


def pairwise_all_to_all(build: Builder) -> None:
    """Pairwise exchanges of all ranks one after the other, as MPI libraries do."""
    _exchanges(build, across="pairs", within="pairs")


def _exchanges(build: Builder, across: str, within: str) -> None:
    """Exchange with every other rank, on these channels, those of the own domain first."""

    def pair(sources: Ints, destinations: Ints) -> Ints:
        pairs = pair_chunk(build.gpus, sources, destinations)
        return sliced(pairs[:, None], build.slices)

    for domains in range(build.domains):
        for rails in range(build.domain_size):
            if domains or rails:
                build.exchange(domains, rails, pair, channel=across if domains else within)


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

    arrived = within_domains(build, for_rail, build.nothing())
    for domains in range(1, build.domains):
        build.exchange(domains, 0, of_domain, channel="nic", after=arrived)
