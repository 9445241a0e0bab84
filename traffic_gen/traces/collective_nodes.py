"""Collective operations of a trace as transfers: an algorithm for each, on the grid of its GPUs."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from model.arrays import Ints
from model.job.communicators import Shape
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import Transfer
from traffic_gen.workloads.sized_collective import SizedCollective

# A trace names no algorithm. These are for any number of ranks.
ALGORITHM_OF = {
    Collective.ALL_REDUCE: "ring",
    Collective.ALL_GATHER: "ring",
    Collective.REDUCE_SCATTER: "ring",
    Collective.ALL_TO_ALL: "direct",
    Collective.BROADCAST: "ring",
}


@lru_cache(maxsize=32)
def expansion(collective: Collective, grid: Shape, size_bytes: int) -> tuple[Transfer, ...]:
    """Return the proved transfers of a collective operation between places of a grid."""
    whole = SizedCollective(collective, ALGORITHM_OF[collective], grid, size_bytes)
    return whole.steps().transfers.objects


def arranged(ranks: Sequence[int], gpu_of: Ints, domain_size: int) -> tuple[list[int], Shape]:
    """Return the ranks by their place on a grid, and the grid.

    Ranks that have a GPU each, on the same rails of some domains, are on the grid of these GPUs;
    rings then cross domains along rails. All others are in a row, in the order of the trace. The
    first of the ranks is at the first place.
    """
    domain, rail = np.divmod(gpu_of[list(ranks)], domain_size)
    domains, rails = np.unique(domain), np.unique(rail)
    distinct = len(np.unique(gpu_of[list(ranks)]))
    if not len(domains) * len(rails) == distinct == len(ranks):
        return list(ranks), (1, len(ranks))
    row = (np.searchsorted(domains, domain) - np.searchsorted(domains, domain[0])) % len(domains)
    column = (np.searchsorted(rails, rail) - np.searchsorted(rails, rail[0])) % len(rails)
    order = np.argsort(row * len(rails) + column)
    return [ranks[place] for place in order.tolist()], (len(domains), len(rails))
