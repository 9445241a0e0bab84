"""The steps of a training iteration: transfers, and the compute that they wait for.

An iteration is proved when it is built, so a wrong one cannot be built. Its collectives are proved
schedules of their own; the proof here is that they fit together: no bytes are missing, and no step
begins before the results that it uses are there, in any order in which real steps may run.
"""

from dataclasses import dataclass
from functools import cached_property

from model.arrays import Ints
from model.training.reduction import ReducedIteration
from model.training.traffic import Dimension
from model.workload.schedule import fingerprint
from model.workload.transfers.columns import Transfers
from model.workload.transfers.happens_before import first_unordered
from model.workload.transfers.proof import ScheduleError, check_dependencies, check_steps

DIMENSIONS = tuple(Dimension)
# Stands for no parallel dimension, in an array of dimensions' numbers.
COMPUTE = -1
# Of sums of floating-point numbers.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class IterationSteps:
    """The steps of an iteration, and their parallel dimensions.

    `dimensions` has the number of each transfer's parallel dimension in `DIMENSIONS`, `COMPUTE` for
    steps of compute. `uses` has pairs of a step and an earlier one, whose result it uses at the
    rank where the former begins. `size_bytes` is the data of all collectives and transfers of a
    GPU. Raises `ScheduleError` for a step that may begin too early, and for bytes that are missing.
    """

    algorithm: str
    gpus: int
    size_bytes: int
    transfers: Transfers
    dimensions: Ints
    uses: tuple[Ints, Ints]
    reduction: ReducedIteration
    collective: None = None
    task: str = "iteration"

    def __post_init__(self) -> None:
        check_steps(self.gpus, self.transfers)
        check_dependencies(self.transfers)
        _check_uses(self.transfers, *self.uses)
        self._check_bytes()

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
                what = (
                    f"{dimension}-parallel ranks send {sent} bytes, fewer than the {asked:.0f} "
                    "required"
                )
                raise ScheduleError(what)

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the iteration's contents."""
        return fingerprint(self.transfers, "iteration", self.algorithm, self.gpus)


def _check_uses(transfers: Transfers, later: Ints, earlier: Ints) -> None:
    """Raise `ScheduleError` for a step that may begin before its inputs are at its rank."""
    elsewhere = transfers.destination[earlier] != transfers.source[later]
    if elsewhere.any():
        step, used = later[elsewhere][0], earlier[elsewhere][0]
        raise ScheduleError(f"step {step} uses the result of step {used}, which is at another rank")
    unordered = first_unordered(transfers, later, earlier)
    if unordered is not None:
        raise ScheduleError(f"step {unordered[0]} does not wait for {unordered[1]}, which it uses")
