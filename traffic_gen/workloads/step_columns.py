"""Steps that are added in bulk, and the fronts of each rank: the dependencies of its next step."""

from collections.abc import Sequence
from enum import Enum

import numpy as np

from model.arrays import Bools, Ints
from model.workload.transfers.columns import NONE, Rows, Transfers, starts_of

Pairs = tuple[Ints, Ints]


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
        self._waits: list[Pairs] = []
        self._uses: list[Pairs] = []

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
        numbers = np.arange(self.count, self.count + len(source))
        columns = (destination, size_bytes, ready, compute_ns, dimension)
        whole = (c if isinstance(c, np.ndarray) else np.full(len(source), c) for c in columns)
        self._columns.append((source, *whole))
        self.count += len(source)
        return numbers

    def wait(self, later: Ints, earlier: Ints) -> None:
        """Let each of these steps wait for an earlier one."""
        self._waits.append((later, earlier))

    def follow(
        self, numbers: Ints, ranks: Ints, waiting: Bools | None = None, lane: Lane = Lane.PASSES
    ) -> None:
        """Let each step use its rank's front, and wait for it; given `waiting`, only these wait."""
        front = self._fronts[lane][ranks]
        row, column = np.nonzero(front != NONE)
        later, earlier = numbers[row], front[row, column]
        self._uses.append((later, earlier))
        waits = slice(None) if waiting is None else waiting[row]
        self.wait(later[waits], earlier[waits])

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
        later, earlier = self._in_order(self._waits)
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
        return self._in_order(self._uses)

    def _whole_columns(self) -> list[Ints]:
        return [np.concatenate(parts) for parts in zip(*self._columns, strict=True)]

    def _in_order(self, pairs: Sequence[Pairs]) -> Pairs:
        later, earlier = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        return np.divmod(np.unique(later * self.count + earlier), self.count)
