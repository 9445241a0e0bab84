"""The steps of a training iteration: transfers, and the compute that they wait for.

An iteration is proved when it is built, so a wrong one cannot be built. Its collectives are proved
schedules of their own; the proof here is that they fit together: no bytes are missing, and no step
begins before the results that it uses exist, in any order in which real steps may run.

A pipeline stage computes by 1F1B or its interleaved form (MegatronLM, arXiv 2104.04473, section
2.2). With `interleave` chunks of layers a stage, chunk c of stage s is position `c * stages + s` of
the whole model.

At each moment of an iteration, a rank computes; or it does not, and data of a parallel dimension
arrive: this traffic is exposed; or it waits for other ranks. Measurements and predictions are
divided by the same rule.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from model.arrays import Bools, Floats, Ints
from model.training.reduction import ReducedIteration
from model.training.traffic import Dimension
from model.workload.schedule import WorkSteps
from model.workload.transfers.columns import Transfers
from model.workload.transfers.lanes import Parts
from model.workload.transfers.proof import ScheduleError, first_unordered

DIMENSIONS = tuple(Dimension)
# Stands for no parallel dimension, in an array of dimensions' numbers.
COMPUTE = -1
# Of sums of floating-point numbers.
ROUNDING = 1e-9
# Time in which data of several dimensions arrive counts for the first of these: ranks wait for
# collectives inside a pass, but not for the data of another stage.
ORDER = (Dimension.TENSOR, Dimension.CONTEXT, Dimension.EXPERT, Dimension.DATA, Dimension.PIPELINE)
COMPUTES, WAITS = "compute", "waiting"


@dataclass(frozen=True)
class Pass:
    """A forward or backward pass of a microbatch through one chunk of a stage."""

    forward: bool
    microbatch: int
    chunk: int


def stage_order(stage: int, stages: int, microbatches: int, interleave: int = 1) -> list[Pass]:
    """Return the passes of a stage in order.

    First as many forward passes as fill the pipeline behind the stage; then one forward and one
    backward pass in turn; then the backward passes that are left. Interleaving takes whole rounds
    of microbatches: `microbatches` is a multiple of `stages`.
    """
    forward = list(_passes(True, stages, microbatches, interleave))
    backward = list(_passes(False, stages, microbatches, interleave))
    warm_up = stages - stage - 1
    if interleave > 1:
        warm_up = 2 * warm_up + (interleave - 1) * stages
    first = min(warm_up, len(forward))
    in_turn = zip(forward[first:], backward, strict=False)
    return [*forward[:first], *chain(*in_turn), *backward[len(forward) - first :]]


def _passes(forward: bool, stages: int, microbatches: int, interleave: int) -> Iterator[Pass]:
    """Yield all passes in one direction: a round of microbatches through each chunk in turn."""
    round_ = stages if interleave > 1 else microbatches
    for first in range(0, microbatches, round_):
        for number in range(interleave):
            chunk = number if forward else interleave - 1 - number
            yield from (Pass(forward, first + one, chunk) for one in range(round_))


@dataclass(frozen=True, eq=False, kw_only=True)
class IterationSteps(WorkSteps):
    """The steps of an iteration, and their parallel dimensions.

    `dimensions` has the number of each transfer's parallel dimension in `DIMENSIONS`, `COMPUTE` for
    steps of compute. `uses` has pairs of a step and an earlier one, whose result it uses at the
    rank where the former begins. `size_bytes` is the data of all collectives and transfers of a
    GPU. Raises `ScheduleError` for a step that may begin too early, and for bytes that are missing.
    """

    task: str = "iteration"
    dimensions: Ints
    uses: tuple[Ints, Ints]
    reduction: ReducedIteration

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_uses(self.transfers, *self.uses)
        self._check_bytes()

    def _of_parts(self, parts: Parts) -> dict[str, Any]:
        dimensions = self.dimensions[parts.whole]
        return {"dimensions": dimensions, "uses": parts.pairs(*self.uses)}

    def _check_bytes(self) -> None:
        """Raise `ScheduleError` if less is sent in a dimension than the iteration asks for.

        `size_bytes` is the real size, scaled and rounded up. Without the 1 that rounding may add,
        the scale is not too large.
        """
        scale = (self.size_bytes - 1) / max(1.0, self.reduction.size_bytes)
        for dimension, real_bytes in self.reduction.sent_bytes.items():
            of_it = self.dimensions == DIMENSIONS.index(dimension)
            sent, asked = int(self.transfers.size_bytes[of_it].sum()), scale * real_bytes
            if sent < asked * (1 - ROUNDING):
                what = f"send {sent} bytes, fewer than the {asked:.0f} required"
                raise ScheduleError(f"{dimension}-parallel ranks {what}")


def _check_uses(transfers: Transfers, later: Ints, earlier: Ints) -> None:
    """Raise `ScheduleError` for a step that may begin before its inputs are at its rank."""
    elsewhere = transfers.destination[earlier] != transfers.source[later]
    if elsewhere.any():
        step, used = later[elsewhere][0], earlier[elsewhere][0]
        raise ScheduleError(f"step {step} uses the result of step {used}, which is at another rank")
    unordered = first_unordered(transfers, later, earlier)
    if unordered is not None:
        raise ScheduleError(f"step {unordered[0]} does not wait for {unordered[1]}, which it uses")


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
    begin_s, computes = transfers.begins_s(end_s), transfers.is_compute
    begin_s[computes] = end_s[computes] - transfers.compute_ns[computes] / 1e9
    return begin_s


def _of_rank(
    dimensions: Ints, begin_s: Floats, end_s: Floats, completion_s: float
) -> Mapping[str, float]:
    """Split a rank's time into parts, by the steps whose destination is the rank."""
    edges = np.unique(np.concatenate([begin_s, end_s, [0.0, completion_s]]))
    left, length = np.ones(len(edges) - 1, bool), np.diff(edges)
    seconds = {}
    for part in (COMPUTES, *ORDER):
        these = dimensions == (COMPUTE if part == COMPUTES else DIMENSIONS.index(Dimension(part)))
        covered = left & _covered(edges, begin_s[these], end_s[these])
        seconds[str(part)] = float(length[covered].sum())
        left &= ~covered
    return {**seconds, WAITS: float(length[left].sum())}


def _covered(edges: Floats, begin_s: Floats, end_s: Floats) -> Bools:
    """Whether any of these spans covers the time between an edge and the next."""
    changes = np.bincount(np.searchsorted(edges, begin_s), minlength=len(edges))
    changes = changes - np.bincount(np.searchsorted(edges, end_s), minlength=len(edges))
    return np.cumsum(changes)[:-1] > 0
