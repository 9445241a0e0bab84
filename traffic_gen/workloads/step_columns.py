"""Steps that are added in bulk, and the fronts of each rank: the dependencies of its next step."""

from collections.abc import Sequence
from enum import Enum

import numpy as np

from model.arrays import Bools, Ints, distinct
from model.workload.transfers.columns import NONE, Rows, Transfers, starts_of

Pairs = tuple[Ints, Ints]
HALF = 32  # bits


class Lane(Enum):
    """What a rank does one after the other: its passes; collectives that go on beside them."""

    PASSES = "passes"
    BESIDE = "beside"


class StepColumns:
    """The steps so far of `ranks` ranks, as columns; a step has its place as its number."""

    def __init__(self, ranks: int) -> None:
        self.count = 0
        self._columns: list[tuple[Ints, ...]] = []
        # Of each lane a row for each rank, padded with `NONE`.
        self._fronts = {lane: np.full((ranks, 1), NONE) for lane in Lane}
        # Pairs of steps as codes, of which there are millions: the later one in the upper half.
        self._waits: list[Ints] = []
        self._uses: list[Ints] = []

    def add(
        self,
        source: Ints,
        destination: Ints,
        size_bytes: Ints | int,
        dimension: int,
        ready: Ints | int = NONE,
        compute_ns: int = 0,
    ) -> Ints:
        """Add transfers of a dimension, or steps of compute; return their numbers."""
        columns = source, destination, size_bytes, ready, compute_ns, dimension
        self._columns.append(tuple(np.broadcast_to(column, len(source)) for column in columns))
        self.count += len(source)
        return np.arange(self.count - len(source), self.count)

    def wait(self, later: Ints, earlier: Ints) -> None:
        """Let each of these steps wait for an earlier one."""
        self._waits.append(later << HALF | earlier)

    def follow(
        self, numbers: Ints, ranks: Ints, waiting: Bools | None = None, lane: Lane = Lane.PASSES
    ) -> None:
        """Let each step use its rank's front, and wait for it; given `waiting`, only these wait."""
        front = self._fronts[lane][ranks]
        row, column = np.nonzero(front != NONE)
        codes = numbers[row] << HALF | front[row, column]
        self._uses.append(codes)
        self._waits.append(codes if waiting is None else codes[waiting[row]])

    def extend(self, ranks: Ints, table: Ints) -> None:
        """Add a row of steps to the front of each rank; `NONE` stands for none."""
        self.set_front(ranks, np.hstack([self._fronts[Lane.PASSES][ranks], table]))

    def set_front(self, ranks: Ints, table: Ints, lane: Lane = Lane.PASSES) -> None:
        """Let a row of steps be the front of each rank."""
        table, front = table[:, (table != NONE).any(axis=0)], self._fronts[lane]
        if (more := table.shape[1] - front.shape[1]) > 0:
            front = np.pad(front, ((0, 0), (0, more)), constant_values=NONE)
        front[ranks] = NONE
        front[ranks, : table.shape[1]] = table
        self._fronts[lane] = front

    @property
    def transfers(self) -> Transfers:
        """All steps."""
        source, destination, size_bytes, ready, compute_ns, _ = self._whole_columns()
        later, earlier = _in_order(self._waits)
        return Transfers(
            source=source,
            destination=destination,
            size_bytes=size_bytes,
            chunks=Rows.of([()] * self.count),
            after=Rows(earlier, starts_of(np.bincount(later, minlength=self.count))),
            ready=ready,
            reduce=np.zeros(self.count, bool),
            compute_ns=compute_ns,
            lane=np.zeros(self.count, np.int64),
            processor=np.full(self.count, NONE),
            turn=np.zeros(self.count, np.int64),
        )

    @property
    def dimensions(self) -> Ints:
        """The number of the dimension of each step, or that of compute."""
        return self._whole_columns()[-1]

    @property
    def uses(self) -> Pairs:
        """Steps, and for each an earlier one whose result it uses."""
        return _in_order(self._uses)

    def _whole_columns(self) -> list[Ints]:
        return [np.concatenate(parts) for parts in zip(*self._columns, strict=True)]


def _in_order(codes: Sequence[Ints]) -> Pairs:
    ordered = distinct(np.concatenate(codes))
    return ordered >> HALF, ordered & (1 << HALF) - 1
