"""The GPU of every rank of a trace, which may name more ranks than a job has GPUs, or fewer."""

from enum import StrEnum

import numpy as np

from model.arrays import Ints


class PlacementRule(StrEnum):
    """Rules that give each rank a GPU; GPUs are numbered domain after domain."""

    WRAP = "wrap"
    BLOCK = "block"
    RAILS = "rails"


def placed(rule: PlacementRule | tuple[int, ...], ranks: int, domains: int, size: int) -> Ints:
    """Return the GPU of each rank, on a grid of `domains` x `size` GPUs.

    Ranks beyond the last GPU begin again with the first one (`wrap`; `rails` does the same, but
    fills a rail before the next one), or each GPU has consecutive ranks (`block`). A tuple has the
    GPU of each rank. Raises `ValueError` if it does not fit.
    """
    gpus, numbers = domains * size, np.arange(ranks)
    if isinstance(rule, tuple):
        return _listed(rule, ranks, gpus)
    match rule:
        case PlacementRule.WRAP:
            return numbers % gpus
        case PlacementRule.BLOCK:
            return numbers // -(-ranks // gpus)
        case PlacementRule.RAILS:
            rail, domain = np.divmod(numbers % gpus, domains)
            return domain * size + rail


def _listed(listed: tuple[int, ...], ranks: int, gpus: int) -> Ints:
    if len(listed) != ranks:
        raise ValueError(f"must list {ranks} GPUs, one for each rank, got {len(listed)}")
    if max(listed) >= gpus:
        raise ValueError(f"must be GPUs 0 to {gpus - 1}, got {max(listed)}")
    return np.array(listed)
