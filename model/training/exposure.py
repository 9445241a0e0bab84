"""Where the time of an iteration goes: compute, traffic that compute does not hide, waiting.

At each moment of an iteration, a rank computes; or it does not, and data of a parallel dimension
arrive: this traffic is exposed; or it waits for other ranks. Measurements and predictions are
divided by the same rule.
"""

from collections.abc import Mapping

import numpy as np

from model.arrays import Bools, Floats, Ints
from model.training.steps import COMPUTE, DIMENSIONS, IterationSteps
from model.training.traffic import Dimension
from model.workload import critical_path

# Time in which data of several dimensions arrive counts for the first of these: ranks wait for
# collectives inside a pass, but not for the data of another stage.
ORDER = (Dimension.TENSOR, Dimension.EXPERT, Dimension.DATA, Dimension.PIPELINE)
COMPUTES, WAITS = "compute", "waiting"


def exposure_s(steps: IterationSteps, begin_s: Floats, end_s: Floats) -> dict[str, float]:
    """Return the seconds of each part, a mean over ranks; they sum up to the completion time.

    `begin_s` and `end_s` have the moments of all steps since the start.
    """
    completion_s = float(end_s.max())
    of_ranks = [
        _of_rank(steps.dimensions[mine], begin_s[mine], end_s[mine], completion_s)
        for mine in (steps.transfers.destination == rank for rank in range(steps.gpus))
    ]
    return {part: float(np.mean([one[part] for one in of_ranks])) for part in of_ranks[0]}


def begins_s(steps: IterationSteps, end_s: Floats) -> Floats:
    """Return the earliest begin of each step: the end of its last dependency, 0 without one.

    A step of compute begins before its end by its duration.
    """
    transfers = steps.transfers
    found, computes = critical_path.begins_s(transfers, end_s), transfers.is_compute
    found[computes] = end_s[computes] - transfers.compute_ns[computes] / 1e9
    return found


def _of_rank(
    dimensions: Ints, begin_s: Floats, end_s: Floats, completion_s: float
) -> Mapping[str, float]:
    """Split a rank's time into parts, by the steps whose destination is the rank."""
    edges = np.unique(np.concatenate([begin_s, end_s, [0.0, completion_s]]))
    left, length = np.ones(len(edges) - 1, bool), np.diff(edges)
    found = {}
    for part in (COMPUTES, *ORDER):
        these = dimensions == (COMPUTE if part == COMPUTES else DIMENSIONS.index(Dimension(part)))
        covered = left & _covered(edges, begin_s[these], end_s[these])
        found[str(part)] = float(length[covered].sum())
        left &= ~covered
    return {**found, WAITS: float(length[left].sum())}


def _covered(edges: Floats, begin_s: Floats, end_s: Floats) -> Bools:
    """Whether any of these spans covers the time between an edge and the next."""
    changes = np.bincount(np.searchsorted(edges, begin_s), minlength=len(edges))
    changes = changes - np.bincount(np.searchsorted(edges, end_s), minlength=len(edges))
    return np.cumsum(changes)[:-1] > 0
