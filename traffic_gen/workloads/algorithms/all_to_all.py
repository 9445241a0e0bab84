"""The all-to-all: its algorithms, and matrices of the share of all bytes from each rank to another.

The data of a pair are cut into phases, which follow one another, and those into slices.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial

import numpy as np

from model.arrays import Bools, Floats, Ints
from model.fabric.job_grid import JobGrid
from model.workload.transfers.columns import NONE
from traffic_gen.workloads.algorithms.builder import Arrivals, Builder, joined, within_domains

# Weight of a hot place over any other, and the number of phases of a rotating hotspot.
HOT, TURNS = 4.0, 4
# Sources of different sizes have a quarter to four times the mean, on a logarithmic scale.
RAGGED = 4.0


class Preset(StrEnum):
    """Distributions of tokens over the experts of a mixture, of which each GPU has one."""

    UNIFORM = "uniform"
    HOT_EXPERT = "hot-expert"
    HOT_RANK = "hot-rank"
    HOT_DOMAIN = "hot-domain"
    ROTATING_HOTSPOT = "rotating-hotspot"
    RAGGED_SOURCES = "ragged-sources"


@dataclass(frozen=True)
class Skew:
    """A preset, whose hot places and sizes a seed chooses."""

    preset: Preset
    seed: int = 0

    @property
    def name(self) -> str:
        """The name of the preset, and the seed unless it is 0."""
        return f"{self.preset}-{self.seed}" if self.seed else str(self.preset)

    @property
    def phases(self) -> int:
        """The number of all-to-alls that follow one another."""
        return TURNS if self.preset is Preset.ROTATING_HOTSPOT else 1

    def shares(self, grid: JobGrid) -> Floats:
        """Return the weight of each source, destination and phase.

        A rank has 1 on average. Hot places are drawn by the seed.
        """
        (domains, size), gpus = grid.shape, grid.gpus
        drawn = np.random.default_rng(self.seed)
        weights = np.ones((gpus, gpus, self.phases))
        match self.preset:
            case Preset.UNIFORM:
                pass
            case Preset.HOT_EXPERT:
                weights[:, drawn.integers(gpus)] = HOT
            case Preset.HOT_RANK:
                hot = drawn.integers(gpus)
                weights[hot] = weights[:, hot] = HOT
            case Preset.HOT_DOMAIN:
                weights[:, grid.places[0] == drawn.integers(domains)] = HOT
            case Preset.ROTATING_HOTSPOT:
                turns = np.arange(TURNS)
                domain, rail = drawn.integers(domains) + turns, drawn.integers(size) + turns
                hot_ranks = grid.nearest(domain % domains, rail % size)
                weights[:, hot_ranks, turns] = HOT
            case Preset.RAGGED_SOURCES:
                weights *= RAGGED ** drawn.uniform(-1, 1, (gpus, 1, 1))
        shares: Floats = weights * (gpus / weights.sum())
        return shares


@dataclass(frozen=True)
class Given:
    """A matrix of bytes that a user gives: a row for each source."""

    rows: tuple[tuple[int, ...], ...]
    name: str = "matrix"
    phases: int = 1

    @property
    def size_bytes(self) -> float:
        """The bytes that a rank has on average."""
        return sum(map(sum, self.rows)) / len(self.rows)

    def shares(self, _grid: JobGrid) -> Floats:
        """Return the weight of each source, destination and phase; a rank has 1 on average."""
        shares: Floats = np.array(self.rows, np.float64)[:, :, None] / self.size_bytes
        return shares


Matrix = Skew | Given


def direct_all_to_all(build: Builder) -> None:
    """Exchanges of all ranks: over the NICs, and at the same time within the HB domains.

    On each of both, a rank has as many partners at once as the builder has `peers`.
    """
    for phase in range(build.phases):
        ready = build.latest()
        _exchanges(build, phase, ready, range(1), "hb")
        _exchanges(build, phase, ready, range(1, build.domains), "nic")


def pairwise_all_to_all(build: Builder) -> None:
    """Pairwise exchanges of all ranks one after the other, as MPI libraries do."""
    for phase in range(build.phases):
        _exchanges(build, phase, build.latest(), range(build.domains), "pairs")


def _exchanges(build: Builder, phase: int, ready: Arrivals, away: range, channel: str) -> None:
    """Exchange with all ranks so many domains `away`.

    With `peers` of them at once, each on a channel of its own; when all of them have sent, with the
    next ones.
    """

    def pair(sources: Ints, destinations: Ints) -> Ints:
        return _chunks(build, sources, destinations, phase)[:, None]

    rails = range(build.domain_size)
    partners = [(domains, rail) for domains in away for rail in rails if domains or rail]
    arrived = ready
    for first in range(0, len(partners), build.peers):
        sent = [
            build.exchange(*partner, pair, channel=f"{channel}{lane}", after=arrived)
            for lane, partner in enumerate(partners[first : first + build.peers])
        ]
        arrived = joined(ready, *sent)


def _chunks(build: Builder, sources: Ints, destinations: Ints, phase: int, number: int = 0) -> Ints:
    """Return the chunks of pairs of ranks in a phase, of this slice."""
    pairs = sources * build.gpus + destinations
    return (pairs * build.phases + phase) * build.slices + number


def _domain_ranks(build: Builder, ranks: Ints) -> Ints:
    """Return a row for each rank: all ranks of its domain."""
    return (ranks - ranks % build.domain_size)[:, None] + build.rails


def two_step_all_to_all(build: Builder) -> None:
    """Send within the HB domain to the peer on the destination's rail, then along that rail.

    The algorithm of section IV-B of arXiv 2307.12169, which NCCL calls PXN. A GPU starts its
    second step when it has received all data that its domain has for its rail. Pipelined, this
    holds for each slice of the data: one is on the NICs while the next is on the HB links.
    """
    build.require_whole()
    for phase in range(build.phases):
        ready = build.latest()
        for number in range(build.slices):
            _two_steps(build, phase, number, ready)


def _two_steps(build: Builder, phase: int, number: int, ready: Arrivals) -> None:
    def for_rails(own: Ints, peers: Ints) -> Ints:
        return _chunks(build, own[:, None], build.rail_ranks(peers), phase, number)

    def of_domain(own: Ints, to: Ints) -> Ints:
        return _chunks(build, _domain_ranks(build, own), to[:, None], phase, number)

    arrived = within_domains(build, for_rails, ready)
    for domains in range(1, build.domains):
        build.exchange(domains, 0, of_domain, channel="nic", after=arrived)


def spreading_all_to_all(build: Builder) -> None:
    """Send within the HB domain to a peer on the least loaded rail, along it, and within again.

    The slices from one domain to another are dealt out to all rails, the largest first; slices of
    equal size take the rail of their destination, so that equal data go as in two steps.
    """
    if (build.chunk_bytes == build.chunk_bytes[:1]).all():
        two_step_all_to_all(build)  # without tables of all pairs
    else:
        dealt_out_all_to_all(build)


def dealt_out_all_to_all(build: Builder) -> None:
    """Send all slices of any sizes as `spreading_all_to_all` says."""
    build.require_whole()
    for phase in range(build.phases):
        ready, spread = build.latest(), Spread(build, phase)
        for number in range(build.slices):
            arrived = within_domains(build, partial(spread.from_ranks, number), ready)
            between = partial(spread.between_domains, number)
            crossed = [
                build.exchange(domains, 0, between, channel="nic", after=arrived)
                for domains in range(1, build.domains)
            ]
            handed_on = partial(spread.to_ranks, number)
            within_domains(build, handed_on, joined(ready, *crossed), channel="hb-again")


@dataclass(frozen=True)
class Spread:
    """The rail of each slice of each pair of ranks in a phase."""

    build: Builder
    phase: int

    def from_ranks(self, number: int, sources: Ints, peers: Ints) -> Ints:
        """Return the chunks that each rank sends to a peer: for its rail, and for itself."""
        build, everyone = self.build, self.build.ranks
        own = everyone // build.domain_size == sources[:, None] // build.domain_size
        rails = self.rail[number, sources]
        sent = np.where(own, everyone == peers[:, None], rails == self._rails_of(peers))
        return self._only(sent, sources[:, None], everyone, number)

    def between_domains(self, number: int, sources: Ints, destinations: Ints) -> Ints:
        """Return the chunks that each rank sends along its rail."""
        build = self.build
        froms = np.repeat(_domain_ranks(build, sources), build.domain_size, axis=1)
        to = np.tile(_domain_ranks(build, destinations), build.domain_size)
        on_rail = self.rail[number, froms, to] == self._rails_of(sources)
        return self._only(on_rail, froms, to, number)

    def to_ranks(self, number: int, sources: Ints, peers: Ints) -> Ints:
        """Return the chunks that each rank hands on: those for peers, received along its rail."""
        everyone, to = self.build.ranks[None, :], peers[:, None]
        size = self.build.domain_size
        on_rail = self.rail[number, everyone, to] == self._rails_of(sources)
        return self._only(on_rail & (everyone // size != to // size), everyone, to, number)

    @cached_property
    def rail(self) -> Ints:
        """The rail of each slice, by number, source and destination."""
        build, domains, size = self.build, self.build.domains, self.build.domain_size
        pairs = build.ranks[:, None], build.ranks
        rail_of = np.empty((build.slices, build.gpus, build.gpus), np.int64)
        load = np.zeros((domains**2, size), np.int64)
        for number in range(build.slices):
            sizes = build.chunk_bytes[_chunks(build, *pairs, self.phase, number)]
            by_domains = sizes.reshape(domains, size, domains, size).swapaxes(1, 2)
            rails = _dealt_out(by_domains.reshape(-1, size * size), load)
            rails = rails.reshape(domains, domains, size, size)
            rail_of[number] = rails.swapaxes(1, 2).reshape(build.gpus, build.gpus)
        return rail_of

    def _rails_of(self, ranks: Ints) -> Ints:
        return ranks[:, None] % self.build.domain_size

    def _only(self, sent: Bools, sources: Ints, destinations: Ints, number: int) -> Ints:
        """Return the chunks that are sent, and `NONE` in place of all others."""
        return np.where(sent, _chunks(self.build, sources, destinations, self.phase, number), NONE)


def _dealt_out(sizes: Ints, load: Ints) -> Ints:
    """Return the rail of each slice, and add it to the load of that rail.

    `sizes` has a row for each pair of domains, with the slices by source, then destination; `load`
    has a row of rails for each. The largest slice is next, and takes the least loaded rail.
    """
    rows, rails = np.arange(len(sizes)), load.shape[1]
    dealt = np.empty_like(sizes)
    for place in np.argsort(-sizes, axis=1, kind="stable").T:
        away = (np.arange(rails) - place[:, None]) % rails
        rail = (load * rails + away).argmin(axis=1)
        load[rows, rail] += sizes[rows, place]
        dealt[rows, place] = rail
    return dealt
