"""The GPU of every rank of a trace, which may name more ranks than a job has GPUs, or fewer."""

from enum import StrEnum

import numpy as np

from model.arrays import Ints
from model.fabric.job_grid import JobGrid


class PlacementRule(StrEnum):
    """Rules that give each rank a GPU; GPUs are numbered domain after domain."""

    WRAP = "wrap"
    BLOCK = "block"
    RAILS = "rails"


def placed(rule: PlacementRule | tuple[int, ...], ranks: int, grid: JobGrid) -> Ints:
    """Return the GPU of each rank, on the GPUs of a grid.

    Ranks beyond the last GPU begin again with the first one (`wrap`; `rails` does the same, but
    fills a rail before the next one), or each GPU has consecutive ranks (`block`). A tuple has the
    GPU of each rank. Raises `ValueError` if it does not fit.
    """
    gpus, numbers = grid.gpus, np.arange(ranks)
    if isinstance(rule, tuple):
        return _listed(rule, ranks, gpus)
    match rule:
        case PlacementRule.WRAP:
            return numbers % gpus
        case PlacementRule.BLOCK:
            return numbers // -(-ranks // gpus)
        case PlacementRule.RAILS:
            return np.lexsort(grid.places)[numbers % gpus]


def _listed(listed: tuple[int, ...], ranks: int, gpus: int) -> Ints:
    if len(listed) != ranks:
        raise ValueError(f"must list {ranks} GPUs, one for each rank, got {len(listed)}")
    if max(listed) >= gpus:
        raise ValueError(f"must be GPUs 0 to {gpus - 1}, got {max(listed)}")
    return np.array(listed)
