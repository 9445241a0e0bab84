"""Transfers that are added many at a time, as columns that grow at their ends.

A million transfers come in thousands of small tables. Kept one by one, these lie in many small
pages of memory, and the kernel takes longer to hand those out than it takes to fill them.
"""

from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from model.arrays import Bools, Ints
from model.workload.transfers.columns import Rows, Transfers

Number = TypeVar("Number", bound=np.generic)

# Room of a new column; a full column doubles its room.
FIRST_ROOM = 1024


class Column(Generic[Number]):
    """An array that grows at its end."""

    def __init__(self, number: type[Number]) -> None:
        self._room = np.empty(FIRST_ROOM, number)
        self._count = 0

    @property
    def values(self) -> NDArray[Number]:
        """All values that were added."""
        return self._room[: self._count]

    def extend(self, values: NDArray[Number]) -> None:
        """Add values at the end."""
        end = self._count + len(values)
        if end > len(self._room):
            larger = np.empty(max(end, 2 * len(self._room)), self._room.dtype)
            larger[: self._count] = self.values
            self._room = larger
        self._room[self._count : end] = values
        self._count = end


class RowsColumn:
    """Rows of numbers, to which others are added."""

    def __init__(self) -> None:
        self._values, self._starts = Column(np.int64), Column(np.int64)
        self._starts.extend(np.zeros(1, np.int64))

    @property
    def rows(self) -> Rows:
        """All rows that were added."""
        return Rows(self._values.values, self._starts.values)

    def extend(self, rows: Rows) -> None:
        """Add rows at the end."""
        self._starts.extend(rows.starts[1:] + len(self._values.values))
        self._values.extend(rows.values)


class TransferColumns:
    """The transfers so far; a transfer has its place as its number."""

    def __init__(self) -> None:
        self._source, self._destination = Column(np.int64), Column(np.int64)
        self._size_bytes, self._ready = Column(np.int64), Column(np.int64)
        self._reduce = Column(np.bool_)
        self._chunks, self._after = RowsColumn(), RowsColumn()

    @property
    def count(self) -> int:
        """The number of transfers."""
        return len(self._source.values)

    @property
    def transfers(self) -> Transfers:
        """All transfers that were added."""
        return Transfers(
            source=self._source.values,
            destination=self._destination.values,
            size_bytes=self._size_bytes.values,
            chunks=self._chunks.rows,
            after=self._after.rows,
            ready=self._ready.values,
            reduce=self._reduce.values,
            compute_ns=np.zeros(self.count, np.int64),
        )

    def add(
        self,
        source: Ints,
        destination: Ints,
        size_bytes: Ints,
        chunks: Rows,
        after: Rows,
        ready: Ints,
        reduce: Bools,
    ) -> Ints:
        """Add transfers; return their numbers."""
        numbers = np.arange(self.count, self.count + len(source))
        self._source.extend(source)
        self._destination.extend(destination)
        self._size_bytes.extend(size_bytes)
        self._chunks.extend(chunks)
        self._after.extend(after)
        self._ready.extend(ready)
        self._reduce.extend(reduce)
        return numbers
