"""Matrices of an all-to-all: the share of all bytes from every rank to every other."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from model.arrays import Floats
from model.fabric.job_grid import JobGrid

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
        domains, size = grid.shape
        ranks = np.arange(grid.gpus)
        drawn = np.random.default_rng(self.seed)
        weights = np.ones((len(ranks), len(ranks), self.phases))
        match self.preset:
            case Preset.HOT_EXPERT:
                weights[:, drawn.integers(len(ranks))] = HOT
            case Preset.HOT_RANK:
                hot = drawn.integers(len(ranks))
                weights[hot] = weights[:, hot] = HOT
            case Preset.HOT_DOMAIN:
                weights[:, grid.places[0] == drawn.integers(domains)] = HOT
            case Preset.ROTATING_HOTSPOT:
                turns = np.arange(TURNS)
                domain, rail = drawn.integers(domains) + turns, drawn.integers(size) + turns
                hot_ranks = grid.nearest(domain % domains, rail % size)
                weights[:, hot_ranks, turns] = HOT
            case Preset.RAGGED_SOURCES:
                weights *= RAGGED ** drawn.uniform(-1, 1, (len(ranks), 1, 1))
        shares: Floats = weights * (len(ranks) / weights.sum())
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
        rows = np.array(self.rows, np.float64)[:, :, None]
        shares: Floats = rows / self.size_bytes
        return shares


Matrix = Skew | Given
