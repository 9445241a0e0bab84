"""Collective operations: what every rank holds before, and what it must hold after."""

from enum import StrEnum

import numpy as np

from model.arrays import Ints

# Stands for the sum of the contributions of all ranks, where an array has the number of one.
EVERYONE = -1


class Collective(StrEnum):
    """Collective operations of the GPUs."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    BROADCAST = "broadcast"


def pair_chunk(gpus: int, source: Ints, destination: Ints) -> Ints:
    """The chunk of an all-to-all that `source` has for `destination`."""
    return source * gpus + destination


# The rank whose buffer a broadcast sends to all others.
ROOT = 0


def sliced(chunks: Ints, slices: int) -> Ints:
    """The parts of each chunk, where every chunk is cut into `slices`."""
    return (chunks[..., None] * slices + np.arange(slices)).reshape(*chunks.shape[:-1], -1)


def initial_chunks(collective: Collective, gpus: int, rank: int) -> Ints:
    """The chunks that a rank holds initially, each with its own contribution alone."""
    match collective:
        case Collective.ALL_GATHER:
            return np.array([rank])
        case Collective.ALL_TO_ALL:
            return np.arange(rank * gpus, (rank + 1) * gpus)
        case Collective.BROADCAST:
            return np.arange(gpus if rank == ROOT else 0)
        case Collective.ALL_REDUCE | Collective.REDUCE_SCATTER:
            return np.arange(gpus)


def wanted_chunks(collective: Collective, gpus: int, rank: int) -> Ints:
    """The chunks that a rank must hold in the end, with the contribution of `contributor`."""
    match collective:
        case Collective.ALL_REDUCE | Collective.ALL_GATHER | Collective.BROADCAST:
            return np.arange(gpus)
        case Collective.REDUCE_SCATTER:
            return np.array([rank])
        case Collective.ALL_TO_ALL:
            return np.arange(rank, gpus * gpus, gpus)


def contributor(collective: Collective, gpus: int, chunks: Ints) -> Ints:
    """The rank whose contribution each chunk must be in the end, or `EVERYONE`."""
    match collective:
        case Collective.ALL_REDUCE | Collective.REDUCE_SCATTER:
            return np.full(len(chunks), EVERYONE)
        case Collective.ALL_GATHER:
            return chunks
        case Collective.ALL_TO_ALL:
            return chunks // gpus
        case Collective.BROADCAST:
            return np.full(len(chunks), ROOT)
