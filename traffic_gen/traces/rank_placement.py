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
    match rule:
        case PlacementRule.WRAP:
            return numbers % gpus
        case PlacementRule.BLOCK:
            return numbers // -(-ranks // gpus)
        case PlacementRule.RAILS:
            return np.lexsort(grid.places)[numbers % gpus]
        case tuple():
            if len(rule) != ranks:
                raise ValueError(f"must list {ranks} GPUs, one for each rank, got {len(rule)}")
            if max(rule) >= gpus:
                raise ValueError(f"must be GPUs 0 to {gpus - 1}, got {max(rule)}")
            return np.array(rule)
